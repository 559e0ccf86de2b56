"""SuperNeurons' unified tensor pool (§3.3.1), the part that hands out memory: a heap of 1 KB blocks.

The paper's reason for it: cudaMalloc and cudaFree, one call a tensor, cost 36 % of ResNet-50's training time.  The heap
is one chunk, taken at the start, and needs no driver afterwards.  It knows no tensor and no device, and so stands with
the other allocators (`refimpl.memory.block_heap`), as does the one that it is compared with: a driver call for every
allocation and every free.
"""

from __future__ import annotations

from refimpl.memory import BlockHeap, DriverCalls

Heap = BlockHeap

__all__ = ["DriverCalls", "Heap"]
