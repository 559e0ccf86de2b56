"""SuperNeurons' techniques, one on top of another: the set-ups of the paper's memory curve, and all of it together.

| stage | what it adds |
| --- | --- |
| liveness | tensors go behind their last use |
| offload | what CONV and FC put out leaves, and is back three steps ahead |
| recompute | instead: cheap maps are dropped and rebuilt, the checkpoints' outputs stay |
| all | cost-aware recomputation; the tensor cache moves a map only when the device is full; dynamic workspaces |
"""

from __future__ import annotations

from typing import Any

from refimpl.planner import Setup
from refimpl.planner.baseline import BufferAMap, MemoryOptimal, NoCache, NoOffload, NoPrefetch, NoRecompute
from refimpl.superneurons.cache import LeastRecentlyUsed
from refimpl.superneurons.liveness import Analysis
from refimpl.superneurons.offload import CHECKPOINTS, Ahead
from refimpl.superneurons.pool import Heap
from refimpl.superneurons.recompute import COST_AWARE, Recompute
from refimpl.superneurons.workspace import DynamicWorkspace


def liveness(algorithms: Any = None) -> Setup:
    return Setup(
        name="superneurons-liveness",
        recompute=NoRecompute(),
        offload=NoOffload(),
        liveness=Analysis(),
        prefetch=NoPrefetch(),
        cache=NoCache(),
        algorithms=algorithms or MemoryOptimal(),
        allocator=Heap(),
        pinned=BufferAMap(),
        copy_streams="separate",
        join=False,
    )


def offload(algorithms: Any = None) -> Setup:
    return liveness(algorithms).replace(name="superneurons-offload", offload=CHECKPOINTS, prefetch=Ahead())


def recompute(how: Recompute = COST_AWARE, algorithms: Any = None) -> Setup:
    return liveness(algorithms).replace(name="superneurons-recompute", recompute=how)


def everything(how: Recompute = COST_AWARE, algorithms: Any = None) -> Setup:
    return liveness(algorithms or DynamicWorkspace()).replace(
        name="superneurons", recompute=how, prefetch=Ahead(), cache=LeastRecentlyUsed()
    )
