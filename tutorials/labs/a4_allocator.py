"""Lab A4: an allocator against fragmentation.  About three hours; after notebooks 01 and 03.

vDNN moves maps in and out of a pool.  Blocks of many sizes come and go, holes are left, and an allocation can fail
with bytes enough in holes that are each too small.  Write an allocator that needs a smaller pool than best fit.

What to write
    `Mine`: a frozen `Allocator` whose `open` makes a `Pool`.  `allocator` at the end is what the tests take.  The
    other slots are vDNN's, offloading the inputs of convolutions.

What to know
    docs/slots/allocator.md.  `FitPool` and `FreeList` in `refimpl.memory` keep the books: only the choice of the hole
    is yours.  `stays` says that a block outlives forward.  Many budgets are below what best fit needs: one good rule
    is not enough there.  An allocator may plan more than once (`refimpl.slots.planner_only.PoolSearch`): `search` is
    given `attempt(nbytes, allocator=…)`, which plans, or raises `DoesNotFit`.

Steps
    1. The lowest hole; the smallest; the largest.  `refimpl compare NETWORK --with "vdnn-conv, allocator=first-fit"`.
    2. Blocks that stay on one end, passing ones on the other.  When is that worse?
    3. Try several rules, one after another, and keep the first whose plan fits.
    4. The first plan shows every block's life.  With all lives known, the addresses are a packing problem.

Test it: pytest tutorials/labs/test_a4.py --submission my_modules.py
    This skeleton, the largest hole                                      0: it fits nothing
    Two blocks overlap                                                   33: fits, and is not proved
    Several rules in turn                                                100
    Several rules in turn, and last a layout of all lives                100
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory import Allocator, FitPool, FreeList, Pool


@dataclass(frozen=True)
class Mine(Allocator):
    """The largest hole: the worst rule that there is."""

    name: ClassVar[str] = "my-allocator"
    summary: ClassVar[str] = "the largest hole"

    def open(self, size: int) -> Pool:
        return FitPool(size, self.granularity, FreeList.widest)  # yours


allocator = Mine()
