"""Planning a setup: one pass of the loop, unless the setup searches among others, or its allocator for a pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

from kernels.targets.collector import collector_paused
from refimpl.machine import Machine
from refimpl.machine.seconds import fastest_rest
from refimpl.memory import Allocator
from refimpl.network import Network, Step
from refimpl.planner.device_memory import DeviceMemory, Memory
from refimpl.planner.instructions import COMPUTE
from refimpl.planner.loop import Planner
from refimpl.planner.program import Program
from refimpl.slots.context import Context
from refimpl.slots.planner_only import PoolSearch
from refimpl.slots.search import Search
from refimpl.slots.setup import Setup
from refimpl.text import duration


def plan(network: Network, setup: Setup, machine: Machine, budget: int, give_up: float = inf) -> Program:
    """The program of one iteration.

    Args:
        network: what is trained.
        setup: a module in every slot, or a search.
        machine: whose times and sizes count.
        budget: bytes of device memory.
        give_up: seconds; a plan that is sure to take longer is not finished.  A search does not stop for it.

    Raises:
        DoesNotFit: says where and why.
        TooSlow: the iteration takes longer than `give_up`.
    """
    if isinstance(setup, Search):

        def candidate(one: Setup, give_up: float = inf) -> Program:
            return plan(network, one, machine, budget, give_up)

        return program_of(setup, setup.search(candidate, Context(setup.cut(network), machine, budget)), budget)

    def within(
        nbytes: int, lag: int | None = None, allocator: Allocator = setup.allocator, memory: Memory = DeviceMemory
    ) -> Program:
        with collector_paused():
            one = replace(setup, allocator=allocator)
            planner = Hurried(network, one, machine, nbytes, partial(memory, lag=lag))
            planner.give_up = give_up
            return planner.plan()

    if isinstance(setup.allocator, PoolSearch):
        return program_of(setup.allocator, setup.allocator.search(within, budget, setup.fixed_order), budget)
    return within(budget)


def program_of(search: Any, found: Any, budget: int) -> Program:
    """What a search has found, which must be a program within the budget; `search`: its setup or allocator."""
    if isinstance(found, Program) and found.arena_bytes <= budget:
        return found
    from refimpl.slots.answers import not_within

    raise not_within(search.name, found, budget)


@dataclass(eq=False)
class TooSlow(Exception):
    """The iteration is sure to take longer than the seconds after which its plan was to be given up."""

    step: Step
    give_up: float

    def __str__(self) -> str:
        return f"{self.step} begins too late for an iteration of {duration(self.give_up)}"


class Hurried(Planner):
    """A planner that gives up before a step from which the iteration is sure to take over `give_up` seconds."""

    give_up = inf

    def steps(self) -> Iterator[Step]:
        for step, fastest in zip(self.network.steps, fastest_rest(self.network, self.machine), strict=True):
            if self.order.clock.now[COMPUTE] + fastest > self.give_up:
                raise TooSlow(step, self.give_up)
            yield step
