"""vDNN++ and fragmentation (§3): how large a pool has to be so that a whole iteration finds its holes.

Before training, an iteration's allocations and frees are replayed.  The *ideal* is the most that is alive at once, each
block rounded up to 512 bytes.  A pool of that size is tried with the real allocator; where a request fails the pool
grows by what was missing from the largest hole it could have had, and the replay begins anew, until all of it fits.
Training then takes a pool of exactly that size and no larger one: best fit is not monotone, and may fail there.

A block that outlives the forward pass is what splits the holes of those that come and go.  So *right placement* takes
maps that are not offloaded off the pool's right end (`refimpl.memory.both_ends`).  Which placement is best depends on
the policy and on the order, a prefetch before or after a layer's own gradient: no heuristic wins everywhere.
`refimpl.reproduce.vdnnpp.fragmentation` compares them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from refimpl.memory import Allocator, Pool
from refimpl.planner import Allocate, Free, Program

GRANULE = 512  #: bytes


class PlacementError(ValueError):
    """A trace that no pool serves: one line that says which request and why."""


class Event(NamedTuple):
    """An allocation, or the free of what an earlier event allocated."""

    block: int  #: a number of its own
    nbytes: int  #: 0: free
    stays: bool = False  #: outlives the forward pass
    name: str = ""  #: the tensor's
    kind: str = ""  #: the tensor's
    step: int = 0


Trace = Sequence[Event]


def trace(program: Program) -> list[Event]:
    """A program's allocations and frees of managed tensors, workspaces too, in its order."""
    depth = program.network.depth
    live: dict[int, int] = {}  # address → number
    events: list[Event] = []
    allocated = 0
    for it in program.instructions:
        if isinstance(it, Allocate):
            fate = program.fates.get(it.tensor)
            stays = it.step <= depth and fate is not None and fate.name == "keep"
            live[it.address] = allocated
            events.append(Event(allocated, it.tensor.nbytes, stays, it.tensor.name, it.tensor.kind, it.step))
            allocated += 1
        elif isinstance(it, Free):
            events.append(Event(live.pop(it.address), 0, step=it.step))
    return events


def rounded(nbytes: int) -> int:
    return max(-(-nbytes // GRANULE), 1) * GRANULE


def ideal(events: Trace) -> int:
    """Bytes alive at once at most: what no placement can do without."""
    held = peak = 0
    blocks: dict[int, int] = {}
    for event in events:
        if event.nbytes:
            blocks[event.block] = rounded(event.nbytes)
            held += blocks[event.block]
            peak = max(peak, held)
        else:
            held -= blocks.pop(event.block)
    return peak


class Misfit(NamedTuple):
    """A request that found no hole."""

    event: Event
    largest_hole: int  #: of those it could have had, bytes


def replay(events: Trace, pool: Pool, addresses: dict[int, int] | None = None) -> Misfit | None:
    """Allocate and free in the pool until a request fails; None if all of it fits.

    `addresses` is filled with where each block lay, by its number.
    """
    addresses = {} if addresses is None else addresses
    for event in events:
        if not event.nbytes:
            pool.free(addresses[event.block])
            continue
        address = pool.allocate(event.nbytes, event.stays)
        if address is None:
            return Misfit(event, pool.hole_for(event.stays))
        addresses[event.block] = address
    return None


@dataclass(frozen=True)
class Found:
    """The pool that a trace fits, and how it was come by."""

    pool_bytes: int
    ideal_bytes: int
    tries: int

    @property
    def fragmentation(self) -> float:
        """What the pool has too much, as a share of the ideal."""
        return self.pool_bytes / self.ideal_bytes - 1 if self.ideal_bytes else 0.0


def find_pool(events: Trace, allocator: Allocator) -> Found:
    """The search of the authors' public code: from the ideal upwards, by what was missing each time.

    Right placement can refuse a request in a pool of any size: what stays is only ever cut off the right-most hole,
    and that may be a small one at the very end.  In a pool of twice all blocks together the open middle is always the
    largest hole, and more of it changes nothing: what fails there fails for ever, and is an error.
    """
    smallest = size = ideal(events)
    enough = 2 * sum(rounded(event.nbytes) for event in events if event.nbytes)
    tries = 1
    while (misfit := replay(events, allocator.open(size))) is not None:
        if size > enough:
            asked, hole = misfit.event.nbytes, misfit.largest_hole
            raise PlacementError(
                f"{allocator.name} serves this trace in no pool: {misfit.event.name or 'a block'} asks for {asked:,} "
                f"bytes, and the only hole it may have keeps {hole:,}; take another allocator"
            )
        size += rounded(rounded(misfit.event.nbytes) - misfit.largest_hole)
        tries += 1
    return Found(size, smallest, tries)
