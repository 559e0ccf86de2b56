"""The free list: the holes of a pool in two orders, by address and by size, so that every question is answered quickly.

It finds a hole (the smallest that is large enough, the first one, the largest, the right-most), cuts a block off a
hole's left or right end, and takes a block back, joined with the holes that it touches.  A question or a change is a
few bisections; only a first fit goes through the holes from the left.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class FreeList:
    """The holes of a pool of `size` bytes, at first one hole."""

    def __init__(self, size: int) -> None:
        self._bytes: dict[int, int] = {}  # a hole's address → its bytes
        self._address_of_end: dict[int, int] = {}  # the address just after a hole → the hole's address
        self._by_size: list[tuple[int, int]] = []  # (bytes, address), sorted
        self._by_address: list[int] = []  # sorted
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
        fitting = (address for address in self._by_address if self._bytes[address] >= nbytes)
        return next(fitting, None) if nbytes <= self.largest else None

    def widest(self, nbytes: int) -> int | None:
        """The largest hole, if it has `nbytes`; of several the lowest."""
        return self.smallest(self.largest) if 0 < nbytes <= self.largest else None

    def last(self, nbytes: int) -> int | None:
        """The right-most hole, if it has `nbytes`: no other one is tried."""
        return self._by_address[-1] if 0 < nbytes <= self.last_bytes else None

    def last_of(self, nbytes: int) -> int | None:
        """The right-most hole of at least `nbytes`."""
        return next((address for address in reversed(self._by_address) if self._bytes[address] >= nbytes), None)

    @property
    def last_bytes(self) -> int:
        """Bytes of the right-most hole; 0 without holes."""
        return self._bytes[self._by_address[-1]] if self._by_address else 0

    # Three ways to take from it, and one to give back

    def cut_left(self, hole: int, nbytes: int) -> int:
        """Take the left end of a hole; returns its address."""
        left = self._remove(hole) - nbytes
        if left:
            self._insert(hole + nbytes, left)
        return hole

    def cut_right(self, hole: int, nbytes: int) -> int:
        """Take the right end of a hole; returns its address."""
        left = self._remove(hole) - nbytes
        if left:
            self._insert(hole, left)
        return hole + left

    def cut(self, address: int, nbytes: int) -> None:
        """Take a block at a known address, from anywhere in the hole that it is in."""
        place = bisect_right(self._by_address, address) - 1
        hole = self._by_address[max(place, 0)]
        after = hole + self._remove(hole) - address - nbytes  # bytes of the hole that are left after the block
        assert address >= hole and after >= 0, "a block overlaps another one"
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
        insort(self._by_address, address)

    def _remove(self, address: int) -> int:
        nbytes = self._bytes.pop(address)
        del self._address_of_end[address + nbytes]
        del self._by_size[bisect_left(self._by_size, (nbytes, address))]
        del self._by_address[bisect_left(self._by_address, address)]
        return nbytes
