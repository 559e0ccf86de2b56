"""A solution of lab A4: several rules in turn; where none fits, a layout of blocks whose lives a plan has shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from refimpl import DoesNotFit, Program
from refimpl.combined.fixed_pool import lives
from refimpl.combined.placing import Life
from refimpl.memory import Allocator, BestFit, BothEnds, FirstFit, Pool
from refimpl.slots.planner_only import PoolSearch

ROOMY = 8  #: times the budget: where every block's life is seen


@dataclass(frozen=True)
class Mine(Allocator, PoolSearch):
    """The first of several plans that fits."""

    name: ClassVar[str] = "my-allocator"
    summary: ClassVar[str] = "several rules in turn, and last a layout of all lives"

    def open(self, size: int) -> Pool:
        return BestFit(self.granularity).open(size)

    def search(self, attempt: Callable[..., Any], budget: int, fixed_order: bool) -> Any:
        misfits: list[DoesNotFit] = []
        for rule in (BestFit(), FirstFit(), BothEnds()):
            try:
                return attempt(budget, allocator=rule)
            except DoesNotFit as error:
                misfits.append(error)
        try:
            roomy = attempt(ROOMY * budget, lag=0, allocator=BestFit())
            return attempt(budget, lag=0, allocator=Placed(places=layout(roomy)))
        except DoesNotFit:
            raise misfits[0] from None


def layout(program: Program) -> tuple[int, ...]:
    """An address for each allocation, in order: resident tensors side by side, then the largest block first."""
    found: list[int] = []
    top = 0
    for tensor in program.network.resident:
        found.append(top)
        top += -(-tensor.nbytes // 512) * 512
    known = lives(program.allocation_trace())
    placed: dict[int, int] = {}
    for block in sorted(known, key=lambda block: (-known[block].nbytes, block)):
        placed[block] = lowest(known[block], [(placed[one], known[one]) for one in placed])
    return (*found, *(top + placed[block] for block in sorted(placed)))


def lowest(life: Life, placed: list[tuple[int, Life]]) -> int:
    """The lowest address that is free over the whole life."""
    address = 0
    for other, its in sorted(placed, key=lambda one: one[0]):
        if its.begin < life.end and life.begin < its.end:  # both are alive at some moment
            if other >= address + life.nbytes:
                break
            address = max(address, other + its.nbytes)
    return address


@dataclass(frozen=True)
class Placed(Allocator):
    """The nth allocation gets the nth address."""

    places: tuple[int, ...] = ()
    name: ClassVar[str] = "my-layout"
    summary: ClassVar[str] = "every address is known"

    def open(self, size: int) -> Pool:
        return PlacedPool(size, self.granularity, self.places)


class PlacedPool(Pool):
    """Refuses what does not fit its place: the plan then tells that it does not fit."""

    def __init__(self, size: int, granularity: int, places: tuple[int, ...]) -> None:
        super().__init__(size, granularity)
        self.places, self.next = places, 0

    def _take(self, nbytes: int, stays: bool) -> int | None:
        address = self.places[self.next] if self.next < len(self.places) else self.size
        taken = any(other < address + nbytes and address < other + its for other, its in self._live.items())
        if taken or address + nbytes > self.size:
            return None
        self.next += 1
        return address

    def _give(self, address: int, nbytes: int) -> None:
        """A hole is what no block is in."""

    def holes(self) -> list[tuple[int, int]]:
        found, end = [], 0
        for address, nbytes in [*self.blocks(), (self.size, 0)]:
            if address > end:
                found.append((end, address - end))
            end = address + nbytes
        return found

    @property
    def largest_hole(self) -> int:
        return max((nbytes for _, nbytes in self.holes()), default=0)


allocator = Mine()
