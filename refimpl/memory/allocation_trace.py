"""Allocation traces: which blocks are allocated and freed, in which order, and the replay of a trace in any pool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from refimpl.memory.base import GRANULARITY, Pool


class TraceEvent(NamedTuple):
    """An allocation, or the free of the block that an earlier event allocated."""

    block: int  #: the block's number; every block has its own
    nbytes: int  #: requested; 0: the block is freed
    stays: bool = False  #: the allocator's hint: kept from forward to backward
    name: str = ""  #: the tensor's
    kind: str = ""  #: the tensor's
    step: int = 0


Trace = Sequence[TraceEvent]


def rounded(nbytes: int) -> int:
    """Bytes that a block for `nbytes` holds: whole granules, at least one."""
    return max(-(-nbytes // GRANULARITY), 1) * GRANULARITY


def fullest(events: Iterable[TraceEvent]) -> tuple[int, TraceEvent | None]:
    """The most bytes alive at once, each block rounded, and the first allocation with which they are."""
    held = peak = 0
    last = None
    blocks: dict[int, int] = {}
    for event in events:
        if event.nbytes:
            blocks[event.block] = nbytes = rounded(event.nbytes)
            held += nbytes
            if held > peak:
                peak, last = held, event
        else:
            held -= blocks.pop(event.block)
    return peak, last


def ideal(events: Iterable[TraceEvent]) -> int:
    """The most bytes alive at once, each block rounded: no placement needs less."""
    return fullest(events)[0]


class Misfit(NamedTuple):
    """An allocation that found no hole."""

    event: TraceEvent
    largest_hole: int  #: of the holes that the allocator could have used, bytes


def replay(events: Iterable[TraceEvent], pool: Pool, addresses: dict[int, int] | None = None) -> Misfit | None:
    """Allocate and free in the pool until an allocation fails.

    Args:
        events: the trace.  An iterator is left after the allocation that failed, so that a second call goes on there.
        pool: where the blocks are allocated.
        addresses: filled with block → its address.  The free of a block that is not in it is left out.

    Returns:
        The allocation that failed; None if all of them fit.
    """
    addresses = {} if addresses is None else addresses
    for event in events:
        if event.nbytes:
            address = pool.allocate(event.nbytes, event.stays)
            if address is None:
                return Misfit(event, pool.hole_for(event.stays))
            addresses[event.block] = address
        elif event.block in addresses:
            pool.free(addresses[event.block])
    return None


@dataclass(frozen=True)
class PoolSize:
    """The size of a pool that serves a trace, and what the search for it took."""

    pool_bytes: int
    ideal_bytes: int
    tries: int

    @property
    def fragmentation(self) -> float:
        """Bytes of the pool beyond the ideal, as a share of the ideal."""
        return self.pool_bytes / self.ideal_bytes - 1 if self.ideal_bytes else 0.0
