"""vDNN++'s policies (§2): the static ones, and the dynamic one, which takes the first candidate that fits.

`vdnnpp-dyn`: a candidate passes if a whole iteration fits the budget; no time is measured.  The first that
passes, in this order:

1. all, with no workspace anywhere.  Does not pass: the network is untrainable within this budget;
2. none, conv, all, each with the fastest algorithms;
3. conv, then all, with the fastest algorithms that fit what is free;
4. conv, then all, with no workspace.
"""

from __future__ import annotations

from refimpl.memory import Allocator
from refimpl.planner import Search, Setup, slots
from refimpl.planner.baseline import (
    BufferAMap,
    FastestThatFits,
    LayerWise,
    MemoryOptimal,
    NoOffload,
    NoPrefetch,
    PerformanceOptimal,
)
from refimpl.vdnnpp.compression import Compressed
from refimpl.vdnnpp.offload import ALL, ALTERNATE_CONV, CONV
from refimpl.vdnnpp.pool_search import FoundPool
from refimpl.vdnnpp.prefetch import WINDOW

LEAST, FASTEST, FITTING, COMPRESSED = MemoryOptimal(), PerformanceOptimal(), FastestThatFits(), Compressed()


def static(
    name: str,
    offload: slots.Offload,
    algorithms: slots.Algorithms | None = None,
    pinned: slots.Pinned | None = None,
    allocator: Allocator | None = None,
) -> Setup:
    """One memory stream, no join, a barrier between forward and backward; right placement in the pool that is found."""
    prefetch = NoPrefetch() if isinstance(offload, NoOffload) else WINDOW
    return Setup(
        name, offload=offload, liveness=LayerWise(), prefetch=prefetch, algorithms=algorithms or LEAST,
        allocator=allocator or FoundPool(), pinned=pinned or BufferAMap(), copy_streams="shared", barrier=True,
    )  # fmt: skip


VDNNPP_ALL = static("vdnnpp-all", ALL, LEAST, COMPRESSED)
VDNNPP_CONV = static("vdnnpp-conv", CONV, LEAST, COMPRESSED)
VDNNPP_ALTERNATE_CONV = static("vdnnpp-alternate-conv", ALTERNATE_CONV, LEAST, COMPRESSED)
VDNNPP_DYN = Search.over(
    "vdnnpp-dyn",
    static("all (least)", ALL, LEAST, COMPRESSED),
    static("none (fastest)", NoOffload(), FASTEST, COMPRESSED),
    static("conv (fastest)", CONV, FASTEST, COMPRESSED),
    static("all (fastest)", ALL, FASTEST, COMPRESSED),
    static("conv (fitting)", CONV, FITTING, COMPRESSED),
    static("all (fitting)", ALL, FITTING, COMPRESSED),
    static("conv (least)", CONV, LEAST, COMPRESSED),
    static("all (least)", ALL, LEAST, COMPRESSED),
    instead="take vdnnpp-all or vdnnpp-conv",
)
