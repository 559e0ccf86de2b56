"""Planning a setup: the loop goes over the network once, and again where a pass has shown how to do better.

    settled            an eviction undid a prefetch before a step read the map: again without that prefetch
    with_lags          bytes drained for too long: again, handed back after 4, 2 or 0 steps at most
    in_pool            the allocator searches for its pool's layout: it asks for as many passes as it wants
    in_largest_pool    there are bytes enough, but no hole: again in smaller pools (`refimpl.planner.pools`)

Each calls the one above it.  A search (`Setup.search`) calls the last one, once a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from kernels.targets.collector import collector_paused
from refimpl.machine import Machine
from refimpl.memory import Allocator
from refimpl.network import Network
from refimpl.planner.limits import PassLimits
from refimpl.planner.loop import Planner
from refimpl.planner.pools import largest_smaller
from refimpl.planner.program import Program
from refimpl.slots.context import Context
from refimpl.slots.errors import DoesNotFit, NotTheFastest, TooSlow
from refimpl.slots.planner_only import PoolSearch
from refimpl.slots.search import Search
from refimpl.slots.setup import Setup

#: The most steps that a released block drains, in the order in which they are tried; None: as long as there is room.
LAGS = (None, 4, 2, 0)


def plan(
    network: Network, setup: Setup, machine: Machine, budget: int, give_up: float = inf, exact: bool = False
) -> Program:
    """The program of one iteration.

    Args:
        network: what is trained.
        setup: a module in every slot, or a search.
        machine: whose times and sizes count.
        budget: bytes of device memory.
        give_up: seconds; a plan that is sure to take longer is not finished.  A search does not stop for it.
        exact: whether only a pool of the budget's size will do.

    Raises:
        DoesNotFit: says where and why.
        TooSlow: the iteration takes longer than `give_up`.
    """
    if not isinstance(setup, Search):
        return Planning(network, setup, machine, budget, give_up, LAGS).in_largest_pool(smaller=not exact)

    def candidate(
        one: Setup, give_up: float = inf, smaller: bool = setup.smaller_pools, patient: bool = True
    ) -> Program:
        lags = LAGS[: 1 + adapts(one)]
        return Planning(network, one, machine, budget, give_up, lags, patient).in_largest_pool(smaller)

    return setup.search(candidate, Context(network, machine, budget))


def adapts(setup: Setup) -> bool:
    """Whether the algorithms follow from the largest hole, so that draining bytes cost speed."""
    return setup.algorithms.adapts and not setup.algorithms.counts_drained


@dataclass(frozen=True)
class Planning:
    """One setup within one budget."""

    network: Network
    setup: Setup
    machine: Machine
    budget: int
    give_up: float = inf  #: seconds
    lags: tuple[int | None, ...] = (None,)
    patient: bool = True  #: whether a pass that was too slow is settled too: futile prefetches may have made it slow

    def in_largest_pool(self, smaller: bool) -> Program:
        """In a pool of the budget's size; where holes are in the way, and if `smaller`, in the largest that fits."""
        if "offload" not in self.setup.offload.offers:
            self = replace(self, lags=self.lags[:1])
        try:
            return self.in_pool(self.budget)
        except DoesNotFit as error:
            if not smaller or not error.for_holes:
                raise
            found = largest_smaller(replace(self, lags=self.lags[-1:]).in_pool, self.budget)
            if found is None:
                raise
        pool, program = found
        return replace(self.in_pool(pool) if len(self.lags) > 1 else program, budget=self.budget)

    def in_pool(self, nbytes: int) -> Program:
        allocator = self.setup.allocator
        if isinstance(allocator, PoolSearch):
            found: Program = allocator.search(self.within, nbytes, self.setup.fixed_order)
            return found
        return self.within(nbytes)

    def within(self, nbytes: int, lag: int | None = None, allocator: Allocator | None = None) -> Program:
        """One layout of a pool of `nbytes`; with a `lag`, no other is tried."""
        changed = self if allocator is None else replace(self, setup=replace(self.setup, allocator=allocator))
        with collector_paused():
            return (changed if lag is None else replace(changed, lags=(lag,))).with_lags(nbytes)

    def with_lags(self, nbytes: int) -> Program:
        """The plan whose blocks drain the longest; for few steps where a call would lack its fastest algorithm."""
        misfits: list[Exception] = []
        for lag in self.lags:
            fastest = adapts(self.setup) and lag is None and len(self.lags) > 1
            planner = self.planner(nbytes, PassLimits(lag, fastest, self.give_up))
            try:
                return self.settled(planner, nbytes)
            except NotTheFastest:
                continue
            except TooSlow:
                if not fastest:
                    raise
            except DoesNotFit as error:
                misfits = [freed(error)]
                if not planner.memory.drains:
                    break
        raise misfits.pop()

    def settled(self, planner: Planner, nbytes: int) -> Program:
        """The program without prefetches that an eviction undoes before a step reads the map."""
        program: Program | None = None
        failures: list[Exception] = []
        while True:
            try:
                program = planner.plan()
            except (DoesNotFit, NotTheFastest, TooSlow) as error:
                if program is not None:
                    return program
                failures.append(freed(error))
                if not isinstance(error, TooSlow) or not self.patient:
                    break
            limits, undone = planner.limits, planner.mover.undone
            if undone <= limits.futile:
                if program is not None:
                    return program
                break
            planner = self.planner(nbytes, replace(limits, futile=limits.futile | undone))
        raise failures.pop(0)

    def planner(self, nbytes: int, limits: PassLimits) -> Planner:
        return Planner(self.network, self.setup, self.machine, nbytes, limits)


def freed(error: Exception) -> Exception:
    """The error without its traceback, whose frames hold what was planned.

    Who keeps one keeps it in a list and raises it out of there: a frame that holds the error it raises is a cycle, and
    the garbage collector is paused.
    """
    return error.with_traceback(None)
