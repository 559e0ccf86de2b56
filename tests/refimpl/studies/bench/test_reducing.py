"""The bench of the all-reduce: what is run how often, which iteration counts, and the table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from refimpl.studies.bench.reducing import Reducing


def test_the_table_by_hand() -> None:
    timeline: Any = SimpleNamespace(seconds=2.0, busy=lambda _: 1.0, hidden=lambda _: 0.5)
    found = Reducing("a name", [3 << 20, 1 << 20], 12, 2, 0.25, 0.125, {"beside backward": timeline})
    head, rows = found.table()
    assert head == ["what", "median", ""] and rows == [
        ["all-reduce, in rank order", "250 ms", "12 gradients, 4 MiB, 8 MiB on the wire"],
        ["MPI.Allreduce", "125 ms", "the same bytes; ours takes 2.00 × as long"],
        ["iteration, reduced beside backward", "2 s", "reducing 1 s, 500 ms of it beside kernels; 25.0 % waited for"],
    ]
