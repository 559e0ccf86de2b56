"""SuperNeurons' techniques, one on top of another: the set-ups of the paper's memory curve, and all of it together.

| stage | what it adds |
| --- | --- |
| liveness | tensors go behind their last use |
| offload | what CONV and FC put out leaves, and is back three steps ahead |
| recompute | instead: cheap maps are dropped and rebuilt, the checkpoints' outputs stay |
| everything | cost-aware recomputation; the tensor cache moves a map only when the device is full; dynamic workspaces |

The first three take the convolutions with the least workspace unless told otherwise, so that no workspace enters their
figures.
"""

from __future__ import annotations

import dataclasses

from refimpl.memory import BlockHeap
from refimpl.planner import Setup, slots
from refimpl.planner.baseline import BufferAMap, MemoryOptimal, NoCache, NoOffload, NoPrefetch, NoRecompute
from refimpl.superneurons.cache import LeastRecentlyUsed
from refimpl.superneurons.liveness import Analysis
from refimpl.superneurons.offload import CHECKPOINTS, DISTANCE, Ahead
from refimpl.superneurons.recompute import COST_AWARE, Recompute
from refimpl.superneurons.workspace import DynamicWorkspace


def liveness(algorithms: slots.Algorithms | None = None) -> Setup:
    """The analysis and the heap, nothing else."""
    return Setup(
        name="superneurons-liveness",
        recompute=NoRecompute(),
        offload=NoOffload(),
        liveness=Analysis(),
        prefetch=NoPrefetch(),
        cache=NoCache(),
        algorithms=algorithms or MemoryOptimal(),
        allocator=BlockHeap(),
        pinned=BufferAMap(),
        copy_streams="separate",
        join=False,
    )


def offload(algorithms: slots.Algorithms | None = None, distance: int = DISTANCE) -> Setup:
    """Liveness, and checkpoints leave; both modules are told how many steps ahead a map is to be back."""
    return liveness(algorithms).replace(
        name="superneurons-offload",
        offload=dataclasses.replace(CHECKPOINTS, distance=distance),
        prefetch=Ahead(distance),
    )


def recompute(how: Recompute = COST_AWARE, algorithms: slots.Algorithms | None = None) -> Setup:
    """Liveness and recomputation; nothing moves."""
    return liveness(algorithms).replace(name="superneurons-recompute", recompute=how)


def everything(how: Recompute = COST_AWARE, algorithms: slots.Algorithms | None = None) -> Setup:
    """All of it.  What the cache pushes out comes back as what an offload takes away does, three steps ahead."""
    return liveness(algorithms or DynamicWorkspace()).replace(
        name="superneurons", recompute=how, prefetch=Ahead(), cache=LeastRecentlyUsed()
    )
