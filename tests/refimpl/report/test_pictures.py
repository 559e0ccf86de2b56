"""Pictures: really drawn, the same each time, with every label in them; and how they are chosen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from refimpl import plan
from refimpl.report import style
from refimpl.report.batch_picture import batch_picture
from refimpl.report.comparison import Compared, Spread, compared
from refimpl.report.comparison_picture import comparison_picture
from refimpl.report.figures import memory_curve
from refimpl.report.memory_pictures import memory_picture, pool_picture
from refimpl.report.timeline_picture import around_stall, bars, timeline_picture
from tests.messages import raises_naming
from tests.refimpl.report.programs import SMALL, baseline, compressing, deep, evicting, offloading, timeline


def side_by_side() -> Figure:
    found = [compared(make.__name__, make(), timeline(make)) for make in SMALL]
    return comparison_picture("several networks", [*found, Compared("greedy", 512, misfit="fails at conv1 forward")])


def test_an_interval_is_a_line_beside_the_time_it_belongs_to() -> None:
    possible = np.linspace(1.0, 3.0, 21)
    rows = [Compared("a", 1, seconds=2.0, possible=possible), Compared("b", 1, misfit="fails"), Compared("c", 1)]
    _, axes, _ = comparison_picture("m", rows, Spread.of(rows, (np.full(21, 2.0), 1.6))).axes
    (lines,) = [one for one in axes.collections if isinstance(one, LineCollection) and one.get_label() == "5 to 95 %"]
    assert lines.get_segments()[0] == pytest.approx(np.array([[0.55 * 1.6, 0], [1.45 * 1.6, 0]]))
    assert "2 s, 1.25 ×" in [text.get_text() for text in axes.texts]


#: What is drawn, and words that must be in it.
PICTURES: dict[str, tuple[Callable[[], Figure], list[str]]] = {
    "memory": (
        lambda: memory_picture(offloading()),
        ["vgg16, batch 64", "offload", "titan-x (simulated)", "budget 6 GiB", "held by the pool (GiB)", "draining",
         "step, by its layer's name", "forward", "backward", "gradient map", "conv5_3", "at most: step"],
    ),
    "deep memory": (lambda: memory_picture(deep()), ["resnet:194", "of resident tensors (MiB)", "step", "map"]),
    "pool": (
        lambda: pool_picture(evicting()),
        ["tiny-resnet, batch 32", "address in the pool (MiB)", "holes (MiB)", "largest hole", "all holes",
         "at its fullest", "resident"],
    ),
    "timeline": (
        lambda: timeline_picture(offloading(), timeline(offloading)),
        ["compute", "out", "in", "stalled", "time since the iteration began", "the whole iteration", "closer: steps",
         "copy out", "prefetch"],
    ),
    "compressed": (
        lambda: timeline_picture(compressing(), timeline(compressing)),
        ["compute", "out", "in", "host", "compress", "decompress", "tiny-vgg:vdnnpp"],
    ),
    "batch": (
        lambda: batch_picture("X(b)", "a network", {8: 40.0, 16: 50.0}, [("b*", 8, 40.0), ("most", 16, 50.0)]),
        ["images a second", "b*: 8", "most: 16"],
    ),
    "comparison": (
        side_by_side,
        ["peak of device memory", "an iteration (", "copied in an iteration", "in kernels",
         "does not fit: fails at conv1 forward", "sharing", "1.00 ×"],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_an_svg_holds_every_label(name, tmp_path) -> None:
    make, words = PICTURES[name]
    style.save(make(), tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert 10_000 < len(text) < 3_000_000 and "<dc:date>" not in text
    said = " ".join(re.findall(r">([^<>]+)</(?:text|tspan)>", text)).replace("&#x27;", "'")
    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize("path", ["picture.pdf", "picture"])
def test_other_files_are_refused(path) -> None:
    with raises_naming(ValueError, ".png", ".svg"):
        style.save(memory_picture(baseline()), Path(path))


# -- what is chosen to be drawn ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", SMALL)
def test_the_peak_is_marked_in_the_middle_of_its_time(make) -> None:
    """On the curve, and on the step that the words name: not on the line between two steps."""
    program = make()
    curve = memory_curve(program)
    places = style.step_axis(program)
    (axes,) = memory_picture(program).axes
    (dot,) = [line for line in axes.get_lines() if line.get_marker() == "o"]
    (x,) = np.asarray(dot.get_xdata(), dtype=float)
    before = int(np.searchsorted(places[np.maximum(curve.positions, 0)], x, "right")) - 1
    assert curve.total[before] == program.peak_bytes
    named = next(text.get_text() for text in axes.texts if "at most" in text.get_text())
    assert f"step {round(x)}," in named and abs(x - round(x)) < 0.45
    line = pool_picture(program).axes[0].get_lines()[-1]
    assert x == pytest.approx(np.asarray(line.get_xdata(), dtype=float)[0])


@pytest.mark.parametrize("make", SMALL)
def test_bars_cover_the_work_of_a_stream_and_its_stalls(make) -> None:
    program, line = make(), timeline(make)
    found = bars(program, line)
    for stream in range(len(line.streams)):
        own = [bar for bar in found if bar.stream == stream]
        assert all(a.end <= b.start + 1e-12 for a, b in pairwise(own))
        work = sum(bar.end - bar.start for bar in own if bar.what != "stalled")
        assert work == pytest.approx(sum(span.end - span.start for span in line.spans if span.stream == stream))
    stalled = sum(bar.end - bar.start for bar in found if bar.what == "stalled")
    launches = [span for span in line.spans if span.engine == "compute"]
    assert stalled == pytest.approx(line.stall - (line.seconds - max(span.end for span in launches)))


def test_copies_of_other_tiers_than_the_hosts_are_marked() -> None:
    """A line below each, in the tier's colour; the legend names the tiers that are used, and no other."""
    program = plan("alexnet", "superneurons-offload", "titan-x", tiers="peer:100MiB,remote:30MiB,host")
    line = program.simulate()
    of_tier = Counter(bar.tier for bar in bars(program, line))
    assert set(of_tier) == {"peer", "remote", "host"} == {*program.tier_bytes, "host"}
    figure = timeline_picture(program, line, range(1, 3))
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named[-2:] == ["peer tier", "remote tier"]
    below = [c for c in figure.axes[0].collections if c.get_paths() and c.get_paths()[0].get_extents().height < 0.2]
    colours = [np.asarray(c.get_facecolor())[0] for c in below for _ in c.get_paths()]
    assert Counter(to_hex(colour).upper() for colour in colours) == {
        style.TIER_COLOURS[0]: of_tier["peer"],
        style.TIER_COLOURS[1]: of_tier["remote"],
    }
    plain = timeline_picture(offloading(), timeline(offloading))
    assert not any("tier" in text.get_text() for text in plain.legends[0].get_texts())


def test_the_closer_view_is_of_the_longest_stall() -> None:
    program, line = offloading(), timeline(offloading)
    found = bars(program, line)
    window = around_stall(program, line, found)
    longest = max((b for b in found if b.what == "stalled" and b.start > 0), key=lambda bar: bar.end - bar.start)
    after = next(
        s for s in sorted(line.spans, key=lambda s: s.start) if s.engine == "compute" and s.start >= longest.end
    )
    assert after.instruction.step in window
    assert 1 <= window[0] and window[-1] <= len(program.network.steps)


@pytest.mark.slow
def test_a_deep_network_is_drawn(tmp_path) -> None:
    style.save(timeline_picture(deep(), timeline(deep)), tmp_path / "timeline.png")
    style.save(pool_picture(deep()), tmp_path / "pool.svg")
    assert (tmp_path / "pool.svg").stat().st_size < 3_000_000, "many blocks are an image, not shapes"
