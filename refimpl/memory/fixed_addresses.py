"""Fixed addresses: every block's place is known before the first allocation.

Where a setup never reacts to a failed allocation, an iteration's allocations and frees are known before it starts.
Then every block gets its address beforehand, the largest first, each the lowest that is free over its whole life.
Where that takes more than the ideal, the block with the highest end is placed before all others, and all are placed
again: a few rounds nearly always reach the ideal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from refimpl.memory.base import Allocator, Pool
from refimpl.memory.trace import Found, Trace, ideal, rounded

ROUNDS = 32  #: of placing all blocks, at most


class Life(NamedTuple):
    """The events of the trace that begin and end a block's life, and its bytes, rounded."""

    begin: int
    end: int
    nbytes: int


def lives(events: Trace) -> dict[int, Life]:
    """Block → its life; a block that is never freed lives to the end."""
    found: dict[int, Life] = {}
    for at, event in enumerate(events):
        if event.nbytes:
            found[event.block] = Life(at, len(events), rounded(event.nbytes))
        else:
            found[event.block] = found[event.block]._replace(end=at)
    return found


def placed(known: Mapping[int, Life], order: Sequence[int]) -> dict[int, int]:
    """Block → address: in this order, each at the lowest address that is free over its whole life."""
    import numpy as np

    begins, ends, bottoms, tops = (np.zeros(len(order), dtype=np.int64) for _ in range(4))
    addresses: dict[int, int] = {}
    for count, block in enumerate(order):
        begin, end, nbytes = known[block]
        beside = (begins[:count] < end) & (ends[:count] > begin)
        lower = bottoms[:count][beside]
        upwards = np.argsort(lower)
        below = np.maximum.accumulate(np.append(0, tops[:count][beside][upwards]))  # where a gap begins
        gaps = lower[upwards] - below[:-1] >= nbytes
        address = int(below[gaps.argmax() if gaps.any() else -1])
        begins[count], ends[count], bottoms[count], tops[count] = begin, end, address, address + nbytes
        addresses[block] = address
    return addresses


@dataclass(frozen=True)
class Fixed(Found):
    """The pool, the number of rounds, and block → its address in the pool."""

    addresses: Mapping[int, int]


def fix_addresses(events: Trace) -> Fixed:
    """The best of some rounds; a round that reaches the ideal is the last."""
    known, least = lives(events), ideal(events)
    order = sorted(known, key=lambda block: (-known[block].nbytes, known[block].begin))
    best = Fixed(0, 0, 0, {})
    for rounds in range(1, ROUNDS + 1):
        addresses = placed(known, order)
        tops = {block: address + known[block].nbytes for block, address in addresses.items()}
        size = max(tops.values(), default=0)
        if rounds == 1 or size < best.pool_bytes:
            best = Fixed(size, least, rounds, addresses)
        if size == least:
            break
        highest = max(order, key=tops.__getitem__)
        order.remove(highest)
        order.insert(0, highest)
    return best


class FixedAddressesPool(Pool):
    """The nth allocation gets the nth place; one that asks for other bytes does not fit."""

    def __init__(self, size: int, granularity: int, places: Sequence[tuple[int, int]]) -> None:
        super().__init__(size, granularity)
        self._places, self._next = places, 0
        self._bounds = [(0, 0), (self.size, self.size)]  # live blocks (address, end) between two fences, sorted

    def _take(self, nbytes: int, stays: bool) -> int | None:
        address, expected = self._places[self._next] if self._next < len(self._places) else (0, 0)
        place = bisect_left(self._bounds, (address, address + nbytes))
        if nbytes != expected or address + nbytes > self.size or self._bounds[place - 1][1] > address:
            return None
        if place < len(self._bounds) and self._bounds[place][0] < address + nbytes:
            return None
        self._bounds.insert(place, (address, address + nbytes))
        self._next += 1
        return address

    def _give(self, address: int, nbytes: int) -> None:
        del self._bounds[bisect_left(self._bounds, (address, address + nbytes))]

    @property
    def largest_hole(self) -> int:
        return max((nbytes for _, nbytes in self.holes()), default=0)

    def holes(self) -> list[tuple[int, int]]:
        pairs = zip(self._bounds, self._bounds[1:], strict=False)
        return [(end, start - end) for (_, end), (start, _) in pairs if start > end]


@dataclass(frozen=True)
class FixedAddresses(Allocator):
    """Addresses fixed beforehand, for one program: the one that asks for exactly these blocks in this order."""

    places: tuple[tuple[int, int], ...] = ()  #: (address, bytes), in the order of the allocations

    name: ClassVar[str] = "fixed-addresses"
    summary: ClassVar[str] = "addresses fixed once from known lifetimes; for setups that never react to a failure"

    def open(self, size: int) -> Pool:
        return FixedAddressesPool(size, self.granularity, self.places)
