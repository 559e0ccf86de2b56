"""A solution of lab A4: best fit; where that does not fit, a layout of all blocks, whose lives an attempt has shown."""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from refimpl import DoesNotFit
from refimpl.combined.fixed_pool import lives
from refimpl.combined.placing import Life
from refimpl.memory import Allocator, FitPool, FreeList, Pool, ideal
from refimpl.memory.allocation_trace import TraceEvent
from refimpl.slots.planner_only import PoolSearch
from tutorials.labs.a4_allocator import Placed  # given

ROOMY = 8  #: times the budget: there every block's life is seen
TO_THE_FRONT = 12  #: rounds of one order in which the highest block moves to the front
PLACINGS = 20_000  #: of one block, from one order: of many blocks there are fewer rounds


@dataclass(frozen=True)
class Mine(Allocator, PoolSearch):
    """Best fit, then a layout."""

    name: ClassVar[str] = "my-allocator"
    summary: ClassVar[str] = "best fit, and where it does not fit a layout of all lives"

    def open(self, size: int) -> Pool:
        return FitPool(size, self.granularity, FreeList.smallest)

    def search(self, attempt: Callable[..., Any], budget: int, fixed_order: bool) -> Any:
        try:
            return attempt(budget)
        except DoesNotFit:
            roomy = attempt(ROOMY * budget, lag=0)
        return attempt(budget, lag=0, allocator=Placed.of(roomy, layout(tuple(roomy.allocation_trace()))))


# -- a layout ----------------------------------------------------------------------------------------------------------

Key = Callable[[Life], float]


def by_bytes(life: Life) -> float:
    return -life.nbytes


def by_area(life: Life) -> float:
    return -(life.nbytes**2) * (life.end - life.begin)


def by_age(life: Life) -> float:
    return life.begin


def by_life(life: Life) -> float:
    return life.begin - life.end


ORDERS: tuple[Key, ...] = (by_bytes, by_area, by_age, by_life)


@lru_cache(maxsize=4)
def layout(events: Sequence[TraceEvent]) -> dict[int, int]:
    """Block → its address: the lowest layout of several orders, some rounds each; the ideal ends the search.

    After a round the block with the highest end moves to the front of the order.  Such rounds can go in circles; so
    after some of them it moves to any earlier place.
    """
    known, least, numbers = lives(events), ideal(events), random.Random(1)
    best: dict[int, int] = {}
    top = 0
    for key in ORDERS:
        order = sorted(known, key=lambda block, key=key: key(known[block]))  # type: ignore[misc]
        for number in range(max(TO_THE_FRONT, PLACINGS // len(order))):
            placed = in_turn(known, order)
            highest = max(order, key=lambda block: placed[block] + known[block].nbytes)
            reached = placed[highest] + known[highest].nbytes
            if not best or reached < top:
                best, top = placed, reached
            if top == least:
                return best
            place = order.index(highest)
            order.insert(numbers.randrange(place or 1) if number >= TO_THE_FRONT else 0, order.pop(place))
    return best


def in_turn(known: Mapping[int, Life], order: Sequence[int]) -> dict[int, int]:
    """Each block at the lowest address that is free over its whole life."""
    placed: list[tuple[int, int, int, int]] = []  # (address, end, the first moment, the one after the last), sorted
    found: dict[int, int] = {}
    for block in order:
        begin, end, nbytes = known[block]
        address = 0
        for bottom, top, first, last in placed:
            if first < end and begin < last:  # both are alive at some moment
                if bottom >= address + nbytes:
                    break
                address = max(address, top)
        found[block] = address
        insort(placed, (address, address + nbytes, begin, end))
    return found


allocator = Mine()
