"""The picture of slow-down over budget: what it names, where its lines step, and that it is the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.studies.pareto.pictures import CurveGroup, pareto_picture

BUDGETS = [1 << 30, 2 << 30, 4 << 30]


def drawn() -> Figure:
    groups = {
        "plain": CurveGroup([[None, 2.9, 2.9]], None),
        "a paper": CurveGroup([[None, 1.6, 1.2], [None, 1.4, 1.3]], [None, 1.4, 1.2]),
    }
    return pareto_picture("net", BUDGETS, groups, {"ours": [1.3, 1.1, 1.0]}, [1.2, 1.0, 1.0], 900 << 20)


def test_lines_are_named_and_step_where_a_budget_begins_and_where_a_bound_ends() -> None:
    (axes,) = drawn().axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert {"plain", "best of a paper", "ours", "lower bound"} < {*lines}
    assert lines["ours"].get_drawstyle() == "steps-post" and lines["lower bound"].get_drawstyle() == "steps-pre"
    assert [*np.asarray(lines["ours"].get_xdata())][:-1] == BUDGETS, "the last step goes on to the right end"
    low, high = axes.get_ylim()
    assert low < 1 and 1.4 < high < 2, "scaled by the bold lines, not by what nothing is compared with"


def test_the_same_picture_twice_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        style.save(drawn(), tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "budget (GiB)" in text and "least that one step needs" in text
