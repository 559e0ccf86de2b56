"""SuperNeurons' unified tensor pool (§3.3.1), the part that hands out memory.

The heap is one chunk, taken at the start and cut into blocks of 1 KB; it needs no driver afterwards.  It knows no
tensor and no device, so it is one of the allocators (`refimpl.memory.block_heap`), as is the one that it replaces: a
call of the driver for every allocation and every free.  `refimpl.reproduce.superneurons.pool_study` compares the two.
"""

from __future__ import annotations

from refimpl.memory import BlockHeap, DriverCalls

Heap = BlockHeap

__all__ = ["DriverCalls", "Heap"]
