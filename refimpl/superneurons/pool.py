"""SuperNeurons' heap (§3.3.1), which replaces a driver call for every allocation and every free.

The heap is one chunk, taken at the start and cut into blocks of 1 KB; after that it needs no driver.  It knows no
tensor and no device, so it is one of the allocators (`refimpl.memory.block_heap`), as is the driver that it replaces.
`refimpl.studies.reproduce.superneurons.pool_study` compares the two.  It is not the paper's unified tensor pool, which
is the memory that tensors are offloaded to (`unified_pool`).
"""

from __future__ import annotations

from refimpl.memory import BlockHeap, DriverCalls

Heap = BlockHeap

__all__ = ["DriverCalls", "Heap"]
