"""`refimpl study fragmentation` of an allocation log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refimpl.memory import ALLOCATORS
from refimpl.report.allocation_log import LoggedEvent, read_rmm, replay, write_rmm
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

LOG = Path(__file__).parents[3] / "data" / "rmm_small_cnn.csv"
UNIT = 512


def test_every_allocator_gets_the_least_pool_that_was_found(refimpl: Command) -> None:
    rows = json.loads(refimpl("study", "fragmentation", LOG, "--json").out)["allocators"]
    assert [row["allocator"] for row in rows] == list(ALLOCATORS)
    events = read_rmm(LOG)
    for row in rows:
        assert row["pool_bytes"] >= row["ideal_bytes"] > 0
        assert replay(events, ALLOCATORS[row["allocator"]].open(row["pool_bytes"])).fits


def test_holes_cost_what_they_cost(refimpl: Command, tmp_path: Path) -> None:
    """Three blocks, the outer two freed: one of twice the size fits only after them."""
    events = [LoggedEvent("allocate", p, UNIT) for p in (1, 2, 3)]
    events += [LoggedEvent("free", p, UNIT) for p in (1, 3)] + [LoggedEvent("allocate", 4, 2 * UNIT)]
    write_rmm(tmp_path / "holes.csv", events)
    said = refimpl("study", "fragmentation", tmp_path / "holes.csv", "--json")
    row = next(one for one in json.loads(said.out)["allocators"] if one["allocator"] == "best-fit")
    assert (row["ideal_bytes"], row["pool_bytes"]) == (3 * UNIT, 4 * UNIT)


@pytest.mark.parametrize("sizes", [[2**60 + 1], [10**400], [2**59, 2**59, 1], [5, 2**60]])
def test_a_log_of_more_than_any_memory_is_refused(wrong: Wrong, tmp_path: Path, sizes: list[int]) -> None:
    """Once the search for the least pool never ended."""
    write_rmm(tmp_path / "huge.csv", [LoggedEvent("allocate", i, nbytes) for i, nbytes in enumerate(sizes)])
    assert lacks(wrong("study", "fragmentation", tmp_path / "huge.csv"), "2^60", 1 + len(sizes)) == []
