"""The free list: the holes of a pool in two orders, by address and by size, so that every question is answered quickly.

It finds a hole (the smallest that is large enough, the first one, the largest, the right-most), cuts a block off a
hole's left or right end, and takes a block back, joined with the holes that it touches.  Nothing is scanned hole by
hole: a question or a change is a few bisections, and a first fit looks at one number for every run of up to 64 holes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

RUN = 32  #: holes by address are kept in runs of at most twice this number


class FreeList:
    """The holes of a pool of `size` bytes, at first one hole."""

    def __init__(self, size: int) -> None:
        self._bytes: dict[int, int] = {}  # a hole's address → its bytes
        self._address_of_end: dict[int, int] = {}  # the address just after a hole → the hole's address
        self._by_size: list[tuple[int, int]] = []  # (bytes, address), sorted
        self._by_address = _ByAddress(self._bytes)
        if size:
            self._insert(0, size)

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def largest(self) -> int:
        """Bytes of the largest hole; 0 without holes."""
        return self._by_size[-1][0] if self._by_size else 0

    def holes(self) -> list[tuple[int, int]]:
        """(address, bytes), by address."""
        return sorted(self._bytes.items())

    # Four ways to find a hole: its address, or None

    def smallest(self, nbytes: int) -> int | None:
        """The smallest hole of at least `nbytes`; of several the lowest."""
        place = bisect_left(self._by_size, (nbytes, 0))
        return self._by_size[place][1] if place < len(self._by_size) else None

    def first(self, nbytes: int) -> int | None:
        """The lowest hole of at least `nbytes`."""
        return self._by_address.first(nbytes) if nbytes <= self.largest else None

    def widest(self, nbytes: int) -> int | None:
        """The largest hole, if it has `nbytes`; of several the lowest."""
        return self.smallest(self.largest) if 0 < nbytes <= self.largest else None

    def last(self, nbytes: int) -> int | None:
        """The right-most hole, if it has `nbytes`: no other one is tried."""
        address = self._by_address.last()
        return address if address is not None and self._bytes[address] >= nbytes else None

    def last_of(self, nbytes: int) -> int | None:
        """The right-most hole of at least `nbytes`."""
        return next((address for address, whole in reversed(self.holes()) if whole >= nbytes), None)

    @property
    def last_bytes(self) -> int:
        """Bytes of the right-most hole; 0 without holes."""
        address = self._by_address.last()
        return 0 if address is None else self._bytes[address]

    # Three ways to take from it, and one to give back

    def cut_left(self, hole: int, nbytes: int) -> int:
        """Take the left end of a hole; returns its address."""
        whole = self._bytes[hole]
        if whole == nbytes:
            self._remove(hole)
            return hole
        address, left = hole + nbytes, whole - nbytes
        del self._bytes[hole]
        self._bytes[address] = left
        self._address_of_end[hole + whole] = address
        place = bisect_left(self._by_size, (whole, hole))
        del self._by_size[place]
        insort(self._by_size, (left, address), 0, place)
        self._by_address.shrink(hole, whole, address)
        return hole

    def cut_right(self, hole: int, nbytes: int) -> int:
        """Take the right end of a hole; returns its address."""
        left = self._remove(hole) - nbytes
        if left:
            self._insert(hole, left)
        return hole + left

    def cut(self, address: int, nbytes: int) -> None:
        """Take a block at a known address, from anywhere in the hole that it is in."""
        hole = self._by_address.at_or_before(address)
        whole = self._remove(hole) if hole is not None else 0
        after = (hole or 0) + whole - address - nbytes  # bytes of the hole that are left after the block
        assert hole is not None and after >= 0, "a block overlaps another one"
        if address > hole:
            self._insert(hole, address - hole)
        if after:
            self._insert(address + nbytes, after)

    def give(self, address: int, nbytes: int) -> None:
        """Make a hole of a block, joined with the hole on its left and the hole on its right."""
        end = address + nbytes
        if address in self._address_of_end:
            address = self._address_of_end[address]
            self._remove(address)
        if end in self._bytes:
            end += self._remove(end)
        self._insert(address, end - address)

    def _insert(self, address: int, nbytes: int) -> None:
        self._bytes[address] = nbytes
        self._address_of_end[address + nbytes] = address
        insort(self._by_size, (nbytes, address))
        self._by_address.add(address, nbytes)

    def _remove(self, address: int) -> int:
        nbytes = self._bytes.pop(address)
        del self._address_of_end[address + nbytes]
        del self._by_size[bisect_left(self._by_size, (nbytes, address))]
        self._by_address.remove(address, nbytes)
        return nbytes


class _ByAddress:
    """Addresses of holes in order, cut into short runs; for each run the size of its largest hole.

    The first hole of n bytes is found by the runs' largest holes, then in a single run.  A run that loses its largest
    hole forgets that size until the next first fit, so that the other fits pay next to nothing.
    """

    def __init__(self, size_of: dict[int, int]) -> None:
        self._size_of = size_of  # the free list's: a hole's address → its bytes
        self._runs: list[list[int]] = []
        self._heads: list[int] = []  # for each run, no address of it is lower, and all of the runs before are
        self._largest: list[int | None] = []  # each run's largest hole, bytes; None: forgotten

    def add(self, address: int, nbytes: int) -> None:
        if not self._runs:
            self._runs, self._heads, self._largest = [[address]], [address], [nbytes]
            return
        at = max(bisect_right(self._heads, address) - 1, 0)
        run, largest = self._runs[at], self._largest[at]
        insort(run, address)
        self._heads[at] = run[0]
        if largest is not None and largest < nbytes:
            self._largest[at] = nbytes
        if len(run) > 2 * RUN:
            self._runs[at : at + 1] = [run[:RUN], run[RUN:]]
            self._heads[at : at + 1] = [run[0], run[RUN]]
            self._largest[at : at + 1] = [None, None]

    def remove(self, address: int, nbytes: int) -> None:
        at = bisect_right(self._heads, address) - 1
        run = self._runs[at]
        del run[bisect_left(run, address)]
        if not run:
            del self._runs[at], self._heads[at], self._largest[at]
            return
        if nbytes == self._largest[at]:
            self._largest[at] = None

    def shrink(self, address: int, nbytes: int, begin: int) -> None:
        """A hole loses its left end, and begins at `begin`."""
        at = bisect_right(self._heads, address) - 1
        if at + 1 < len(self._heads) and self._heads[at + 1] <= begin:
            self._heads[at + 1] = self._runs[at + 1][0]  # it was that of a hole that is gone
        run = self._runs[at]
        run[bisect_left(run, address)] = begin
        if nbytes == self._largest[at]:
            self._largest[at] = None

    def first(self, nbytes: int) -> int | None:
        size_of = self._size_of
        for at, largest in enumerate(self._largest):
            if largest is None:
                largest = self._largest[at] = max(map(size_of.__getitem__, self._runs[at]))
            if largest >= nbytes:
                return next(address for address in self._runs[at] if size_of[address] >= nbytes)
        return None

    def last(self) -> int | None:
        return self._runs[-1][-1] if self._runs else None

    def at_or_before(self, address: int) -> int | None:
        """The last hole that begins at an address or before it."""
        at = bisect_right(self._heads, address) - 1
        if at >= 0 and self._runs[at][0] > address:  # a head may be lower than its run
            at -= 1
        return self._runs[at][bisect_right(self._runs[at], address) - 1] if at >= 0 else None
