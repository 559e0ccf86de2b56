"""Placing blocks whose lives are known: each at the lowest address that is free over its whole life.

`in_turn` compares a block with every block that was placed before it, which is quadratic in their number.  `Stretches`
finds the same addresses, and compares a block only with what shares a stretch of time with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

FEW = 512  #: blocks; up to this number, placing them in turn is faster
STRETCH = 32  #: positions at which lives begin, in a stretch of time

#: Addresses from a bottom to a top that are held, and the first position at which they are and the one after the last.
Held = tuple[int, int, float, float]


class Life(NamedTuple):
    """The positions in the trace, or in the program, at which a block's life begins and ends; its bytes, rounded."""

    begin: int
    end: int
    nbytes: int


def placer(known: Mapping[int, Life]) -> Callable[[Sequence[int]], dict[int, int]]:
    """The function that places blocks in some order: block → address."""
    return partial(in_turn, known) if len(known) <= FEW else Stretches(known).placed


def in_turn(known: Mapping[int, Life], order: Sequence[int]) -> dict[int, int]:
    """Each block at the lowest address that is free over its whole life."""
    held: list[Held] = []
    addresses: dict[int, int] = {}
    for block in order:
        life = known[block]
        addresses[block] = address = lowest(held, life)
        insort(held, (address, address + life.nbytes, life.begin, life.end))
    return addresses


def lowest(held: Sequence[Held], life: Life) -> int:
    """The lowest address that is free over a life; what is held has to be sorted."""
    begin, end, nbytes = life
    address = 0
    for bottom, top, first, last in held:
        if first < end and last > begin:
            if bottom - address >= nbytes:
                break
            if top > address:
                address = top
    return address


class AddressSpan(NamedTuple):
    """Where a life is in the tree of stretches."""

    ends: Sequence[int]  #: the leaves in which it begins and ends: it has a part of their time
    between: Sequence[int]  #: the nodes whose leaves are all those between: it has all of their time
    above: Sequence[int]  #: the leaves in which it begins and ends, and the nodes above them


class Stretches:
    """Stretches of time as the leaves of a binary tree: node 1 is its root, node i has the children 2i and 2i + 1.

    A block shares time with the blocks that have a part of the same leaf, with all that have ever been in the leaves
    between its life's ends, and with those that have all the time of a node above its ends.  Of the last two only the
    addresses that they hold count, and where these touch, they are one range.
    """

    def __init__(self, known: Mapping[int, Life]) -> None:
        begins = sorted({life.begin for life in known.values()})[::STRETCH]  # of each stretch
        self._known, self._nodes = known, 2 << (len(begins) - 1).bit_length()
        self._spans: dict[int, AddressSpan] = {}
        for block, life in known.items():
            first = self._nodes // 2 + bisect_right(begins, life.begin) - 1
            last = self._nodes // 2 + bisect_left(begins, life.end) - 1
            above = dict.fromkeys(leaf >> up for leaf in (first, last) for up in range(leaf.bit_length()))
            self._spans[block] = AddressSpan(
                (first,) if first == last else (first, last), between(first, last), (*above,)
            )

    def placed(self, order: Sequence[int]) -> dict[int, int]:
        """As `in_turn`."""
        known, spans = self._known, self._spans
        parts: list[list[Held]] = [[] for _ in range(self._nodes)]  # leaf → blocks that have a part of its time
        always: list[list[Held]] = [[] for _ in range(self._nodes)]  # node → ranges that are held all of its time
        ever: list[list[Held]] = [[] for _ in range(self._nodes)]  # node → ranges that are held at some time of it
        addresses: dict[int, int] = {}
        for block in order:
            life, span = known[block], spans[block]
            held: list[Held] = []
            for node in span.ends:
                held += parts[node]
            for node in span.between:
                held += ever[node]
            for node in span.above:
                held += always[node]
            held.sort()
            addresses[block] = address = lowest(held, life)
            top = address + life.nbytes
            for node in span.ends:
                insort(parts[node], (address, top, life.begin, life.end))
            for node in span.between:
                join(always[node], address, top)
            for node in (*span.ends, *span.between):
                while node and join(ever[node], address, top):
                    node >>= 1
        return addresses


def between(first: int, last: int) -> list[int]:
    """The fewest nodes that have exactly the leaves between two leaves."""
    found: list[int] = []
    first, last = first + 1, last - 1
    while first <= last:
        if first % 2:
            found.append(first)
            first += 1
        if not last % 2:
            found.append(last)
            last -= 1
        first, last = first // 2, last // 2
    return found


def join(ranges: list[Held], bottom: int, top: int) -> bool:
    """Add a range to sorted ranges that do not touch; False where it is in one of them already."""
    first = after = bisect_right(ranges, (bottom, inf))
    if first and ranges[first - 1][1] >= bottom:
        first -= 1
        bottom = ranges[first][0]
        if ranges[first][1] >= top:
            return False
    while after < len(ranges) and ranges[after][0] <= top:
        top = max(top, ranges[after][1])
        after += 1
    ranges[first:after] = [(bottom, top, -inf, inf)]
    return True
