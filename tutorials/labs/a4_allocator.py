"""Lab A4: an allocator against fragmentation.  The handout is tutorials/handouts/a4.md; the tests say what is missing:

pytest tutorials/labs/test_a4.py -x
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from refimpl.combined.placing import Life
from refimpl.memory import Allocator, Pool
from refimpl.memory.allocation_trace import rounded
from refimpl.slots.planner_only import PoolSearch


@dataclass(frozen=True)
class Mine(Allocator, PoolSearch):
    """Where a block is placed, and what else is tried where it does not fit."""

    name: ClassVar[str] = "my-allocator"
    summary: ClassVar[str] = "one rule"

    def open(self, size: int) -> Pool:
        """An empty pool of `size` bytes.  Steps 1 and 2 are about its rule."""
        raise NotImplementedError("return a pool, as FitPool(size, self.granularity, FreeList.first): the lowest hole")

    def search(self, attempt: Callable[..., Any], budget: int, fixed_order: bool) -> Any:
        """What an attempt in `budget` bytes returned.

        `attempt(nbytes, allocator=…)` places all blocks in a pool of `nbytes`, or raises `DoesNotFit`.
        """
        return attempt(budget)


def layout(known: Mapping[int, Life]) -> dict[int, int]:
    """Step 4: block → its address, where all lives are known."""
    raise NotImplementedError("give each block the lowest address that is free over its whole life")


allocator = Mine()


# -- given, for step 4 -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed(Allocator):
    """The nth allocation gets the nth address."""

    places: tuple[int, ...] = ()
    name: ClassVar[str] = "my-layout"
    summary: ClassVar[str] = "every address is known"

    @classmethod
    def of(cls, attempted: Any, addresses: Mapping[int, int]) -> Placed:
        """For the blocks of an attempt; a plan's resident tensors come before them."""
        places, top = [], 0
        for tensor in attempted.network.resident:
            places.append(top)
            top += rounded(tensor.nbytes)
        return cls(places=(*places, *(top + addresses[block] for block in sorted(addresses))))

    def open(self, size: int) -> Pool:
        return PlacedPool(size, self.granularity, self.places)


class PlacedPool(Pool):
    """Trusts its addresses: two blocks that share bytes are found by the tests, or by the proof of a plan."""

    def __init__(self, size: int, granularity: int, places: tuple[int, ...]) -> None:
        super().__init__(size, granularity)
        self.places = iter(places)

    def _take(self, nbytes: int, stays: bool) -> int | None:
        address = next(self.places, self.size)
        return address if address + nbytes <= self.size else None

    def _give(self, address: int, nbytes: int) -> None:
        """A hole is what no block has."""

    def holes(self) -> list[tuple[int, int]]:
        found, end = [], 0
        for address, nbytes in [*self.blocks(), (self.size, 0)]:
            if address > end:
                found.append((end, address - end))
            end = address + nbytes
        return found

    @property
    def largest_hole(self) -> int:
        return self.free_bytes
