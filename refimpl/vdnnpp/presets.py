"""vDNN++'s setups: no join at a layer's end (§1), the static policies and the dynamic one (§2).

In vDNN a layer ends when its kernels *and* its copies have ended, so that its input can be freed at once: where a copy
takes longer, the GPU waits.  In vDNN++ the next layer starts as soon as the kernels are done, and a map's bytes serve
another one when both its last reader and its copy are done.  The only back-pressure is memory: an allocation that does
not fit otherwise waits for the oldest copy.  Between forward and backward all copies out are done.

The executor and the planner release every tensor in these two phases, and wait only where the bytes need it.  So to
have no join takes no module: it is a constant of the setup, as is the barrier (`static`).  `with_join` and
`without_join` are what a join does to a chain of layers.

`vdnnpp-vdnn-all` offloads the maps that vDNN-all does (R).  On the authors' chains that is `vdnnpp-all`; on networks
with forks it moves less.

`vdnnpp-dyn`: a candidate passes if a whole iteration fits the budget; no time is measured.  The first that
passes, in this order:

1. all, with no workspace anywhere.  Does not pass: the network is untrainable within this budget;
2. none, conv, all, each with the fastest algorithms;
3. conv, then all, with the fastest algorithms that fit what is free;
4. conv, then all, with no workspace.
"""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.memory import Allocator
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import FastestThatFits, MemoryOptimal, PerformanceOptimal
from refimpl.slots.baseline import BufferAMap, LayerWise, NoOffload, NoPrefetch
from refimpl.slots.search import Search
from refimpl.slots.setup import Setup
from refimpl.vdnnpp.compression import Compressed
from refimpl.vdnnpp.offload import ALL, ALTERNATE_CONV, CONV, VDNN_ALL
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
    """One memory stream, no join, a barrier between forward and backward, and the pool that the search finds."""
    prefetch = NoPrefetch() if isinstance(offload, NoOffload) else WINDOW
    return Setup(
        name, offload=offload, liveness=LayerWise(), prefetch=prefetch, algorithms=algorithms or LEAST,
        allocator=allocator or FoundPool(), pinned=pinned or BufferAMap(), copy_streams="shared", barrier=True,
    )  # fmt: skip


VDNNPP_ALL = static("vdnnpp-all", ALL, LEAST, COMPRESSED)
VDNNPP_VDNN_ALL = static("vdnnpp-vdnn-all", VDNN_ALL, LEAST, COMPRESSED)
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


# -- what a join costs -------------------------------------------------------------------------------------------------


def with_join(compute: Sequence[float], copies: Sequence[float]) -> float:
    """Seconds of vDNN's forward: every layer takes as long as its kernels or its copy, whichever is longer."""
    return sum(map(max, compute, copies))


def without_join(compute: Sequence[float], copies: Sequence[float]) -> float:
    """Seconds of vDNN++'s forward with memory enough: a copy starts when its layer does and the copy before is done."""
    computed = copied = 0.0
    for seconds, copy in zip(compute, copies, strict=True):
        copied = max(copied, computed) + copy
        computed += seconds
    return max(computed, copied)
