"""Pictures of rows: what is in them, and rows of which there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.names.presets import PRESETS
from refimpl.points.many_plans import Row, RowsError
from refimpl.studies.drawing import PAPER_COLOURS
from refimpl.studies.grid.grid import study
from refimpl.studies.grid.pictures import drawn, factors, looks, profile_line, setups_of, unbeaten
from tests.messages import lacks, raises_naming
from tests.refimpl.cli.said import Command, Wrong

SETUPS = ["superneurons", "vdnn-all", "baseline", "dtr"]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return study(["tiny-vgg", "lenet"], SETUPS, budgets=["1.0", "60%"], batches=[64], spread=True)


def texts(figure: Any) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_heat_map_has_a_cell_for_each_setup_and_budget(rows: list[Row]) -> None:
    (axes,) = drawn("heat-map", rows[::-1]).axes
    assert [one.get_text() for one in axes.get_yticklabels()] == ["baseline", "vdnn-all", "superneurons", "dtr"]
    assert [one.get_text() for one in axes.get_xticklabels()] == ["60%", "1.0"]
    of = [row["slow_down"] for row in rows if row["setup"] == "vdnn-all" and row["budget"] == "1.0"]
    assert f"{np.sqrt(np.prod(of)):.2f}" in texts(axes.figure)
    assert texts(axes.figure)[0] == "–"  # the baseline in less than it needs


def test_slow_downs_have_a_panel_a_case_a_line_a_setup_and_bands(rows: list[Row]) -> None:
    panels = drawn("slow-down", rows).axes
    assert [one.get_title(loc="left") for one in panels] == ["lenet(64), titan-x", "tiny-vgg(64), titan-x"]
    (line,) = [line for line in panels[1].lines if line.get_label() == "vdnn-all"]
    mine = [row for row in rows if row["network"] == "tiny-vgg" and row["setup"] == "vdnn-all"]
    assert sorted(np.asarray(line.get_ydata())) == sorted(row["slow_down"] for row in mine)
    assert len(panels[1].collections) == 4  # a band each
    assert all(row["slow_down_low"] <= row["slow_down_high"] for row in mine)


def row(setup: str, budget: str, slow_down: float | None) -> Row:
    return {
        "network": "n", "batch": 1, "machine": "m", "setup": setup, "budget": budget, "budget_bytes": 1 << 20,
        "fits": slow_down is not None, "slow_down": slow_down, "peak_bytes": 1 << 19,
    }  # fmt: skip


def test_a_profile_counts_the_points_within_a_factor_of_the_best() -> None:
    asked = [row("a", "1", 1.0), row("b", "1", 1.5), row("a", "2", 2.0), row("b", "2", None), row("a", "3", None)]
    asked.append(row("b", "3", None))  # a point that no setup fits counts for none
    assert factors(asked) == {"a": [1.0, 1.0], "b": [1.5, float("inf")]}
    assert profile_line([1.5, float("inf")], 2.0) == ([1.0, 1.5, 2.0], [0.0, 0.5, 0.5])
    (axes,) = drawn("profile", asked).axes
    assert {line.get_label(): float(np.asarray(line.get_ydata())[-1]) for line in axes.lines} == {"a": 1.0, "b": 0.5}


def test_the_front_has_what_no_other_program_beats(rows: list[Row]) -> None:
    assert unbeaten([(3, 1.0), (1, 2.0), (2, 2.5), (2, 1.5), (4, 1.0)]) == [(1, 2.0), (2, 1.5), (3, 1.0)]
    assert len(drawn("memory", rows).axes) == 2


def test_a_paper_has_one_colour_and_all_setups_look_different() -> None:
    found = looks(setups_of([{"setup": one} for one in ("vdnn-all", "vdnn-dyn", "dtr", "chen-sqrt")]))
    assert found["vdnn-all"]["color"] == found["vdnn-dyn"]["color"] == PAPER_COLOURS["vDNN"]
    assert found["dtr"]["color"] != found["chen-sqrt"]["color"]
    for what in ("linestyle", "marker"):
        assert len({(look["color"], str(look[what])) for look in looks([*PRESETS]).values()}) == len(PRESETS)


@pytest.mark.parametrize("kind", ["heat-map", "memory"])
def test_many_cases_are_the_first_twenty(kind: str) -> None:
    many = [row("a", "1", 1.2) | {"network": f"n{number}"} for number in range(22)]
    figure = drawn(kind, many)
    assert any("22 cases" in text.get_text() for text in figure.texts) and len(figure.axes) <= 20


def test_rows_of_which_none_fits_are_one_line() -> None:
    nothing: list[list[Row]] = [[], [row("a", "1", None)], [{"key": "1", "fits": None}]]
    for given in nothing:
        with raises_naming(RowsError, "fits"):
            drawn("heat-map", given)


def test_a_row_is_read_by_its_schema_which_names_file_line_and_field(tmp_path: Path, wrong: Wrong) -> None:
    (whole,) = study(["lenet"], ["baseline"], batches=[2])
    path, whole = tmp_path / "rows.jsonl", json.loads(json.dumps(whole))
    for name, value in {
        "seconds": -1, "slow_down": None, "budget_bytes": 0, "fits": "yes", "setup": " , ", "why": 3, "batch": 2**70,
    }.items():  # fmt: skip
        path.write_text(f"{json.dumps(whole)}\n{json.dumps(whole | {name: value})}\n")
        assert lacks(wrong("study", path), path, "line 2", name) == []
    del whole["peak_bytes"]
    path.write_text(f"{json.dumps(whole)}\n")
    assert lacks(wrong("study", path, "--csv"), path, "line 1", "peak_bytes") == []


def test_a_long_table_is_cut_and_says_so(tmp_path: Path, refimpl: Command) -> None:
    (whole,) = study(["lenet"], ["baseline"], batches=[2])
    lines = [json.dumps(whole | {"key": str(number)}) for number in range(62)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    said = refimpl("study", tmp_path / "rows.jsonl")
    assert said.status == 0 and "and 2 rows more" in said.out and said.out.count("lenet(2)") == 60
