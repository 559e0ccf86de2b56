"""Both ends: vDNN++'s "right placement".

A map that is not offloaded lives from its forward to its backward pass.  Among short-lived maps it splits the holes
that these leave.  So blocks that stay are taken off the right end of the right-most hole; where that hole is too small
the allocation fails, and no other hole is tried.  All other blocks are placed from the left, by best fit.  (That is how
the authors' public code behaves.  First and worst fit from the left are for comparison.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from refimpl.memory.base import Allocator, Pool
from refimpl.memory.fits import FitPool
from refimpl.memory.free_list import FreeList

#: How a hole is found for a block that does not stay.
FITS = {"best": FreeList.smallest, "first": FreeList.first, "worst": FreeList.widest}


class BothEndsPool(FitPool):
    """`largest_hole` is the largest hole for a block that does not stay."""

    def hole_for(self, stays: bool) -> int:
        return self._holes.last_bytes if stays else self.largest_hole

    def _take(self, nbytes: int, stays: bool) -> int | None:
        if not stays:
            return super()._take(nbytes, stays)
        hole = self._holes.last(nbytes)
        return None if hole is None else self._holes.cut_right(hole, nbytes)


@dataclass(frozen=True)
class BothEnds(Allocator):
    """vDNN++'s right placement: blocks that stay from the right end, best fit from the left for all else."""

    fit: Literal["best", "first", "worst"] = "best"

    name: ClassVar[str] = "both-ends"
    summary: ClassVar[str] = (
        "vDNN++'s right placement: blocks that stay from the right end, best fit from the left for the rest"
    )

    def open(self, size: int) -> Pool:
        return BothEndsPool(size, self.granularity, FITS[self.fit])
