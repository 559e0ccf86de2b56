"""Best fit, first fit and worst fit: three answers to "which hole?"; the block is then cut off the hole's left end.

Best fit is vDNN's pool, which was NVIDIA's cnmem: sizes are rounded up to 512 bytes, the smallest hole that is large
enough is taken, of several such the lowest, and a freed block is joined with its neighbours.  First fit and worst fit
are for comparison.  Best and worst fit are not monotone: a larger pool can fail where a smaller one serves.  First fit
is monotone: in a larger pool every block has the same address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory.base import Allocator, Pool
from refimpl.memory.free_list import FreeList


class FitPool(Pool):
    """A pool whose holes are a free list: `find` names a hole, and the block is cut off its left end."""

    def __init__(self, size: int, granularity: int, find: Callable[[FreeList, int], int | None]) -> None:
        super().__init__(size, granularity)
        self._holes, self._find = FreeList(self.size), find

    @property
    def largest_hole(self) -> int:
        return self._holes.largest

    def holes(self) -> list[tuple[int, int]]:
        return self._holes.holes()

    def _take(self, nbytes: int, stays: bool) -> int | None:
        hole = self._find(self._holes, nbytes)
        return None if hole is None else self._holes.cut_left(hole, nbytes)

    def _take_right(self, nbytes: int) -> int | None:
        hole = self._holes.last_of(nbytes)
        return None if hole is None else self._holes.cut_right(hole, nbytes)

    def _give(self, address: int, nbytes: int) -> None:
        self._holes.give(address, nbytes)


@dataclass(frozen=True)
class BestFit(Allocator):
    """The smallest hole that is large enough: vDNN's pool (cnmem)."""

    name: ClassVar[str] = "best-fit"
    summary: ClassVar[str] = "the smallest hole that is large enough, as vDNN's pool (cnmem) does"

    def open(self, size: int) -> Pool:
        return FitPool(size, self.granularity, FreeList.smallest)


# -- for comparison: a first reader stops here -------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstFit(Allocator):
    """The lowest hole that is large enough."""

    name: ClassVar[str] = "first-fit"
    summary: ClassVar[str] = "the lowest hole that is large enough"

    def open(self, size: int) -> Pool:
        return FitPool(size, self.granularity, FreeList.first)


@dataclass(frozen=True)
class WorstFit(Allocator):
    """The largest hole."""

    name: ClassVar[str] = "worst-fit"
    summary: ClassVar[str] = "the largest hole, so that the rest of it is large too"

    def open(self, size: int) -> Pool:
        return FitPool(size, self.granularity, FreeList.widest)


@dataclass(frozen=True)
class DriverCalls(Allocator):
    """No pool: each allocation is a cudaMalloc and each free a cudaFree, which is what the pools are there to avoid.

    SuperNeurons' authors measured 36 % of ResNet-50's training time in these calls.  The simulator charges the
    machine's seconds for each, in which a cudaFree's wait for all work on the device is included.  So that such a
    program can be run like any other, its blocks have addresses in one arena, given as best fit gives them.

    The driver's own pages are not modelled.  It hands out physical memory in pages of some MiB, so small blocks can
    cost more than here; and it can join scattered free pages under one range of addresses, so a large block can fit
    where here the holes are too small.
    """

    name: ClassVar[str] = "driver-calls"
    summary: ClassVar[str] = "one cudaMalloc for each allocation and one cudaFree for each free"
    driver_calls: ClassVar[bool] = True

    def open(self, size: int) -> Pool:
        return FitPool(size, self.granularity, FreeList.smallest)
