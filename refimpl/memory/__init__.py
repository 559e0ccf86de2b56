"""Allocators: where a block of bytes is placed.  `ALLOCATORS` are the modules of the slot `allocator`, by name."""

from __future__ import annotations

from refimpl.memory.allocation_trace import Trace, TraceEvent, ideal, replay
from refimpl.memory.base import UNLIMITED, Allocator, Pool, PoolError, Statistics
from refimpl.memory.block_heap import BlockHeap
from refimpl.memory.both_ends import BothEnds
from refimpl.memory.fits import BestFit, DriverCalls, FirstFit, FitPool, WorstFit
from refimpl.memory.free_list import FreeList

ALLOCATORS: dict[str, Allocator] = {
    allocator.name: allocator
    for allocator in (BestFit(), FirstFit(), WorstFit(), BothEnds(), BlockHeap(), DriverCalls())
}

__all__ = [
    "ALLOCATORS", "UNLIMITED", "Allocator", "BestFit", "BlockHeap", "BothEnds", "DriverCalls", "FirstFit",
    "FitPool", "FreeList", "Pool", "PoolError", "Statistics", "Trace", "TraceEvent", "WorstFit", "ideal", "replay",
]  # fmt: skip
