"""Faults of allocators."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "a freed block is not joined with the hole on its right",
        "refimpl/memory/free_list.py",
        "        if end in self._bytes:\n            end += self._remove(end)\n",
        "",
        "tests/refimpl/memory",
    ),
    Fault(
        "best fit passes over a hole of exactly the size wanted",
        "refimpl/memory/free_list.py",
        "bisect_left(self._by_size, (nbytes, 0))",
        "bisect_left(self._by_size, (nbytes + 1, 0))",
        "tests/refimpl/memory",
    ),
    Fault(
        "right placement cuts a block off the left end",
        "refimpl/memory/both_ends.py",
        "holes.cut_right(hole, nbytes)",
        "holes.cut_left(hole, nbytes)",
        "tests/refimpl/memory",
    ),
    Fault(
        "a pool says a larger hole than it has",
        "refimpl/memory/fits.py",
        "return self._holes.largest\n",
        "return self._holes.largest + self.granularity\n",
        "tests/refimpl/memory",
    ),
    Fault(
        "a block is one granule too small",
        "refimpl/memory/base.py",
        "return -(-nbytes // self.granularity) * self.granularity or self.granularity",
        "return nbytes // self.granularity * self.granularity or self.granularity",
        "tests/refimpl/memory",
    ),
)
