"""SuperNeurons' two pools (§3.3.1): the heap of the GPU's memory, and the pool of the memories outside the GPU.

**The heap** replaces a driver call for every allocation and every free.  It is one chunk, taken at the start and cut
into blocks of 1 KB; after that it needs no driver.  It knows no tensor and no device, so it is one of the allocators
(`refimpl.memory.block_heap`), as is the driver that it replaces.
`refimpl.studies.reproduce.superneurons.speed` compares the two.

**The Unified Tensor Pool** (UTP) is the memory that tensors are offloaded to.  The paper's spans the host's memory,
other GPUs' memory over the PCIe switch and remote memory by RDMA; its evaluation uses the host's alone.  Here a map
goes to the first of the machine's tiers that has room for it, in the order of preference that the machine gives, and
keeps its buffer for the whole run.  On a machine with the host's tier alone that is one pinned buffer a map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory import BlockHeap
from refimpl.slots import questions as slots
from refimpl.slots.baseline import PinnedPlaces
from refimpl.slots.context import Context

Heap = BlockHeap


@dataclass(frozen=True)
class UnifiedTensorPool(slots.Pinned):
    """A buffer a map, in the first tier with room."""

    name: ClassVar[str] = "superneurons-unified-pool"
    summary: ClassVar[str] = "one buffer a map, in the first of the machine's tiers with room"
    spans_tiers: ClassVar[bool] = True

    def bind(self, context: Context) -> PinnedPlaces:
        return PinnedPlaces(context.tiers)
