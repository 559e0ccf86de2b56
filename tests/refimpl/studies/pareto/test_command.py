"""`refimpl pareto`: the table, the document and the picture of the same points."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

ASKED = ("pareto", "lenet", "--batch", 64, "--machine", "titan-x", "--with", "vdnn-all", "--with", "superneurons")


@pytest.mark.slow
def test_points_are_kept_and_the_document_has_them(
    refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, picture = tmp_path / "points", tmp_path / "lenet.png"
    asked = (*ASKED, "--points", 3, "--jobs", 1, "--out", out, "--effort", 40)
    said = refimpl(*asked, "--json")
    found = json.loads(said.out)
    assert out.read_text().count("\n") == 2 + 3 * 4  # least budgets, points
    assert len(found["budget_bytes"]) == 3 and found["single_step_bytes"] <= found["budget_bytes"][0]
    assert [one["setup"] for one in found["setups"]] == ["vdnn-all", "superneurons"] and {*found["best"]} == {
        "vdnn-all",
        "superneurons",
    }
    for column in zip(found["bound"], found["combined"], *found["best"].values(), strict=True):
        bound, *seconds = column
        assert any(seconds) and all(one >= bound * (1 - 1e-6) for one in seconds if one)
    monkeypatch.setattr("refimpl.studies.pareto.points.ParetoCase.solve", None)  # nothing is planned again
    again = refimpl(*asked, "--picture", picture)
    assert again.status == 0 and f"Picture: {picture}" in again.out and picture.stat().st_size > 10_000
    assert json.loads(refimpl(*asked, "--json").out) == found


def test_budgets_of_ones_own(refimpl: Command, wrong: Wrong, tmp_path: Path) -> None:
    found = json.loads(
        refimpl(*ASKED, "--budget", "1.2,16MiB", "--no-bound", "--effort", 20, "--jobs", 1, "--json").out
    )
    assert len(found["budget_bytes"]) == 2 and found["bound"] is None
    (tmp_path / "bad").write_text("neither this nor that\n")
    assert lacks(wrong(*ASKED, "--out", tmp_path / "bad"), tmp_path / "bad") == []
    assert lacks(wrong(*ASKED, "--budget", "1.2,twelve", "--jobs", 1), "twelve") == []
    assert lacks(wrong("pareto", "lenet", "--set", "algorithms=memory"), "--set", "--with") == []
    assert lacks(wrong("pareto", "lenet", "--with", "vdnnx"), "vdnnx", "vdnn-all") == []
