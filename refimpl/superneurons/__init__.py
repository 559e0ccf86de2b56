"""SuperNeurons: dynamic GPU memory management, Wang et al., PPoPP 2018 (arXiv 1801.04380).

| module | the paper |
| --- | --- |
| `liveness` | after which step a tensor is freed: §3.2 |
| `unified_pool` | the heap of 1 KB blocks that replaces cudaMalloc and cudaFree; where offloaded maps go: §3.3.1 |
| `offload` | the outputs of checkpoints are offloaded: §3.3.1 |
| `prefetch` | they are prefetched some steps ahead: §3.3.1 |
| `cache` | tensors move only when the device is full, the least recently used first: §3.3.2 |
| `segments` | which maps are dropped, and which of three strategies rebuilds them: §3.4 |
| `recompute` | the chain of forward steps that rebuilds a dropped map: §3.4 |
| `presets` | these one on top of another, as in the paper's memory curve; dynamic workspaces: §3.5 |

The modules work beside the other papers'.  Alone work the heap, the analysis, the cache, the workspaces and the unified
pool: an offload and a recomputation need a liveness that releases maps, and a prefetch needs maps that leave.
"""

from refimpl.memory import DriverCalls
from refimpl.superneurons.cache import LeastRecentlyUsed
from refimpl.superneurons.liveness import Analysis, EachUse, last_uses, out_sets
from refimpl.superneurons.offload import ALL_CHECKPOINTS, CHECKPOINTS, CONVOLUTIONS, OffloadOutputs
from refimpl.superneurons.prefetch import Ahead
from refimpl.superneurons.presets import DynamicWorkspace
from refimpl.superneurons.recompute import COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC, BoundSegments, RecomputeSegments
from refimpl.superneurons.segments import Segment, Segmentation, nbytes
from refimpl.superneurons.unified_pool import Heap, UnifiedTensorPool

__all__ = [
    "ALL_CHECKPOINTS", "CHECKPOINTS", "CONVOLUTIONS", "COST_AWARE", "MEMORY_CENTRIC", "SPEED_CENTRIC", "Ahead",
    "Analysis", "BoundSegments", "DriverCalls", "DynamicWorkspace", "EachUse", "Heap", "LeastRecentlyUsed",
    "OffloadOutputs", "RecomputeSegments", "Segment", "Segmentation", "UnifiedTensorPool", "last_uses", "nbytes",
    "out_sets", "presets",
]  # fmt: skip
