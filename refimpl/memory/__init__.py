"""Allocators: where a block of bytes is placed.  `ALLOCATORS` are the modules of the slot `allocator`, by name."""

from __future__ import annotations

from refimpl.memory.base import UNLIMITED, Allocator, Pool, PoolError, Statistics
from refimpl.memory.block_heap import BlockHeap
from refimpl.memory.both_ends import BothEnds
from refimpl.memory.driver_calls import DriverCalls
from refimpl.memory.fits import BestFit, FirstFit, WorstFit
from refimpl.memory.fixed_addresses import FixedAddresses

ALLOCATORS: dict[str, Allocator] = {
    allocator.name: allocator
    for allocator in (BestFit(), FirstFit(), WorstFit(), BothEnds(), BlockHeap(), DriverCalls())
}

__all__ = [
    "ALLOCATORS",
    "UNLIMITED",
    "Allocator",
    "BestFit",
    "BlockHeap",
    "BothEnds",
    "DriverCalls",
    "FirstFit",
    "FixedAddresses",
    "Pool",
    "PoolError",
    "Statistics",
    "WorstFit",
]
