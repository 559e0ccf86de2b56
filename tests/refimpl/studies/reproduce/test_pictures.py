"""The two kinds of pictures of the evaluations: what is drawn of the marks."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from refimpl.studies.reproduce.pictures import Datum, Marks


def test_bars_are_in_groups_with_published_points_and_lines() -> None:
    marks = [
        Datum("a", "ours", 3.0, 2.5, "left"), Datum("a", "theirs", 1.0, None, "left"),
        Datum("b", "ours", None, None, "left"), Datum("b", "theirs", 2.0, None, "left"),
        Datum("c", "theirs", 4.0, None, "right"),
    ]  # fmt: skip
    figure = Marks("Title", "subtitle", "MiB", lambda rows: marks, lines=(5.0,), columns=2)([])
    left, right = figure.axes
    heights = [bar.get_height() for bar in left.patches if isinstance(bar, Rectangle)]
    assert heights == [3.0, 1.0, 2.0], "by label; what does not fit has no bar"
    assert [word.get_text() for word in left.texts] == ["3.0", "×", "1.0", "2.0"]
    published = next(line for line in left.lines if line.get_label() == "published")
    bar = left.patches[0]
    assert isinstance(bar, Rectangle)
    assert published.get_ydata() == pytest.approx([2.5])
    assert published.get_xdata() == pytest.approx([bar.get_x() + bar.get_width() / 2])
    assert [label.get_text() for label in left.get_xticklabels()] == ["a", "b"]
    assert [axes.get_title(loc="left") for axes in (left, right)] == ["left", "right"] and left.get_ylabel() == "MiB"
    assert all(any(line.get_ydata() == pytest.approx([5.0, 5.0]) for line in axes.lines) for axes in (left, right))
    legend = [word.get_text() for word in figure.legends[0].get_texts()]
    assert sorted(legend) == ["ours", "published", "theirs"], "each once"


def test_points_are_joined_by_label() -> None:
    marks = [Datum(1.0, "ours", 3.0, 2.5), Datum(1.0, "theirs", 7.0), Datum(2.0, "ours", None), Datum(4.0, "ours", 5.0)]
    (axes,) = Marks("Title", "subtitle", "s", lambda rows: marks, "points")([]).axes
    drawn = {str(line.get_label()): line.get_xydata() for line in axes.lines}
    expected: dict[str, list[tuple[float, float]]] = {
        "ours": [(1, 3), (4, 5)],
        "theirs": [(1, 7)],
        "published": [(1, 2.5)],
    }
    assert drawn.keys() == expected.keys()
    assert all(np.array_equal(drawn[label], points) for label, points in expected.items())
    assert axes.get_ylim()[0] == 0
