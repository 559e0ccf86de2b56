"""The block heap: the heap of device memory that SuperNeurons uses instead of cudaMalloc and cudaFree.

One chunk, taken at the start, is cut into blocks of 1 KB.  The heap keeps a list of allocated nodes and a list of
empty nodes; a node is an address, a number of blocks and an ID.  To allocate, the first empty node with enough blocks
is found; the blocks taken become an allocated node, the rest stays an empty one.  To free, a hash table leads from
the ID to the allocated node, which goes back to the list of empty nodes and is merged with its neighbours there.

That is first fit in granules of 1 KB, so it is the same pool here.  Its live blocks, by address, are the allocated
nodes and the hash table: a free names an address, which is a node's ID.  Its free list, by address, is that of the
empty nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory.base import Allocator, Pool
from refimpl.memory.fits import FitPool
from refimpl.memory.free_list import FreeList


@dataclass(frozen=True)
class BlockHeap(Allocator):
    """SuperNeurons' heap of 1 KB blocks: first fit, freed through a table of IDs."""

    granularity: int = 1024

    name: ClassVar[str] = "block-heap"
    summary: ClassVar[str] = "SuperNeurons' heap of 1 KB blocks: the first empty node with enough of them"

    def open(self, size: int) -> Pool:
        return FitPool(size, self.granularity, FreeList.first)
