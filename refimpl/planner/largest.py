"""The largest network that fits: of as many images as will do, or of as many layers.

Only a plan tells whether a network fits, and fitting is not monotone: how blocks and holes fall may let a larger batch
in where a smaller one fails.  So what is found is the largest that was tried, and one more was tried and failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from refimpl.machine import Machine
from refimpl.network import Network
from refimpl.planner.errors import DoesNotFit
from refimpl.planner.loop import plan
from refimpl.planner.program import Program
from refimpl.planner.search import Search
from refimpl.planner.setup import Setup

PLENTY = 1 << 60  #: bytes


@dataclass(frozen=True, eq=False)
class Largest:
    size: int  #: images or whatever was counted; 0 where not even 1 fits
    program: Program | None  #: of that size
    tried: dict[int, bool]  #: size → whether it fits, in the order in which they were planned


def attempt(network: Network, setup: Setup | Search, machine: Machine, budget: int) -> Program | None:
    """The program, or None if it does not fit."""
    try:
        return plan(network, setup, machine, budget)
    except DoesNotFit:
        return None


def least_conceivable(network: Network) -> int:
    """Bytes that no setup can do without: what is resident, and the most that one step uses at a time."""
    return network.resident_bytes + max(sum(t.nbytes for t in step.uses if t.managed) for step in network.steps)


def largest(
    network_of: Callable[[int], Network],
    setup: Setup | Search,
    machine: Machine,
    budget: int,
    watch: Callable[[int], None] = lambda size: None,
) -> Largest:
    """The largest `network_of(size)` tried that fits `budget` bytes, sizes from 1; `watch` is told of every one tried.

    How the bytes of an unlimited plan grow from size 1 to size 2 says where to begin, which is the answer to within a
    few where nothing is evicted.  Elsewhere it is sought by halving, up to the size at which one step alone asks too
    much.
    """
    setup = setup if isinstance(setup, Setup) else setup.frugal
    best, program, tried = 0, None, dict[int, bool]()

    def fits(size: int) -> bool:
        nonlocal best, program
        watch(size)
        found = attempt(network_of(size), setup, machine, budget)
        tried[size] = found is not None
        if found is not None and size > best:
            best, program = size, found
        return tried[size]

    smallest, next_one = network_of(1), network_of(2)
    too_large = 1 + reach(least_conceivable(smallest), least_conceivable(next_one), budget)
    unlimited = (plan(network, setup, machine, PLENTY).peak_bytes for network in (smallest, next_one))
    size, step = min(reach(*unlimited, budget), too_large - 1), 1
    while size > 0 and not fits(size):
        too_large, size, step = size, size - step, 2 * step
    if best + 1 < too_large and not fits(best + 1):
        too_large = best + 1
    while too_large - best > 1:
        middle = (best + too_large) // 2
        if not fits(middle):
            too_large = middle
    return Largest(best, program, tried)


def reach(one: int, two: int, budget: int) -> int:
    """The size that takes `budget` bytes, if size 1 takes `one`, 2 takes `two`, and so on by equal steps.

    Every tensor's bytes grow by equal steps, and the most of several sums grows ever faster: what a step needs is never
    less than this makes it out to be.
    """
    return 0 if one > budget else 1 + (budget - one) // max(1, two - one)
