"""SuperNeurons' techniques, one on top of another: the setups of the paper's memory curve, and all of it together.

| stage | what it adds |
| --- | --- |
| liveness | tensors are freed after their last use |
| offload | the outputs of CONV and FC are offloaded, and prefetched three steps ahead |
| recompute | instead of offloading: cheap maps are dropped and rebuilt, checkpoints stay on the device |
| everything | cost-aware recomputation; the tensor cache moves a map only when the device is full; dynamic workspaces |

The first three use the convolution algorithms with the least workspace unless told otherwise, so that no workspace
enters the memory curve.  The preset `superneurons-offload` is the second one with dynamic workspaces, as the paper
trains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from refimpl.slots import questions as slots
from refimpl.slots.algorithms import FastestThatFits, MemoryOptimal
from refimpl.slots.setup import Setup
from refimpl.superneurons.cache import LeastRecentlyUsed
from refimpl.superneurons.liveness import Analysis, EachUse
from refimpl.superneurons.offload import CHECKPOINTS, CONVOLUTIONS
from refimpl.superneurons.prefetch import DISTANCE, Ahead
from refimpl.superneurons.recompute import COST_AWARE
from refimpl.superneurons.unified_pool import Heap, UnifiedTensorPool


@dataclass(frozen=True)
class DynamicWorkspace(FastestThatFits):
    """The fastest algorithm whose workspace fits the largest hole; where none does, the one with the least (§3.5).

    When the algorithm of a convolution call is chosen, all tensors of its step are on the device, and the bytes that
    are left may be used for speed.  Forward, data gradient and filter gradient choose separately, at every step.  A
    workspace is one block, so the largest hole counts, not all free bytes.
    """

    name: ClassVar[str] = "superneurons-dynamic"
    summary: ClassVar[str] = "the fastest whose workspace fits the largest hole at that moment"


MEMORY = MemoryOptimal()
UTP = UnifiedTensorPool()


def liveness(algorithms: slots.Algorithms = MEMORY) -> Setup:
    """The analysis and the heap; what other stages offload goes to the unified tensor pool."""
    return Setup("superneurons-liveness", liveness=Analysis(), algorithms=algorithms, allocator=Heap(), pinned=UTP)


def offload(algorithms: slots.Algorithms = MEMORY, distance: int = DISTANCE) -> Setup:
    """Liveness, and checkpoints are offloaded; both modules know how many steps ahead a map is prefetched."""
    leaving = replace(CHECKPOINTS, distance=distance)
    return liveness(algorithms).replace(name="superneurons-offload", offload=leaving, prefetch=Ahead(distance))


def recompute(how: slots.Recompute = COST_AWARE, algorithms: slots.Algorithms = MEMORY) -> Setup:
    """Liveness and recomputation; nothing is offloaded."""
    return liveness(algorithms).replace(name="superneurons-recompute", recompute=how)


def everything() -> Setup:
    """All of it.  Evicted maps are prefetched three steps ahead, as offloaded ones are."""
    return liveness(DynamicWorkspace()).replace(
        name="superneurons", recompute=COST_AWARE, prefetch=Ahead(), cache=LeastRecentlyUsed()
    )


#: A reading of ours of what the paper's cache is compared with: the output of a CONV leaves and is freed at once, and
#: every step that uses it has it copied in.  The streams join after each layer that moved something, so hardly a kernel
#: runs beside a copy.
EAGER = liveness(DynamicWorkspace()).replace(
    name="superneurons-eager", offload=CONVOLUTIONS, liveness=EachUse(), join=True
)
LIVENESS, OFFLOAD, RECOMPUTE, EVERYTHING = liveness(), offload(DynamicWorkspace()), recompute(), everything()
