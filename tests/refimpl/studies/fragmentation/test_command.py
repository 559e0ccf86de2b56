"""`refimpl study fragmentation`."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from refimpl.studies.fragmentation import study as fragmentation
from refimpl.studies.fragmentation.command import POLICIES
from tests.refimpl.cli.said import Command

pytestmark = pytest.mark.vdnnpp

TINY = ("study", "fragmentation", "tiny-vgg:vdnnpp", "--batch", "8")


@pytest.mark.parametrize("of", [("tiny-vgg:vdnnpp", 8), ("vgg16:vdnnpp", 128)])
def test_the_table_is_the_document(refimpl: Command, of: tuple[str, int]) -> None:
    """Every row in a line of its own, of ten digits too."""
    command = ("study", "fragmentation", of[0], "--batch", of[1])
    said = refimpl(*command)
    lines = said.out.splitlines()
    rows: list[dict[str, Any]] = json.loads(refimpl(*command, "--json").out)["rows"]
    assert said.status == 0 and max(map(len, lines)) <= 100
    for row in rows:
        figures = (row["ideal_bytes"], row["pool_bytes"], row["tries"], row["fragmentation"], row["budget_bytes"])
        shown = [line for line in lines if line.startswith(row["heuristic"]) and f"{figures[1]:,}" in line]
        expected = [f"{figures[0]:,}", f"{figures[1]:,}", str(figures[2]), f"{100 * figures[3]:.2f}", f"{figures[4]:,}"]
        assert any([word for word in line.split() if word in expected] == expected for line in shown), row
    titles = [line for line in lines if f"batch {of[1]} ·" in line]
    assert [title.rpartition(" ")[2] for title in titles] == list(POLICIES) == list(fragmentation.POLICIES)
    least = [line for line in lines if line.endswith("least")]
    assert 4 <= len(least) <= 8
    for word in ("vDNN's, synchronous", "S: as the authors' public code has it; R: ours", "the paper's own", "budget:"):
        assert word in " ".join(said.out.split())


def test_the_budget_makes_the_preset_fit_exactly(refimpl: Command) -> None:
    """In vDNN++'s own order, best fit with right placement is the preset's."""
    said = refimpl(*TINY, "--own-order", "--policy", "conv", "--json")
    found = json.loads(said.out)
    assert found["synchronous"] is False
    row = next(r for r in found["rows"] if (r["heuristic"], r["order"]) == ("best right", "early"))
    plan = ("plan", "tiny-vgg:vdnnpp", "--batch", "8", "--policy", "vdnnpp-conv", "--machine", "gtx-970", "--json")
    fits = refimpl(*plan, "--budget", row["budget_bytes"])
    assert fits.status == 0
    counts = json.loads(fits.out)
    assert counts["on_demand_bytes"] == counts["counts"]["skipped_prefetches"] == 0


def test_the_own_order_names_the_machine_it_is_for(refimpl: Command) -> None:
    said = refimpl(*TINY, "--own-order", "--policy", "all", "--machine", "titan-x")
    assert "which copies were done: these pools are for titan-x" in " ".join(said.out.split())


def test_addresses_fixed_beforehand_are_no_heuristic_unless_they_are_wanted() -> None:
    sizes = {"first fit": 7, "best left": 6, "best right": 6, fragmentation.PLANNED: 5}
    rows: Any = [SimpleNamespace(heuristic=name, found=SimpleNamespace(pool_bytes=n)) for name, n in sizes.items()]
    assert fragmentation.least(rows) is rows[1]
    assert fragmentation.least(rows, with_planned=True) is rows[3]
