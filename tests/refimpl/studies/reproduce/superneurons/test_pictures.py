"""SuperNeurons' pictures: every word in them, the same file again, and the published points where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from refimpl.studies.reproduce.superneurons import capacity, published
from refimpl.studies.reproduce.superneurons.by_type import STRUCTURE, TYPES, TypeRow
from refimpl.studies.reproduce.superneurons.evaluation import PARTS
from refimpl.studies.reproduce.superneurons.pictures import (
    CURVES,
    KIND_COLOURS,
    KIND_NAMES,
    curve_picture,
    memory_picture,
    types_picture,
)
from tests.matrix import some
from tests.refimpl.report.svg import missing

pytestmark = pytest.mark.superneurons

EVALUATION = {part.name: part for part in PARTS}
KINDS = [*TYPES.values(), STRUCTURE]


@cache
def found(name: str) -> Sequence[Any]:
    """The rows of a part."""
    return EVALUATION[name].find(lambda text: None).rows


def row(network: str, setup: str, size: int) -> capacity.CapacityRow:
    theirs = published.DEEPEST if network == capacity.DEEP else published.LARGEST.get(network)
    return capacity.CapacityRow(
        network=network,
        batch=16 if network == capacity.DEEP else size,
        depth=size if network == capacity.DEEP else None,
        setup=setup,
        resident_bytes=1 << 30,
        peak_bytes=3 << 30,
        host_bytes=7 << 29,
        recomputed_layers=17,
        images_a_second=12.34,
        tried=9,
        published=theirs if setup == capacity.ALL else None,
    )


SETUPS = [*capacity.SETUPS, *capacity.WITHOUT]
LARGEST = [
    *(row(name, setup, 100 + 50 * i + j) for j, name in enumerate(capacity.NETWORKS) for i, setup in enumerate(SETUPS)),
    *(row(capacity.DEEP, setup, 200 + 300 * i) for i, setup in enumerate(capacity.SETUPS)),
]


WORDS = {
    "curve": ["alexnet:superneurons, batch 200", "every tensor allocated: 2,189.4 MiB", "1,489.4 MiB · step 32, POOL5",
              "1,132.1 MiB · step 39, POOL2", "step 44, LRN1", "alive (MiB)", "tensors alive", "SOFTMAX", "forward"],
    "memory": ["everything allocated once (GiB)", "alive at the peak (% of that)", "inceptionv4(32)", "19.3 GiB",
               "CONCAT", "FC, DROPOUT, SOFTMAX", "a single step", "both, on demand"],
    "total": ["GB (10⁹ bytes)", "inceptionv4(32)", "published", "with workspaces, both ways"],
    "types": ["share of an iteration's time (%)", "share of the bytes needed (%)", "DROPOUT", "62", "paler bars"],
    "cache-speed": ["speed with the cache (× without)", "resnet152(32)", "titan-xp", "1.25", "published"],
    "workspaces": ["pool of 3 GiB: 384 images/s", "pool of 5 GiB: 703 images/s", "CONV4 dW", "of the fastest"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", some(WORDS, "curve", "total", "types"))
def test_an_svg_holds_every_label(name: str, tmp_path: Path) -> None:
    draw = EVALUATION[name].picture
    assert draw is not None
    assert missing(lambda: draw(found(name)), WORDS[name], tmp_path) == []


def test_the_published_points_are_those_of_the_paper_and_the_lines_ours() -> None:
    memory, tensors = curve_picture(found("curve")).axes
    points = published.curve()
    for axes, of_point in ((memory, "mib"), (tensors, "tensors")):
        for name, (colour, *_) in CURVES.items():
            drawn = [line for line in axes.get_lines() if to_hex(line.get_color()) == colour.lower()]
            dots = next(line for line in drawn if line.get_marker() == "o")
            curve = next(line for line in drawn if line.get_marker() != "o")
            theirs = [getattr(point, of_point)[name] for point in points]
            assert np.asarray(dots.get_ydata()).tolist() == theirs
            assert np.asarray(dots.get_xdata()).tolist() == [*range(1, 47)]
            assert np.asarray(curve.get_ydata())[::2] == pytest.approx(theirs, abs=0.02)


@pytest.mark.slow
def test_the_bars_are_as_long_as_the_totals() -> None:
    rows = found("memory")
    total = memory_picture(rows).axes[0]
    ends: dict[float, float] = {}
    for bar in total.patches:
        assert isinstance(bar, Rectangle)
        ends[round(bar.get_y(), 3)] = max(ends.get(round(bar.get_y(), 3), 0.0), bar.get_x() + bar.get_width())
    assert sorted(ends.values()) == pytest.approx(sorted(row.managed_bytes / (1 << 30) for row in rows))


@pytest.mark.slow
def test_every_kind_of_layer_has_a_name_and_large_ones_a_colour_of_their_own() -> None:
    for row in found("memory"):
        assert row.kind_bytes.keys() <= KIND_NAMES.keys()
        small = {kind: nbytes for kind, nbytes in row.kind_bytes.items() if kind not in KIND_COLOURS}
        assert all(nbytes < 0.02 * row.managed_bytes for nbytes in small.values())
    assert len(set(KIND_COLOURS.values())) == len(KIND_COLOURS)


# -- by type, and what fits -----------------------------------------------------------------------------------------


def test_the_bars_by_type_fill_a_row_and_the_published_ones_are_below() -> None:
    theirs = published.MEMORY_SHARES
    rows = [
        TypeRow(name, 1, dict.fromkeys(KINDS, 1.0), dict.fromkeys(KINDS, 2), dict.fromkeys(TYPES.values(), 1))
        for name in theirs
    ]
    _, memory = types_picture(rows).axes
    lengths: dict[float, float] = {}
    for bar in memory.patches:
        assert isinstance(bar, Rectangle)
        middle = round(bar.get_y() + bar.get_height() / 2, 2)
        lengths[middle] = lengths.get(middle, 0.0) + bar.get_width()
    for place, name in enumerate(theirs):
        assert lengths[-place + 0.19] == pytest.approx(100)
        assert lengths[-place - 0.19] == pytest.approx(sum(figure.value for figure in theirs[name].values()))


def test_the_tables_of_what_fits() -> None:
    tables = EVALUATION["largest"].tables
    assert tables is not None
    largest, everything = tables(LARGEST)
    assert largest.head == ["images", *SETUPS, "published"]
    assert largest.rows[0] == ["alexnet", "100", "150", "200", "250", "300", "350", "1792"]
    assert largest.rows[2][-1] == "–", "VGG-19 is not in the paper's table"
    assert largest.rows[-1] == ["layers (16 images)", "200", "500", "800", "1100", "1400", "", "1920"]
    assert "inceptionv4 16, –, –, 64" in largest.note and "TensorFlow 592" in largest.note
    assert everything.rows[0] == ["alexnet", "300", "1.00", "3.00", "3.50", "17", "12.3", "9"]
    assert len(everything.rows) == len(capacity.NETWORKS) + 1


def test_the_tables_by_type_have_the_published_shares_below_ours() -> None:
    tables = EVALUATION["types"].tables
    assert tables is not None
    needed = dict.fromkeys(TYPES.values(), 1) | {"LRN": 0}
    seconds, calls = dict.fromkeys(KINDS, 1.0) | {"structure": 2.0}, dict.fromkeys(KINDS, 3)
    time, memory = tables([TypeRow("vgg16", 32, seconds, calls, needed)])
    assert time.head == ["network", *KINDS]
    assert time.rows[0] == ["vgg16(32)", *["10.0"] * 8, "20.0"]
    assert time.rows[1] == ["  with a fixed cost", *["10.8"] * 8, "13.5"], "a second, the most that is tried"
    assert time.rows[2] == ["  published", "53.0", "8.2", "16.4", "–", "–", "8.7", "8.7", "4.9", "–"]
    assert memory.rows[0] == ["vgg16(32)", "14.3", "14.3", "14.3", "–", "14.3", "14.3", "14.3", "14.3"]
    assert memory.rows[1] == ["  published", "37.3", "15.8", "46.8", *["–"] * 5]


def test_a_step_that_differs_from_the_published_one_is_marked() -> None:
    tables = EVALUATION["curve"].tables
    assert tables is not None
    rows = [replace(row, mib=row.mib + 0.1) if row.step == 3 and row.setup == "offload" else row
            for row in found("curve")]  # fmt: skip
    rows = [replace(row, tensors=1) if row.step == 4 and row.setup == "recompute" else row for row in rows]
    (table,) = tables(rows)
    marked = [line for line in table.rows if any("!" in cell or "≠" in cell for cell in line)]
    assert [line[0] for line in marked] == ["3", "4"]
    assert marked[0][7] == "443.215 !" and marked[1][-2:] == ["496.509 !", "1≠"]
