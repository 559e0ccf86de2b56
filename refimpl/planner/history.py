"""The last accesses to bytes that are free now, per range of bytes and per stream.

A freed block leaves its accesses here, and an allocation takes over those of every range it overlaps: so the first
access to a new block can be ordered after the last ones to what was there before.
"""

from __future__ import annotations

from bisect import bisect_right, insort

Accesses = tuple[int, ...]  #: per stream, the position of its last access in the program; -1 for none


def latest(one: Accesses, other: Accesses) -> Accesses:
    """Per stream, the later of two accesses."""
    return tuple(map(max, one, other))


class History:
    """Ranges of free bytes that do not overlap, by address, each with its accesses."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[int, Accesses]] = {}  #: start → end, accesses

    def put(self, start: int, end: int, accesses: Accesses) -> None:
        """The bytes start..end have been freed; they were last accessed so."""
        insort(self._starts, start)
        self._ranges[start] = end, accesses

    def take(self, start: int, end: int) -> Accesses | None:
        """The bytes start..end are allocated: what happened to any of them, and it is theirs no more."""
        starts, ranges = self._starts, self._ranges
        first = bisect_right(starts, start) - 1
        if first < 0 or ranges[starts[first]][0] <= start:
            first += 1
        past = first
        found: Accesses | None = None
        cut: list[tuple[int, int, Accesses]] = []
        while past < len(starts) and starts[past] < end:
            begin = starts[past]
            stop, accesses = ranges.pop(begin)
            found = accesses if found is None else latest(found, accesses)
            if begin < start:
                cut.append((begin, start, accesses))
            if stop > end:
                cut.append((end, stop, accesses))
            past += 1
        starts[first:past] = [begin for begin, _, _ in cut]
        for begin, stop, accesses in cut:
            ranges[begin] = stop, accesses
        return found
