"""vDNN's policies (§3.3): the static ones, and the dynamic one that tries them in a fixed order.

`vdnn-dyn`, a candidate passing if a whole iteration fits the budget:

1. all, with the least workspace everywhere.  Does not pass: the network is untrainable within this budget;
2. no offload, conv, all, each with the fastest algorithms: the first that passes is adopted;
3. conv, then all, with the greedy choice of algorithms: the first that passes is adopted;
4. else what passed in 1.

No mixed sets of maps are searched, and nothing is upgraded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from refimpl.memory import BestFit
from refimpl.planner import Setup
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
from refimpl.planner.first_that_fits import FirstThatFits
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
class Dynamic(FirstThatFits):
    """vDNN-dyn.  `others` are modules, by slot, for what it does not search: the allocator, the prefetch, …"""

    name: ClassVar[str] = "vdnn-dyn"
    FEASIBLE: ClassVar[Setup] = FEASIBLE
    CANDIDATES: ClassVar[tuple[Setup, ...]] = CANDIDATES
    INSTEAD: ClassVar[str] = "take vdnn-all or vdnn-conv"
