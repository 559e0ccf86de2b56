"""vDNN++ and fragmentation (§3): how large a pool has to be so that a whole iteration fits into it.

Before training, an iteration's allocations and frees are replayed.  The *ideal* is the most that is alive at once, each
block rounded up to 512 bytes.  A pool of that size is tried with the real allocator; where an allocation fails, the
pool grows by what was missing from the largest hole it could have had, and the replay starts again, until all of it
fits.  A larger pool than the one that is found may fail: best fit is not monotone.

A block that outlives the forward pass splits the holes of those that come and go.  So *right placement* takes maps that
are not offloaded off the pool's right end (`refimpl.memory.both_ends`).  Which placement is best depends on the policy
and on the order, a prefetch before or after a layer's own gradient: no heuristic wins everywhere.
`refimpl.studies.fragmentation.study` compares them all.

vDNN++'s presets train in the pool that was found (`FoundPool`).  So more memory never fails where less fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from refimpl.memory import UNLIMITED, Allocator, BothEnds
from refimpl.memory.allocation_trace import Event, PoolSize, Trace, ideal, replay, rounded
from refimpl.planner import Program, slots
from refimpl.planner.errors import DoesNotFit, PoolDoesNotFit
from refimpl.text import RefimplError

#: Steps after which the bytes of a released map are free again, though its copy may still run; None: at the barrier.
LAGS = (None, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1, 0)


class PlacementError(RefimplError, ValueError):
    """A trace that no pool serves: one line that says which allocation and why."""


def find_pool(events: Trace, allocator: Allocator) -> PoolSize:
    """The search of the authors' public code: from the ideal upwards, by what was missing each time.

    Right placement can refuse an allocation in a pool of any size: a block that stays is only ever cut off the
    right-most hole, which may be a small one at the very end.  In a pool of twice all blocks together the open middle
    is always the largest hole, and more of it changes nothing: an allocation that fails there always fails.
    """
    smallest = size = ideal(events)
    enough = 2 * sum(rounded(event.nbytes) for event in events if event.nbytes)
    tries = 1
    while (misfit := replay(events, allocator.open(size))) is not None:
        if size > enough:
            asked, hole = misfit.event.nbytes, misfit.largest_hole
            raise PlacementError(
                f"{allocator.name} serves this trace in no pool: {misfit.event.name or 'a block'} needs {asked:,} "
                f"bytes, and the only hole it may have keeps {hole:,}; take another allocator"
            )
        size += rounded(rounded(misfit.event.nbytes) - misfit.largest_hole)
        tries += 1
    return PoolSize(size, smallest, tries)


@dataclass(frozen=True)
class FoundPool(BothEnds, slots.PoolSearch):
    """Right placement, in a pool of the size that the search found.

    That size depends on how soon the bytes of offloaded maps are free again.  If they are at the barrier, no kernel
    waits for a copy, and the pool is large.  If they are `lag` steps after the map's release, the pool is smaller, and
    kernels wait for copies that take longer than that.  The longest lag whose pool is within the budget is taken.  For
    each lag the order of allocations and frees is fixed, so what fits the pool in the search fits it in training.

    Where the order is not fixed, the pool is as large as the budget, and the first lag that fits is taken.

    `hint`: where even bytes that are free at once are too many, the error names these, and no pool is searched for.
    """

    hint: bool = field(default=False, repr=False)

    name: ClassVar[str] = "vdnnpp-pool"
    summary: ClassVar[str] = "right placement, in a pool whose size is searched for before training"

    def search(self, attempt: Callable[..., Program], budget: int, fixed_order: bool) -> Program:
        if not fixed_order:
            return self.first_that_fits(attempt, budget)
        if self.hint and (least := ideal(trace_of(attempt(UNLIMITED, LAGS[-1])))) > budget:
            raise PoolDoesNotFit(None, "the pool", least, budget, budget, budget, {})
        pools = []
        for lag in LAGS:
            roomy = attempt(UNLIMITED, lag)
            pools.append(self.pool_bytes(roomy))
            if pools[-1] <= budget:
                try:
                    return dataclasses.replace(attempt(pools[-1], lag), budget=budget)
                except DoesNotFit:  # a module follows the pool, and does not say so
                    return self.first_that_fits(attempt, budget)
        fullest = max(roomy.rows, key=lambda row: row.pool_bytes)
        raise PoolDoesNotFit(fullest.step, "the pool", min(pools), budget, budget, budget, {})

    def first_that_fits(self, attempt: Callable[..., Program], budget: int) -> Program:
        for lag in (None, 2, 1):
            try:
                return attempt(budget, lag)
            except DoesNotFit:
                continue
        return attempt(budget, 0)

    def pool_bytes(self, program: Program) -> int:
        """The pool that the search finds for a program, its resident tensors included."""
        return find_pool(trace_of(program), self).pool_bytes

    @property
    def quick(self) -> FoundPool:
        return dataclasses.replace(self, hint=True)


def trace_of(program: Program) -> Trace:
    """A program's allocations and frees; its resident tensors come first."""
    resident = [Event(-1 - number, tensor.nbytes) for number, tensor in enumerate(program.network.resident)]
    return [*resident, *program.allocation_trace()]
