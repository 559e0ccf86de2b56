"""The picture of images a second over the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from refimpl.report import style
from refimpl.report.batch_picture import batch_picture


def test_the_line_and_the_marks_are_drawn_and_named(tmp_path: Path) -> None:
    rates = {8: 40.0, 16: 50.0, 32: 45.0}
    figure = batch_picture("X(b)", "a network", rates, [("b*", 16, 50.0), ("largest", 32, 45.0)])
    (axes,) = figure.axes
    line, *marked = axes.lines
    assert (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) == (
        [8, 16, 32],
        [40.0, 50.0, 45.0],
    )
    assert [np.asarray(one.get_xdata()).tolist() for one in marked] == [[16, 16], [16], [32, 32], [32]]
    legend = axes.get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == ["b*: 16", "largest: 32"]
    style.save(figure, tmp_path / "a.svg")
    assert "images a second" in (tmp_path / "a.svg").read_text(encoding="utf-8")
