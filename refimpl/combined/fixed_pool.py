"""Fixed addresses: every block's place is known before the first allocation.

Where a setup never reacts to a failed allocation, an iteration's allocations and frees are known before it starts.
Then every block gets its address beforehand, the largest first, each the lowest that is free over its whole life.
Where that takes more than the ideal, the block with the highest end is placed before all others, and all are placed
again: a few rounds nearly always reach the ideal.

`CountingPool` and `FixedAddressesPool` are the pools of the two plans that this takes; `refimpl.combined.fixed` has the
allocator.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from refimpl.combined.placing import Life, placer
from refimpl.memory.allocation_trace import PoolSize, Trace, ideal, rounded
from refimpl.memory.base import UNLIMITED, Pool
from refimpl.memory.fits import FitPool
from refimpl.memory.free_list import FreeList

ROUNDS = 32  #: of placing all blocks, at most


def lives(events: Trace) -> dict[int, Life]:
    """Block → its life; a block that is never freed lives to the end."""
    found: dict[int, Life] = {}
    for at, event in enumerate(events):
        if event.nbytes:
            found[event.block] = Life(at, len(events), rounded(event.nbytes))
        else:
            found[event.block] = found[event.block]._replace(end=at)
    return found


@dataclass(frozen=True)
class Fixed(PoolSize):
    """The pool, the number of rounds, and block → its address in the pool."""

    addresses: Mapping[int, int]


def fix_addresses(events: Trace) -> Fixed:
    """The best of some rounds; a round that reaches the ideal is the last."""
    known = lives(events)
    return rounds(known, by_size(known), ideal(events))


def by_size(known: Mapping[int, Life]) -> list[int]:
    """The largest block first; of several the oldest."""
    return sorted(known, key=lambda block: (-known[block].nbytes, known[block].begin))


def by_area(known: Mapping[int, Life]) -> list[int]:
    """The largest bytes² × life first: blocks that are large for long leave the fewest places to others."""
    return sorted(known, key=lambda block: -(known[block].nbytes ** 2) * (known[block].end - known[block].begin))


def by_age(known: Mapping[int, Life]) -> list[int]:
    return sorted(known, key=lambda block: known[block].begin)


def most_at_once(known: Mapping[int, Life]) -> int:
    """The most bytes that are alive at one position: no addresses take less."""
    change: Counter[int] = Counter()
    for life in known.values():
        change[life.begin] += life.nbytes
        change[life.end] -= life.nbytes
    return max(accumulate(change[at] for at in sorted(change)), default=0)


def rounds(known: Mapping[int, Life], order: list[int], wanted: int, most: int = ROUNDS) -> Fixed:
    """The best of some rounds; after each, the block with the highest end goes to the front of the order.

    Args:
        known: the lives of all blocks.
        order: in which they are placed first.
        wanted: bytes of a pool; a round that reaches it is the last.
        most: the number of rounds.
    """
    best: Fixed | None = None
    placed = placer(known)
    for number in range(1, most + 1):
        addresses = placed(order)
        tops = {block: address + known[block].nbytes for block, address in addresses.items()}
        size = max(tops.values(), default=0)
        if best is None or size < best.pool_bytes:
            best = Fixed(size, wanted, number, addresses)
        if size <= wanted:
            break
        highest = max(order, key=tops.__getitem__)
        order.remove(highest)
        order.insert(0, highest)
    assert best is not None
    return best


class CountingPool(FitPool):
    """At most `size` bytes are held, anywhere in an arena without end (best fit, so that bytes are reused)."""

    def __init__(self, size: int, granularity: int) -> None:
        super().__init__(size, granularity, FreeList.smallest)
        self._holes = FreeList(UNLIMITED * UNLIMITED)

    def _take(self, nbytes: int, stays: bool) -> int | None:
        return super()._take(nbytes, stays) if nbytes <= self.free_bytes else None

    @property
    def largest_hole(self) -> int:
        return self.free_bytes


class FixedAddressesPool(Pool):
    """The nth allocation gets the nth place; one of another size does not fit.

    At most `limit` bytes are held, as while they were counted: what failed or was refused then, fails again.
    """

    def __init__(self, size: int, granularity: int, places: Sequence[tuple[int, int]], limit: int) -> None:
        super().__init__(size, granularity)
        self._places, self._next, self._limit = places, 0, min(limit, self.size)
        self._bounds = [(0, 0), (self.size, self.size)]  # live blocks (address, end) between two fences, sorted

    def _take(self, nbytes: int, stays: bool) -> int | None:
        address, expected = self.next_place
        place = bisect_left(self._bounds, (address, address + nbytes))
        if nbytes != expected or nbytes > self.largest_hole or address + nbytes > self.size:
            return None
        if self._bounds[place - 1][1] > address:
            return None
        if place < len(self._bounds) and self._bounds[place][0] < address + nbytes:
            return None
        self._bounds.insert(place, (address, address + nbytes))
        self._next += 1
        return address

    def _give(self, address: int, nbytes: int) -> None:
        del self._bounds[bisect_left(self._bounds, (address, address + nbytes))]

    @property
    def next_place(self) -> tuple[int, int]:
        """(address, bytes) of the next block; of no bytes where every place is given."""
        return self._places[self._next] if self._next < len(self._places) else (0, 0)

    def in_the_way(self) -> list[int]:
        """The addresses of the blocks that are in the next place."""
        address, nbytes = self.next_place
        first = max(0, bisect_left(self._bounds, (address,)) - 1)  # it may end in the place
        past = bisect_left(self._bounds, (min(address + nbytes, self.size),))
        return [start for start, end in self._bounds[first:past] if end > address]

    @property
    def largest_hole(self) -> int:
        """Bytes that may still be held: a workspace was chosen by them, and its place is known."""
        return self._limit - self.held

    def holes(self) -> list[tuple[int, int]]:
        pairs = zip(self._bounds, self._bounds[1:], strict=False)
        return [(end, start - end) for (_, end), (start, _) in pairs if start > end]
