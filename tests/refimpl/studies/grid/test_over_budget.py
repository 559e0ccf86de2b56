"""A network's setups over the budget: what is read off the curves, the command, the table, and the picture."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from refimpl.points.many_plans import RowsError
from refimpl.studies.grid import many_points
from refimpl.studies.grid.grid import study
from refimpl.studies.grid.over_budget import (
    Beside,
    Curves,
    Line,
    against,
    beside,
    best,
    budgets_between,
    distance,
    gain,
    picture,
    round_ticks,
    with_smaller,
)
from refimpl.studies.grid.rows import GridPoint, of_papers
from tests.messages import lacks, raises_naming
from tests.refimpl.cli.said import Command, Wrong

ASKED = ("study", "lenet", "--batch", 64, "--machine", "titan-x", "--with", "vdnn-all", "--with", "superneurons")
BUDGETS = [1 << 30, 2 << 30, 4 << 30]
CURVES = Curves(
    "net", BUDGETS, 900 << 20,
    {"plain": [[None, 2.9, 2.9]], "a paper": [[None, 1.6, 1.2], [None, 1.4, 1.3]]}, [1.3, 1.1, 1.0], [1.2, 1.0, 1.0],
)  # fmt: skip


def test_budgets_are_geometric_steps_with_both_ends_and_the_gpus_own_memory() -> None:
    """Without it a picture and a comparison within the GPU's memory give two answers."""
    assert budgets_between(1000, 900, 4) == [1000]
    for memory, found in ((3900, [1000, 2000, 3900, 8000]), (1001, [1000, 1001, 4000, 8000]), (8000, None), (0, None)):
        assert budgets_between(1000, 8000, 4, memory) == (found or [1000, 2000, 4000, 8000])
    assert budgets_between(1000, 8000, 2, 4000) == [1000, 8000]


def test_gain_and_distance_count_where_something_is_left_to_gain() -> None:
    one: Line = [None, 4.0, 2.0, 1.0]
    two: Line = [None, 3.0, 2.5, 1.5]
    own: Line = [5.0, 1.5, 2.0, 1.0]
    assert best([one, two]) == [None, 3.0, 2.0, 1.0]
    found = gain(own, best([one, two]))
    assert found is not None and (found.open, found.better, found.worse) == (2, 1, 0)
    assert found.largest == 2.0 and found.mean == pytest.approx(2**0.5)
    assert gain(own, [1.0, 1.0, 1.0, None]) is None
    assert distance(own, [4.0, 1.5, None, 1.0]) == pytest.approx((1.25 + 1) / 2)
    assert distance(own, [None] * 4) is None
    assert with_smaller([None, 3.0, 4.0, None, 2.0, 2.5]) == [None, 3.0, 3.0, 3.0, 2.0, 2.0]


def test_the_papers_setups_have_names_of_their_own_by_which_rows_are_planned() -> None:
    found = of_papers()
    assert len(found) > 50 and {named.paper for named in found.values()} > {"vDNN", "vDNN++", "SuperNeurons", "AccUDNN"}
    assert len({named.setup for named in found.values()}) == len(found)
    of_no_preset = next(name for name in found if name.startswith("vdnn-none"))
    (row,) = study(wanted=[GridPoint("lenet", of_no_preset, "titan-x", batch=8)])
    assert row["fits"] and row["setup"] == of_no_preset


def test_the_bound_is_a_setup_of_a_study() -> None:
    pytest.importorskip("highspy")
    bound, plan, less, wrong = study(
        ["lenet"], ["bound 5", "superneurons"], budgets=[0.8], batches=[512],
        wanted=[GridPoint("lenet", "bound", "titan-x", "1MiB", 9), GridPoint("lenet", "bound soon", "titan-x", "", 1)],
    )  # fmt: skip
    assert bound["fits"] and plan["fits"] and bound["seconds"] <= plan["seconds"]
    assert less["fits"] is False and "one step alone" in less["why"]
    assert wrong["fits"] is None and "bound soon" in wrong["why"]


def test_rows_are_kept_and_the_table_and_the_picture_are_made_of_them(
    refimpl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("highspy")
    monkeypatch.chdir(tmp_path)
    asked = (*ASKED, "--points", 2, "--jobs", 1, "--out", "rows.jsonl", "--effort", 3, "--bound")
    rows = json.loads(refimpl(*asked, "--json").out)
    assert Path("rows.jsonl").read_text().count("\n") == 3 + 2 * 4  # least budgets, points
    curves = Curves.of(rows)
    assert len(curves.budgets) == 2 and curves.single_step <= curves.budgets[0]
    assert {*curves.groups} == {"vdnn-all", "superneurons"} and [*curves.shown][-2:] == ["combined", "bound"]
    for column in zip(curves.bound, curves.combined, *curves.best.values(), strict=True):
        bound, *found = column
        assert bound and any(found) and all(one >= bound * (1 - 1e-6) for one in found if one)
    monkeypatch.setattr(many_points, "row", None)  # nothing is planned again
    again = refimpl(*asked, "--picture", "pareto")
    assert again.status == 0 and lacks(again.out, "combined", "One step alone needs", "Picture: pareto.png") == []
    assert refimpl("study", "rows.jsonl", "--draw", "pareto", "--picture", "again.svg").status == 0
    assert json.loads(refimpl(*asked, "--json").out) == rows and Path("pareto.png").stat().st_size > 10_000


BESIDE = """
setups = ["vDNN", "vDNN++", "vdnn-all", "vdnnpp-conv"]
[[cases]]
networks = ["lenet"]
budgets = ["4MiB", 0.9, "1GiB"]
[[cases]]
networks = ["tiny-vgg"]
batches = [64]
budgets = [0.6]
"""


def test_a_files_cases_and_a_papers_best_beside_anothers(refimpl: Command, wrong: Wrong, tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(BESIDE)
    rows = json.loads(refimpl("study", tmp_path / "two.toml", "--jobs", 1, "--json").out)
    assert len(rows) == 16 and {(row["network"], row["batch"]) for row in rows} == {("lenet", 32), ("tiny-vgg", 64)}
    of = {(row["network"], row["budget"], row["setup"]): row for row in rows}
    assert of["lenet", "4MiB", "vDNN++"]["fits"] is False and of["lenet", "4MiB", "vDNN++"]["why"]
    for network, budget in (("lenet", "0.9"), ("tiny-vgg", "0.6")):
        for paper, one in (("vDNN", "vdnn-all"), ("vDNN++", "vdnnpp-conv")):
            best, own = of[network, budget, paper], of[network, budget, one]
            assert best["adopted"].startswith(one.partition("-")[0]) and best["slow_down"] <= (own["slow_down"] or 99)
    said = refimpl("study", tmp_path / "two.toml", "--with", "vDNN", "--with", "vDNN++", "--beside", "--jobs", 1)
    found = "vDNN++ beside vDNN: of 4 points it is faster at 1 (fits alone at 0), slower at 0 (does not fit at 0)"
    assert lacks(" ".join(said.out.split()), "lenet/32 titan-x 4 MiB – –", found, "neither fits at 1.") == []
    (tmp_path / "bad.toml").write_text('[[cases]]\nnetwork = ["lenet"]')
    assert lacks(wrong("study", tmp_path / "bad.toml"), "'network'", "networks") == []


def test_where_one_does_not_fit_it_is_slower() -> None:
    pairs = ((1, 2), (2, 1), (1, None), (None, 1), (1, 1), (None, None))
    lines = [Beside("net", 1, {"a": a, "b": b}) for a, b in pairs]
    found = against("b", "a", lines)
    assert lacks(found, "6 points", "faster at 2 (fits alone at 1)", "slower at 2 (does not fit at 1)", "2.000 ×") == []


def test_what_makes_no_sense_is_one_line(wrong: Wrong, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("neither this nor that\n")
    assert lacks(wrong(*ASKED, "--out", tmp_path / "bad"), tmp_path / "bad") == []
    assert lacks(wrong("study", "lenet", "--with", "vdnnx"), "vdnnx", "vdnn-all") == []
    assert lacks(wrong("study", "lenett"), "lenett", "lenet") == []
    with raises_naming(RowsError, "2 cases"):
        Curves.of(study(["lenet", "tiny-vgg"], ["baseline"], batches=[2]))


def test_lines_are_named_and_step_where_a_budget_begins_and_where_a_bound_ends() -> None:
    (axes,) = picture(CURVES).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    names = ["plain", "a paper", "combined", "lower bound"]
    assert [*lines][:4] == names and {*names} == {text.get_text() for text in axes.texts[:-1]}
    assert axes.texts[-1].get_text() == "the least that one step needs"
    assert axes.get_legend() is None
    assert lines["combined"].get_drawstyle() == "steps-post" and lines["lower bound"].get_drawstyle() == "steps-pre"
    assert [*np.asarray(lines["combined"].get_xdata())][:-1] == BUDGETS, "the last step goes on to the right end"
    assert axes.get_ylim()[0] < 1
    left = axes.get_window_extent().x0
    assert all(text.get_window_extent().x0 >= left for text in axes.texts), "a name is over the axis"


def test_names_that_begin_at_one_place_are_apart_and_a_ninth_line_is_in_the_table_alone() -> None:
    groups = {f"setup {number}": [[None, 1.5 + number / 100, 1.0]] for number in range(8)}
    (axes,) = (figure := picture(dataclasses.replace(CURVES, groups=groups))).axes
    heights = sorted(text.xy[1] for text in axes.texts if text.get_text().startswith("setup"))  # type: ignore[attr-defined]
    room = 0.04 * (axes.get_ylim()[1] - axes.get_ylim()[0])
    assert len(heights) == 6 and all(one + room < other for one, other in pairwise(heights))
    assert lacks(figure.texts[1].get_text(), "in the table alone: setup 6, setup 7") == []
    assert lacks(str(figure.get_label()), "setup 7") == []


def test_the_limits_are_named_as_those_of_steps_that_may_be_cut_and_budgets_have_round_ticks() -> None:
    (axes,) = picture(dataclasses.replace(CURVES, steps="steps whole or cut at their seams")).axes
    names = {text.get_text() for text in axes.texts}
    assert names > {"the least that a part of a step needs", "lower bound\n(cut steps, too)"}
    assert round_ticks(3.7, 25) == [4, 6, 8, 12, 16, 24]
    assert round_ticks(9.2, 26) == [10, 12, 14, 16, 20, 24]


def test_rows_that_were_all_refused_are_answered_with_the_reason() -> None:
    rows = study(wanted=[GridPoint("tiny-vgg", "nothing", "titan-x")])
    with pytest.raises(RowsError, match="there is no preset 'nothing'"):
        beside(rows)
