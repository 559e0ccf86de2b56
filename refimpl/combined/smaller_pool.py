"""Best fit in a pool of less than the budget: it has other holes.

Where memory is tight, it is holes that decide whether a program fits, and they depend on the pool's size: one that fits
a pool may fail in a larger one.  A program for a smaller pool is one for the budget, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory import Allocator, BestFit, Pool
from refimpl.memory.base import GRANULARITY
from refimpl.network import Network
from refimpl.planner.program import Program
from refimpl.slots.planner_only import PoolSearch

MIB = 1 << 20
SMALL = 128 * MIB  #: larger pools are of whole MiB, as least budgets are
POOLS = 8  #: that are tried, at most
APART = 1.02  #: each of them over the next smaller one


@dataclass(frozen=True)
class SmallerPool(Allocator, PoolSearch):
    """Best fit in a pool of `most` bytes, or of the budget where that is less."""

    most: int = 1 << 30
    name: ClassVar[str] = "smaller-pool"
    summary: ClassVar[str] = "best fit in a pool of less than the budget, which has other holes"

    def open(self, size: int) -> Pool:
        return BestFit(self.granularity).open(size)

    def search(self, attempt: Callable[..., Program], budget: int, fixed_order: bool) -> Program:
        return dataclasses.replace(attempt(min(self.most, budget)), budget=budget)


def smaller_pools(network: Network, budget: int) -> list[SmallerPool]:
    """The largest `POOLS` below the budget, the largest first.  Their sizes are the same for every budget.

    So what fits at one budget is tried at larger ones, too.  The least is what one step needs.
    """
    least = network.resident_bytes + max(sum(x.nbytes for x in step.uses if x.managed) for step in network.steps)
    unit = MIB if least >= SMALL else GRANULARITY
    found: list[int] = []
    while (nbytes := math.ceil(least * APART ** len(found) / unit) * unit) < budget:
        found.append(nbytes)
    return [SmallerPool(most=nbytes) for nbytes in reversed(found[-POOLS:])]
