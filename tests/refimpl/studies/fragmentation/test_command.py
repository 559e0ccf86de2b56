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


def test_the_table_is_the_document(refimpl: Command) -> None:
    """Every row in a line of its own, of ten digits too; tests/refimpl/cli/golden/fragmentation.txt has a whole one."""
    command = ("study", "fragmentation", "vgg16:vdnnpp", "--batch", 128, "--policy", "conv")
    lines = refimpl(*command).out.splitlines()
    rows: list[dict[str, Any]] = json.loads(refimpl(*command, "--json").out)["rows"]
    assert rows and max(map(len, lines)) <= 100 and POLICIES == tuple(fragmentation.POLICIES)
    for row in rows:
        figures = [f"{row[name]:,}" for name in ("ideal_bytes", "pool_bytes", "tries", "budget_bytes")]
        figures.insert(3, f"{100 * row['fragmentation']:.2f}")
        shown = [line.split() for line in lines if line.startswith(row["heuristic"])]
        assert any([word for word in line if word in figures] == figures for line in shown), row


def test_the_budget_makes_the_preset_fit_exactly(refimpl: Command) -> None:
    """In vDNN++'s own order, best fit with right placement is the preset's."""
    said = refimpl(*TINY, "--own-order", "--policy", "conv", "--json")
    found = json.loads(said.out)
    assert found["synchronous"] is False
    row = next(r for r in found["rows"] if (r["heuristic"], r["order"]) == ("best right", "early"))
    plan = ("plan", "tiny-vgg:vdnnpp", "--batch", "8", "--policy", "vdnnpp-conv", "--machine", "gtx-970", "--json")
    fits = refimpl(*plan, "--budget", row["budget_bytes"])
    assert fits.status == 0
    assert "these pools are for gtx-970" in " ".join(refimpl(*TINY, "--own-order", "--policy", "none").out.split())
    counts = json.loads(fits.out)
    assert counts["on_demand_bytes"] == counts["counts"]["skipped_prefetches"] == 0


def test_addresses_fixed_beforehand_are_no_heuristic_unless_they_are_wanted() -> None:
    sizes = {"first fit": 7, "best left": 6, "best right": 6, fragmentation.PLANNED: 5}
    rows: Any = [SimpleNamespace(heuristic=name, found=SimpleNamespace(pool_bytes=n)) for name, n in sizes.items()]
    assert fragmentation.least(rows) is rows[1]
    assert fragmentation.least(rows, with_planned=True) is rows[3]
