"""vDNN++ and fragmentation (§3): how large a pool has to be so that a whole iteration fits into it.

Before training, an iteration's allocations and frees are replayed.  The *ideal* is the most that is alive at once, each
block rounded up to 512 bytes.  A pool of that size is tried with the real allocator; where an allocation fails, the
pool grows by what was missing from the largest hole it could have had, and the replay starts again, until all of it
fits.  A larger pool than the one that is found may fail: best fit is not monotone.

A block that outlives the forward pass splits the holes of those that come and go.  So *right placement* takes maps that
are not offloaded off the pool's right end (`refimpl.memory.both_ends`).  In the authors' public code it is an option of
the build; the default is best fit for every block.  Which placement is best depends on the policy and on the order, a
prefetch before or after a layer's own gradient: no heuristic wins everywhere.  `refimpl.studies.fragmentation.study`
compares them all.

vDNN++'s presets train in the pool that was found (`FoundPool`), and the placement is searched for, too: best fit
first, and right placement where that pool is too large.  So from the least of these pools on, more memory never fails
where less fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from refimpl.memory import UNLIMITED, Allocator, BestFit, BothEnds, Pool
from refimpl.memory.allocation_trace import PoolSize, Trace, TraceEvent, fullest, ideal, replay, rounded
from refimpl.network import Step
from refimpl.slots.errors import DoesNotFit, PoolDoesNotFit
from refimpl.slots.planner_only import PoolSearch
from refimpl.text import RefimplError

if TYPE_CHECKING:
    from refimpl.planner.program import Program

#: Steps after which the bytes of a released map are free again, though its copy may still run; None: at the barrier.
LAGS = (None, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1, 0)
#: The same where the order is not fixed: bytes that drain for longer are missing as workspace.
FITTING_LAGS = (0, 1, 2, 4)

Place = tuple[int, int, int]  #: in a trace: a step, whether it is before what drained in it, an instruction


class PlacementError(RefimplError, ValueError):
    """A trace that no pool serves: one line that says which allocation and why."""


def find_pool(events: Trace, allocator: Allocator, limit: int = UNLIMITED) -> PoolSize:
    """The search of the authors' public code: from the ideal upwards, by what was missing each time.

    It ends above `limit`, with a size that is too large, and that may still be too small for the trace.

    Right placement can refuse an allocation in a pool of any size: a block that stays is only ever cut off the
    right-most hole, which may be a small one at the very end.  In a pool of twice all blocks together the open middle
    is always the largest hole, and more of it changes nothing: an allocation that fails there always fails.
    """
    smallest = size = ideal(events)
    enough = 2 * sum(rounded(event.nbytes) for event in events if event.nbytes)
    tries = 1
    while size <= limit and (misfit := replay(events, allocator.open(size))) is not None:
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
class FoundPool(Allocator, PoolSearch):
    """Best fit or right placement, in a pool of the size that the search found.

    That size depends on how soon the bytes of offloaded maps are free again.  If they are at the barrier, no kernel
    waits for a copy, and the pool is large.  If they are `lag` steps after the map's release, the pool is smaller, and
    kernels wait for copies that take longer than that.  The longest lag with a pool within the budget is taken.  For
    each lag the order of allocations and frees is fixed, so what fits the pool in the search fits it in training.
    Where all these pools are too large, the pool is the budget, and the lag the shortest: then a prefetch that finds no
    room is left out, and its map comes when it is needed, as in vDNN.

    Where the order is not fixed, the pool is as large as the budget: of all lags and placements the fastest is taken.

    `placement`: right for blocks that stay, or left (best fit) for all; searched: left first.
    `hint`: where even bytes that are free at once are too many, the error names these, and no pool is searched for.
    """

    placement: Literal["searched", "left", "right"] = "searched"
    hint: bool = field(default=False, repr=False)

    name: ClassVar[str] = "vdnnpp-pool"
    summary: ClassVar[str] = "best fit or right placement, in a pool that is searched for before training"

    def open(self, size: int) -> Pool:
        return (BothEnds if self.placement == "right" else BestFit)(self.granularity).open(size)

    @property
    def placements(self) -> list[FoundPool]:
        """This allocator with each placement that it may have."""
        if self.placement != "searched":
            return [self]
        return [dataclasses.replace(self, placement=one) for one in ("left", "right")]

    def search(self, attempt: Callable[..., Program], budget: int, fixed_order: bool) -> Program:
        if not fixed_order:
            return self.fastest(attempt, budget)
        try:
            pool, lag, placed = self.pool_lag_and_placement(attempt, budget)
        except PoolDoesNotFit as error:
            try:
                return attempt(budget, LAGS[-1], self.placements[0])
            except DoesNotFit:
                raise error from None
        try:
            return dataclasses.replace(attempt(pool, lag, placed), budget=budget)
        except DoesNotFit:  # a module follows the pool, and does not say so
            return self.fastest(attempt, budget)

    def pool_lag_and_placement(self, attempt: Callable[..., Program], budget: int) -> tuple[int, int | None, FoundPool]:
        """Bytes of the pool of the longest lag that has one within the budget, and the placement that fits it."""
        traces = TracesOfLags(attempt(UNLIMITED))

        def trace(lag: int | None) -> Trace:
            return traces[lag] if traces.known else trace_of(attempt(UNLIMITED, lag))

        least = ideal(trace(LAGS[-1])) if self.hint or traces.known else 0
        if self.hint and least > budget:
            raise PoolDoesNotFit(None, "the pool", least, budget, budget, budget, {})
        for lag in LAGS if least <= budget else ():  # what is free later takes more
            for placed in self.placements:
                if (pool := placed.bytes_for(trace(lag), budget)) <= budget:
                    return pool, lag, placed
        _, largest = fullest(trace(LAGS[-1]))
        smallest = UNLIMITED
        for lag in reversed(LAGS):
            for placed in self.placements:
                smallest = min(smallest, placed.bytes_for(trace(lag), smallest - 1))
        raise PoolDoesNotFit(largest and traces.step(largest), "the pool", smallest, budget, budget, budget, {})

    def fastest(self, attempt: Callable[..., Program], budget: int) -> Program:
        """In a pool of the budget: of all lags and placements the program that takes least time by the model."""
        from refimpl.planner import TooSlow

        found: list[Program] = []
        failures: list[Exception] = []
        for lag in FITTING_LAGS:
            for placed in self.placements:
                try:
                    found.append(attempt(budget, lag, placed))
                except (DoesNotFit, TooSlow) as error:
                    failures.append(error)
        if not found:
            raise failures[0]
        return min(found, key=lambda program: program.planned_seconds)

    def bytes_for(self, events: Trace, limit: int) -> int:
        """Bytes of the pool that the search finds for a trace; without one, or beyond `limit`, more than that."""
        try:
            return find_pool(events, self, limit).pool_bytes
        except PlacementError:
            if self.placement == "right":
                return limit + 1
            raise

    def pool_bytes(self, program: Program) -> int:
        """The pool that the search finds for a program, its resident tensors included."""
        return find_pool(trace_of(program), self).pool_bytes

    @property
    def quick(self) -> FoundPool:
        return dataclasses.replace(self, hint=True)


def trace_of(program: Program) -> Trace:
    """A program's allocations and frees; its resident tensors come first."""
    return [*resident(program), *program.allocation_trace()]


def resident(program: Program) -> list[TraceEvent]:
    return [TraceEvent(-1 - number, tensor.nbytes) for number, tensor in enumerate(program.network.resident)]


class TracesOfLags:
    """The trace of the plan with each lag, from one program that was planned without, in memory enough.

    They differ in when the bytes of offloaded maps are free: `lag` steps after their release, before anything else of
    that step.  So it is where every map that leaves is copied in the step in which it is released.  One that is copied
    sooner may have left before its release, with a map that was copied after it and that a kernel had to wait for; and
    when, only a plan can say: `known` is then False.
    """

    def __init__(self, program: Program) -> None:
        from refimpl.planner.instructions import CopyOut

        self.known, self._program = True, program
        self._backward, self._resident = program.network.depth + 1, resident(program)  # from there on nothing drains
        self._same: list[tuple[Place, TraceEvent]] = []  #: what all lags share
        self._drained: list[tuple[int, int, int]] = []  #: of a block: the step that released it, a place, its number
        for number, life in enumerate(program.lifetimes()):
            it, free = life.allocate, life.free
            allocated = TraceEvent(number, it.tensor.nbytes, it.stays, it.tensor.name, it.tensor.kind, it.step)
            self._same.append(((it.step, 1, life.begin), allocated))
            if free is not None and free.released < free.step <= self._backward:  # its bytes waited for a copy
                self._drained.append((free.released, life.end, number))
                copies = [one for one in map(program.instructions.__getitem__, life.uses) if isinstance(one, CopyOut)]
                self.known &= all(copy.step == free.released for copy in copies)
            elif free is not None:
                self._same.append(((free.step, 1, life.end), TraceEvent(number, 0, step=free.step)))
        self._same.sort()

    def step(self, event: TraceEvent) -> Step:
        """The step of an event; the first one, of a resident tensor."""
        return self._program.network.steps[max(event.step, 1) - 1]

    def __getitem__(self, lag: int | None) -> Trace:
        if lag is None:
            return trace_of(self._program)
        frees: list[tuple[Place, TraceEvent]] = []
        for released, end, number in self._drained:
            step = min(released + lag + 1, self._backward)
            frees.append(((step, 0, end), TraceEvent(number, 0, step=step)))
        return [*self._resident, *(event for _, event in sorted(self._same + sorted(frees)))]
