"""Pictures of fragmentation: what is drawn is what was replayed, every word is there, the same file again."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED, BestFit
from refimpl.memory.allocation_trace import TraceEvent, rounded
from refimpl.names.networks import build
from refimpl.planner import Program, plan
from refimpl.report import style
from refimpl.studies.fragmentation.pictures import (
    LOOKS,
    SHOWN,
    bars_picture,
    look,
    map_picture,
    moments,
    percent,
    replayed,
    sizes_picture,
)
from refimpl.studies.fragmentation.study import HEURISTICS, PLANNED, PoolRow, setup, study
from refimpl.vdnnpp.pool_search import find_pool

pytestmark = pytest.mark.vdnnpp

MIB = 1 << 20
UNIT = 512


@cache
def program(policy: str = "conv") -> Program:
    return plan(build("alexnet:vdnnpp", 128), setup(policy), MACHINES["gtx-970"], UNLIMITED)


@cache
def drawn(policy: str = "conv") -> Figure:
    return map_picture(program(policy), "AlexNet")


def not_monotone() -> list[TraceEvent]:
    """The trace that fits in 9 units and not in 10, 11 or 12."""
    sizes = {"a": 5, "b": 2, "c": 1, "e": 1, "h": 8}
    names = "abcBeACh"  # a capital: freed
    return [
        TraceEvent(ord(name.lower()), 0 if name.isupper() else UNIT * sizes[name.lower()], name=name.lower())
        for name in names
    ]


def boxes(axes: Axes) -> dict[str, list[tuple[float, float, float, float]]]:
    """Colour → blocks: left, right, bottom, top."""
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for shapes in axes.collections:
        if isinstance(shapes, PolyCollection):
            for path in shapes.get_paths():
                x, y = np.asarray(path.vertices).T
                colour = to_hex(np.asarray(shapes.get_facecolor())[0])
                found.setdefault(colour.upper(), []).append((x.min(), x.max(), y.min(), y.max()))
    return found


def test_every_block_is_drawn_where_it_lay_as_long_as_it_lived() -> None:
    events = program().allocation_trace()
    places = moments(events)
    panels = drawn().axes
    for number, name in enumerate(SHOWN):
        size = find_pool(events, HEURISTICS[name]).pool_bytes
        panel = replayed(name, events, HEURISTICS[name], size)
        expected: dict[str, list[tuple[float, float, float, float]]] = {}
        for at, event in enumerate(events):
            if event.nbytes:
                end = next((k for k, e in enumerate(events) if e.block == event.block and not e.nbytes), len(events))
                bottom = panel.addresses[event.block]
                corners = places[at], places[end], bottom / MIB, (bottom + rounded(event.nbytes)) / MIB
                expected.setdefault(LOOKS[look(event)].upper(), []).append(corners)
        found = boxes(panels[4 + number])
        assert found.keys() == expected.keys()
        for colour, corners_of in expected.items():
            assert np.allclose(found[colour], corners_of)


def test_a_pool_of_the_ideal_size_shows_what_had_no_hole() -> None:
    """AlexNet, conv, best fit: d(conv2) needs 91.12 MiB in step 21, and the largest hole is at 0."""
    axes = drawn().axes[0]
    words = [text.get_text() for text in axes.texts]
    assert words == ["d(conv2) asks 91.12 MiB,\nlargest hole 75.48 MiB"]
    assert axes.get_title(loc="left") == "best left (smallest hole, low end):\nfails in step 21"
    (frame,) = [p for p in axes.patches if to_hex(p.get_edgecolor()) == style.VERMILION.lower()]
    assert isinstance(frame, Rectangle)
    assert frame.get_y() == 0 and frame.get_height() == pytest.approx(91.12, abs=0.01)
    assert all(right <= frame.get_x() for found in boxes(axes).values() for _, right, _, _ in found)


def test_a_trace_without_steps_counts_events() -> None:
    events = not_monotone()
    assert list(moments(events)) == list(range(9))
    figure = sizes_picture(events, BestFit(), [UNIT * n for n in (9, 10, 11)], "t", "s", (UNIT, "units"))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["9 units: all of it fits", "10 units: fails", "11 units: fails"]
    frames = [
        (p.get_y(), p.get_height())
        for axes in figure.axes
        for p in axes.patches
        if isinstance(p, Rectangle) and to_hex(p.get_edgecolor()) == style.VERMILION.lower()
    ]
    assert frames == [(0, 8), (6, 8)]  # of two holes of 5 either one; of 5 and 7 the upper
    assert [text.get_text() for text in figure.axes[1].texts] == ["a", "b", "c", "e"]


def rows() -> list[PoolRow]:
    return list(study(build("tiny-vgg:vdnnpp", 8), MACHINES["gtx-970"]))


def test_bars_are_as_high_as_the_figures() -> None:
    found = rows()
    figure = bars_picture(found, "tiny")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["prefetch, then dX", "dX, then prefetch"]
    for axes, order in zip(figure.axes, ("early", "late"), strict=True):
        expected = [row for name in (*HEURISTICS, PLANNED) for row in found
                    if row.order in (order, None) and row.heuristic == name]  # fmt: skip
        bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert np.allclose([bar.get_height() for bar in bars], [100 * row.found.fragmentation for row in expected])
        assert [bool(bar.get_hatch()) for bar in bars] == ["right" in row.heuristic for row in expected]
        assert [t.get_text() for t in axes.texts] == [percent(100 * row.found.fragmentation) for row in expected]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*HEURISTICS, PLANNED]
    alone = bars_picture([row for row in found if row.policy == "none"], "tiny")
    assert [axes.get_title(loc="left") for axes in alone.axes] == ["nothing is prefetched"]
