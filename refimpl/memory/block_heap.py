"""The block heap: the heap of device memory that SuperNeurons uses instead of cudaMalloc and cudaFree.

One chunk, taken at the start, is cut into blocks of 1 KB.  The heap keeps a list of allocated nodes and a list of
empty nodes; a node is an address, a number of blocks and an ID.  To allocate, the first empty node with enough blocks
is found; the blocks taken become an allocated node, the rest stays an empty one.  To free, a hash table leads from
the ID to the allocated node, which goes back to the list of empty nodes and is merged with its neighbours there.

Ours differs in two points, neither of which moves a block.  A node's ID is the number of its first block, because
a free names an address.  The list of empty nodes is the free list in its address order, which skips many nodes that are
too small at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory.base import Allocator, Pool
from refimpl.memory.free_list import FreeList


@dataclass(frozen=True)
class HeapNode:
    """Blocks side by side."""

    id: int
    address: int  #: bytes
    blocks: int


class BlockHeapPool(Pool):
    """The paper's heap.  A block of the paper is a granule of `Pool`; a block of `Pool` is an allocated node."""

    def __init__(self, size: int, granularity: int) -> None:
        super().__init__(size, granularity)
        self._allocated: dict[int, HeapNode] = {}  # ID → node
        self._empty = FreeList(self.size // granularity)  # in blocks of the paper

    def _take(self, nbytes: int, stays: bool) -> int | None:
        blocks = nbytes // self.granularity
        empty = self._empty.first(blocks)
        if empty is None:
            return None
        return self._taken(self._empty.cut_left(empty, blocks), blocks)

    def _take_right(self, nbytes: int) -> int | None:
        blocks = nbytes // self.granularity
        empty = self._empty.last_of(blocks)
        return None if empty is None else self._taken(self._empty.cut_right(empty, blocks), blocks)

    def _taken(self, first_block: int, blocks: int) -> int:
        """The address of a new allocated node."""
        node = HeapNode(id=first_block, address=first_block * self.granularity, blocks=blocks)
        self._allocated[node.id] = node
        return node.address

    def _give(self, address: int, nbytes: int) -> None:
        node = self._allocated.pop(address // self.granularity)
        self._empty.give(node.id, node.blocks)

    @property
    def largest_hole(self) -> int:
        return self._empty.largest * self.granularity

    def holes(self) -> list[tuple[int, int]]:
        return [(block * self.granularity, blocks * self.granularity) for block, blocks in self._empty.holes()]


@dataclass(frozen=True)
class BlockHeap(Allocator):
    """SuperNeurons' heap of 1 KB blocks: first fit, freed through a table of IDs."""

    granularity: int = 1024

    name: ClassVar[str] = "block-heap"
    summary: ClassVar[str] = "SuperNeurons' heap of 1 KB blocks: the first empty node with enough of them"

    def open(self, size: int) -> Pool:
        return BlockHeapPool(size, self.granularity)
