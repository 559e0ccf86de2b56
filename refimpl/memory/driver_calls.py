"""Driver calls: no pool of its own at all; each allocation is a cudaMalloc and each free a cudaFree.

This is what the pools are there to avoid: SuperNeurons' authors measured 36 % of ResNet-50's training time in these
calls.

What is modelled: that every allocation and every free is a call (`driver_calls` says so, and the simulator charges
the machine's seconds for it).  So that such a program can be run like any other, its blocks have addresses in one
arena, given as best fit gives them, in units of 512 bytes.

What is not modelled: the driver's own pages.  It hands out physical memory in pages of some MiB, so small blocks can
cost more than here; and it can join scattered free pages under one range of addresses, so a large block can fit where
here the holes are too small.  Nor does a pool know of time: that a cudaFree may wait for all work on the device is
for the simulator's charge to include.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory.base import Allocator, Pool
from refimpl.memory.fits import FitPool
from refimpl.memory.free_list import FreeList


@dataclass(frozen=True)
class DriverCalls(Allocator):
    """One call of the driver for each allocation and each free."""

    name: ClassVar[str] = "driver-calls"
    summary: ClassVar[str] = "one cudaMalloc for each allocation and one cudaFree for each free"
    driver_calls: ClassVar[bool] = True

    def open(self, size: int) -> Pool:
        return FitPool(size, self.granularity, FreeList.smallest)
