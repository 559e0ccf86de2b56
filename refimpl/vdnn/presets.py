"""vDNN's policies (§3.3): the static ones, and the dynamic one that tries them in a fixed order.

`vdnn-dyn`; a candidate passes if a whole iteration fits the budget:

1. all, with the least workspace everywhere.  Does not pass: the network is untrainable within this budget;
2. no offload, conv, all, each with the fastest algorithms: the first that passes is adopted;
3. conv, then all, with the greedy choice of algorithms: the first that passes is adopted;
4. else the setup of 1.

No mixed sets of maps are searched, and the adopted setup is not improved any further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.slots import questions as slots
from refimpl.slots.algorithms import FastestThatFits, MemoryOptimal, PerformanceOptimal
from refimpl.slots.baseline import LayerWise, NoOffload, NoPrefetch
from refimpl.slots.search import Search
from refimpl.slots.setup import Setup
from refimpl.vdnn.offload import ALL, CONV, WINDOW


@dataclass(frozen=True)
class Greedy(FastestThatFits):
    """The fastest algorithm; where that would overflow at this point, this call alone steps down until one fits.

    That ends at the fastest that fits, as SuperNeurons' dynamic workspaces and vDNN++'s dynamic policy do.
    """

    name: ClassVar[str] = "vdnn-greedy"
    summary: ClassVar[str] = "the fastest; where that would overflow, the next one with less workspace"


MEMORY, PERFORMANCE, GREEDY = MemoryOptimal(), PerformanceOptimal(), Greedy()


def static(name: str, offload: slots.Offload, algorithms: slots.Algorithms = MEMORY) -> Setup:
    """One memory stream, all streams joined at the end of a layer that moved something, cnmem's pool (best fit)."""
    prefetch = NoPrefetch() if isinstance(offload, NoOffload) else WINDOW
    return Setup(
        name, offload=offload, liveness=LayerWise(), prefetch=prefetch, algorithms=algorithms,
        copy_streams="shared", join=True,
    )  # fmt: skip


VDNN_ALL = static("vdnn-all", ALL)
VDNN_CONV = static("vdnn-conv", CONV)
#: The candidates, in the paper's order and under its names: (m) least workspace, (p) fastest.
VDNN_DYN = Search.over(
    "vdnn-dyn",
    static("all (m)", ALL),
    static("none (p)", NoOffload(), PERFORMANCE),
    static("conv (p)", CONV, PERFORMANCE),
    static("all (p)", ALL, PERFORMANCE),
    static("conv (greedy)", CONV, GREEDY),
    static("all (greedy)", ALL, GREEDY),
    instead="take vdnn-all or vdnn-conv",
)
