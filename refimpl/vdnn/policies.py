"""vDNN's policies (§3.3): the static ones, and the dynamic one that tries them in a fixed order.

`vdnn-dyn`, a candidate passing if a whole iteration fits the budget:

1. all, with the least workspace everywhere.  Does not pass: the network is untrainable within this budget;
2. no offload, conv, all, each with the fastest algorithms: the first that passes is adopted;
3. conv, then all, with the greedy choice of algorithms: the first that passes is adopted;
4. else what passed in 1.

No mixed sets of maps are searched, and nothing is upgraded again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from refimpl.machine import Machine
from refimpl.memory import BestFit
from refimpl.network import Network
from refimpl.planner import SLOTS, DoesNotFit, Program, Setup, SetupError, Trial, plan
from refimpl.planner.baseline import (
    BufferAMap,
    LayerWise,
    MemoryOptimal,
    NoCache,
    NoOffload,
    NoPrefetch,
    NoRecompute,
    PerformanceOptimal,
)  # fmt: skip
from refimpl.vdnn.algorithms import Greedy
from refimpl.vdnn.offload import ALL, CONV, OffloadInputs
from refimpl.vdnn.prefetch import WINDOW

MEMORY, PERFORMANCE, GREEDY = MemoryOptimal(), PerformanceOptimal(), Greedy()


def static(name: str, offload: OffloadInputs | NoOffload, algorithms: Any = MEMORY) -> Setup:
    """One memory stream, all streams joined at the end of a layer that moved something, cnmem's pool."""
    return Setup(
        name=name,
        recompute=NoRecompute(),
        offload=offload,
        liveness=LayerWise(),
        prefetch=NoPrefetch() if isinstance(offload, NoOffload) else WINDOW,
        cache=NoCache(),
        algorithms=algorithms,
        allocator=BestFit(),
        pinned=BufferAMap(),
        copy_streams="shared",
        join=True,
    )


#: The candidates, in the paper's order and under its names: (m) least workspace, (p) fastest.
FEASIBLE = static("all (m)", ALL)
CANDIDATES = (
    static("none (p)", NoOffload(), PERFORMANCE),
    static("conv (p)", CONV, PERFORMANCE),
    static("all (p)", ALL, PERFORMANCE),
    static("conv (greedy)", CONV, GREEDY),
    static("all (greedy)", ALL, GREEDY),
)


@dataclass(frozen=True)
class Dynamic:
    """vDNN-dyn.  `others` are modules, by slot, for what it does not search: the allocator, the prefetch, …"""

    name: ClassVar[str] = "vdnn-dyn"
    SEARCHED: ClassVar[tuple[str, ...]] = ("offload", "algorithms")
    others: tuple[tuple[str, Any], ...] = ()

    def plan(self, network: Network, machine: Machine, budget: int) -> Program:
        tried: list[Trial] = []
        try:
            feasible = self._try(FEASIBLE, network, machine, budget, tried)
        except DoesNotFit as error:
            error.who = f"{network.name} is untrainable by {self.name}: even all (m)"
            raise
        for candidate in CANDIDATES:
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
        return self._setup(FEASIBLE)

    # -- as a setup ----------------------------------------------------------------------------------------------------

    def replace(self, **modules: Any) -> Dynamic:
        for slot in modules:
            if slot in self.SEARCHED:
                chosen = " and ".join(self.SEARCHED)
                raise SetupError(f"{self.name} chooses {chosen} itself; take vdnn-all or vdnn-conv")
        self._setup(FEASIBLE.replace(**modules))  # refused here, if it makes no sense
        return Dynamic(tuple({**dict(self.others), **modules}.items()))

    def module(self, slot: str) -> Any:
        return None if slot in self.SEARCHED else self._setup(FEASIBLE).module(slot)

    @property
    def slots(self) -> dict[str, str]:
        return {slot: "searched" if slot in self.SEARCHED else self.module(slot).name for slot in SLOTS}
