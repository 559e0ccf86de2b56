"""vDNN's tables and pictures: their words, the same file again, and published points where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from refimpl.studies.reproduce.evaluation import to_json
from refimpl.studies.reproduce.vdnn import published
from refimpl.studies.reproduce.vdnn.evaluation import PARTS
from refimpl.studies.reproduce.vdnn.pictures import LOOKS
from tests.refimpl.report.svg import missing

pytestmark = pytest.mark.vdnn

BY_NAME = {part.name: part for part in PARTS}
WORDS = {
    "memory": [*LOOKS, "published", "googlenet(128)", "mean", "saved at the peak (%)"],
    "performance": [*LOOKS, "published", "vgg16(256)", "mean", "performance (%)"],
    "ranges": ["vgg16(128)", "vgg416(32)", "66.8", "published", "everything allocated once"],
    "reuse": ["alexnet(128)", "vgg16(64)", "conv5_3", "X waits", "published: more than this"],
    "deep": ["vgg116(32)", "vgg416(32)", "66.8", "published", "GB (2^30 bytes)"],
}
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in ("deep", "ranges") else name for name in WORDS]


@cache
def rows(name: str) -> Sequence[Any]:
    return BY_NAME[name].find(lambda doing: None).rows


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_has_its_words(name: str, tmp_path: Path) -> None:
    draw = BY_NAME[name].picture
    assert draw is not None
    assert missing(lambda: draw(rows(name)), WORDS[name], tmp_path) == []


def white_points(axes: Axes) -> list[tuple[float, float]]:
    lines = [line for line in axes.get_lines() if line.get_markerfacecolor() == "white"]
    return [(float(x), float(y)) for line in lines for x, y in np.asarray(line.get_data()).T]


def test_published_points_are_in_the_rows_of_their_networks_and_means() -> None:
    draw = BY_NAME["performance"].picture
    assert draw is not None
    (axes,) = draw(rows("performance")).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    places = dict(zip(names, axes.get_yticks(), strict=True))
    expected = [(100 - figure.value, places["mean"]) for figure in published.MEAN_LOST.values()]
    expected += [(published.REACHED.value, places["mean"]), (100 - published.LOST.value, places["vgg16(256)"])]
    assert sorted(white_points(axes)) == sorted(expected)


@pytest.mark.parametrize("name", NAMES)
def test_tables_fit_100_columns_and_json_has_every_property(name: str) -> None:
    tables = BY_NAME[name].tables
    assert tables is not None
    (table,) = tables(rows(name))
    assert len(table.rows) == len(rows(name))
    assert max(map(len, table.text().splitlines())) <= 100
    for row in rows(name)[:1]:
        document = to_json(row)
        assert name == "reuse" or {"average_saving", "peak_saving", "host_share", "performance_lost"} <= set(document)


def test_a_row_that_does_not_fit_says_why() -> None:
    tables = BY_NAME["performance"].tables
    assert tables is not None
    (line,) = [row for row in tables(rows("performance"))[0].rows if row[:2] == ["vgg16(256)", "conv (p)"]]
    assert line[3:5] == ["–", "–"] and "does not fit: step 8 (conv2_2 forward)" in line[-1]
