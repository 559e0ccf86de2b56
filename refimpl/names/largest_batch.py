"""The largest network that fits: by its images, or by its layers.

Only a plan tells whether a network fits, and fitting is not monotone: how blocks and holes fall may let a larger batch
in where a smaller one fails.  So what is found is the largest that was tried, and one more was tried and failed.

A tensor of more elements than a kernel can index is a limit, too: a language model's logits reach it first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from refimpl.machine import Machine
from refimpl.memory import UNLIMITED
from refimpl.network import Network
from refimpl.planner.planning import plan
from refimpl.planner.program import Program
from refimpl.slots.errors import DoesNotFit, PinnedDoesNotFit
from refimpl.slots.setup import BASELINE, Setup

FIRST_STEP = 64  #: of a descent: one 64th of the way


@dataclass(frozen=True, eq=False)
class Largest:
    size: int  #: images or whatever was counted; 0 where not even 1 fits
    program: Program | None  #: of that size
    tried: dict[int, bool]  #: size → whether it fits, in the order in which they were planned
    no_kernel: str | None = None  #: why no kernel can run the next size; None: memory alone is the limit


@lru_cache(maxsize=2)
def unlimited(network: Network, setup: Setup, machine: Machine) -> Program:
    """The program with unlimited memory.  The last ones are kept: one question needs them often."""
    return plan(network, setup, machine, UNLIMITED)


def unlimited_baseline(network: Network, machine: Machine) -> Program:
    """The baseline as if memory had no end: what slow-downs are measured against."""
    return unlimited(network, BASELINE, machine)


def attempt(network: Network, setup: Setup, machine: Machine, budget: int) -> Program | None:
    """The program, or None if it does not fit."""
    try:
        return plan(network, setup, machine, budget)
    except DoesNotFit:
        return None


def least_conceivable(network: Network, setup: Setup | None = None) -> int:
    """Bytes that no setup can do without: what is resident, and the most that one step uses at a time.

    The steps are those that `setup` plans; without one, the network's.
    """
    network = setup.cut(network) if setup else network
    return network.resident_bytes + max(sum(t.nbytes for t in step.uses if t.managed) for step in network.steps)


def largest(
    network_of: Callable[[int], Network],
    setup: Setup,
    machine: Machine,
    budget: int,
    watch: Callable[[int], None] = lambda size: None,
) -> Largest:
    """The largest `network_of(size)` tried that fits `budget` bytes, sizes from 1; `watch` is called with each.

    How the bytes of an unlimited plan grow from size 1 to size 2 says where to begin: where nothing is evicted, the
    answer is there or a little below.  Elsewhere it is at most where one step alone asks too much, and mostly near.
    """
    from kernels.checks.arguments import KernelError

    setup = setup.frugal
    ends = [network_of(1), network_of(2)]
    best, too_large = 0, 1 + reach([least_conceivable(network, setup) for network in ends], budget)
    program: Program | None = None
    tried: dict[int, bool] = {}
    no_kernel: dict[int, KernelError] = {}

    def fits(size: int) -> bool:
        nonlocal best, program, too_large
        watch(size)
        found = None
        try:
            found = attempt(network_of(size), setup, machine, budget)
        except KernelError as error:
            no_kernel[size] = error
        tried[size] = found is not None
        if found is None:
            too_large = size
        else:
            best, program = size, found
        return tried[size]

    def descend(size: int, step: int) -> None:
        """Down from a size by longer and longer steps, until one fits."""
        while size > best and not fits(size):
            size, step = size - step, 2 * step

    def unlimited_peak(network: Network) -> int:
        """Bytes; the budget's where pinned memory is too small for even this network, or no kernel can run it."""
        try:
            return plan(network, setup, machine, UNLIMITED).peak_bytes
        except (PinnedDoesNotFit, KernelError):
            return budget

    guess = min(reach([unlimited_peak(network) for network in ends], budget), too_large - 1)
    descend(guess, max(1, guess // FIRST_STEP))
    if best + 1 < too_large and fits(best + 1):
        descend(too_large - 1, max(1, (too_large - best) // FIRST_STEP))
    while too_large - best > 1:
        fits((best + too_large) // 2)
    limit = no_kernel.get(best + 1)
    if limit and not best:
        raise limit
    return Largest(best, program, tried, str(limit) if limit else None)


def reach(nbytes: Sequence[int], budget: int) -> int:
    """The last size within `budget`, if sizes 1 and 2 take `nbytes` and all others grow by the same step.

    Every tensor's bytes do, so that of several sums the greatest grows by no shorter step later on: what one step asks
    for is never less than this makes it out to be.
    """
    one, two = nbytes
    return 0 if one > budget else 1 + (budget - one) // max(1, two - one)
