"""A policy that plans its candidates in a fixed order and adopts the first that fits the budget.

First of all the most frugal one is planned: where even that does not fit, the network cannot be trained so.  Where no
candidate fits, it is what is adopted.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from refimpl.machine import Machine
from refimpl.network import Network
from refimpl.planner.baseline import NoOffload
from refimpl.planner.errors import DoesNotFit
from refimpl.planner.loop import plan
from refimpl.planner.program import Program
from refimpl.planner.search import Trial
from refimpl.planner.setup import SLOTS, Setup, SetupError


@dataclass(frozen=True)
class FirstThatFits:
    """A policy is a subclass that names its candidates.

    `others` are modules, by slot, for what it does not search: the allocator, the prefetch, …
    """

    name: ClassVar[str]
    FEASIBLE: ClassVar[Setup]  #: the most frugal one
    CANDIDATES: ClassVar[tuple[Setup, ...]]  #: in the order in which they are tried
    INSTEAD: ClassVar[str]  #: what to do for a choice of one's own, as in "take vdnn-all or vdnn-conv"
    SEARCHED: ClassVar[tuple[str, ...]] = ("offload", "algorithms")
    others: tuple[tuple[str, Any], ...] = ()

    def plan(self, network: Network, machine: Machine, budget: int) -> Program:
        tried: list[Trial] = []
        try:
            feasible = self._try(self.FEASIBLE, network, machine, budget, tried)
        except DoesNotFit as error:
            error.who = f"{network.name} is untrainable by {self.name}: even {self.FEASIBLE.name}"
            raise
        for candidate in self.CANDIDATES:
            try:
                program = self._try(candidate, network, machine, budget, tried)
            except DoesNotFit:
                continue
            return dataclasses.replace(program, tried=tuple(tried))
        return dataclasses.replace(feasible, tried=tuple(tried))

    def _try(self, candidate: Setup, network: Network, machine: Machine, budget: int, tried: list[Trial]) -> Program:
        """Plan a candidate, and note down what came of it."""
        try:
            program = plan(network, self._setup(candidate), machine, budget)
        except DoesNotFit as error:
            where = f"{error.step or 'the resident tensors'}: {error.missing} missing"
            tried.append(Trial(candidate.name, False, failure=where))
            raise
        tried.append(Trial(candidate.name, True, program.peak_bytes, program.planned_seconds))
        return program

    def _setup(self, candidate: Setup) -> Setup:
        others = dict(self.others)
        if isinstance(candidate.offload, NoOffload):
            others.pop("prefetch", None)  # nothing comes back
        return candidate.replace(name=f"{self.name}: {candidate.name}", **others)

    @property
    def frugal(self) -> Setup:
        return self._setup(self.FEASIBLE)

    # -- as a setup ----------------------------------------------------------------------------------------------------

    def replace(self, **modules: Any) -> FirstThatFits:
        for slot in modules:
            if slot in self.SEARCHED:
                chosen = " and ".join(self.SEARCHED)
                raise SetupError(f"{self.name} chooses {chosen} itself; {self.INSTEAD}")
        self._setup(self.FEASIBLE.replace(**modules))  # refused here, if it makes no sense
        return type(self)(tuple({**dict(self.others), **modules}.items()))

    def module(self, slot: str) -> Any:
        return None if slot in self.SEARCHED else self._setup(self.FEASIBLE).module(slot)

    @property
    def slots(self) -> dict[str, str]:
        return {slot: "searched" if slot in self.SEARCHED else self.module(slot).name for slot in SLOTS}
