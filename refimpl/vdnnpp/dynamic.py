"""vDNN++'s dynamic policy (§2): which maps leave and how fast the convolutions may be, by what fits and nothing else.

A candidate passes if a whole iteration fits the budget; no time is measured.  In this order, the first that passes:

1. all, with no workspace anywhere.  Does not pass: the network is untrainable within this budget;
2. none, conv, all, each with the fastest algorithms;
3. conv, then all, with the fastest algorithms that fit what is free;
4. conv, then all, with no workspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.planner import Setup
from refimpl.planner.baseline import FastestThatFits, MemoryOptimal, NoOffload, PerformanceOptimal
from refimpl.planner.first_that_fits import FirstThatFits
from refimpl.vdnnpp.offload import ALL, CONV
from refimpl.vdnnpp.pinned import Compressed
from refimpl.vdnnpp.release import static

LEAST, FASTEST, FITTING, COMPRESSED = MemoryOptimal(), PerformanceOptimal(), FastestThatFits(), Compressed()

FEASIBLE = static("all (least)", ALL, LEAST, COMPRESSED)
CANDIDATES = (
    static("none (fastest)", NoOffload(), FASTEST, COMPRESSED),
    static("conv (fastest)", CONV, FASTEST, COMPRESSED),
    static("all (fastest)", ALL, FASTEST, COMPRESSED),
    static("conv (fitting)", CONV, FITTING, COMPRESSED),
    static("all (fitting)", ALL, FITTING, COMPRESSED),
    static("conv (least)", CONV, LEAST, COMPRESSED),
    FEASIBLE,
)


@dataclass(frozen=True)
class Dynamic(FirstThatFits):
    """vDNN++-dyn.  `others` are modules, by slot, for what it does not search: the allocator, the prefetch, …"""

    name: ClassVar[str] = "vdnnpp-dyn"
    FEASIBLE: ClassVar[Setup] = FEASIBLE
    CANDIDATES: ClassVar[tuple[Setup, ...]] = CANDIDATES
    INSTEAD: ClassVar[str] = "take vdnnpp-all or vdnnpp-conv"
