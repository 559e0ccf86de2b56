"""A picture of the timeline: the work of every stream, for the whole iteration and, closer, for a few steps.

A copy to or from another tier than the host's memory has a line below it, in the tier's colour.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refimpl.machine import HOST, Span, Timeline
from refimpl.network import Call, Step
from refimpl.planner import HostCopy, Launch, Program
from refimpl.report import style
from refimpl.report.figures import title
from refimpl.report.times import step_times
from refimpl.text import duration

FEW_STEPS = 24  #: a program with no more is shown whole, and nothing closer
AROUND = 6  #: steps before and after the longest stall that the closer view shows
FEW_BARS = 250  #: in a panel: they have white edges, which would cover the narrow ones of more
MANY = 1200  #: bars beyond which an SVG's panel holds an image of them in place of the shapes
POINT = 0.6  #: width of a letter, as a share of the font's size
LIGHT = ("backward", "prefetch", "batch, results", "copy out", "to the store")  #: bars that carry dark letters


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a copy, or all launches of a step that follow without a gap."""

    stream: int
    what: str  #: one of `style.WORK_STYLE`
    name: str
    start: float  #: seconds
    end: float
    tier: str = HOST  #: of a copy: the memory at its other end


def bars(program: Program, timeline: Timeline) -> list[Bar]:
    """The timeline's bars, stream by stream in order of time, and the compute stream's stalls."""
    step_of_call = {call: step for step in program.network.steps for call in step.calls}
    found: list[Bar] = []
    for stream in range(len(timeline.streams)):
        last: Bar | None = None
        for span in sorted((s for s in timeline.spans if s.stream == stream), key=lambda span: span.start):
            bar = bar_of(program, step_of_call, span)
            if last and (bar.what, bar.name) == (last.what, last.name) and bar.start <= last.end:
                last = found[-1] = replace(last, end=bar.end)
                continue
            before = last.end if last else 0.0
            if span.engine == "compute" and bar.start > before:
                found.append(Bar(stream, "stalled", "", before, bar.start))
            found.append(bar)
            last = bar
    return found


def bar_of(program: Program, step_of_call: dict[Call, Step], span: Span) -> Bar:
    """The bar of one launch, copy or piece of the host's work."""
    i = span.instruction
    what: str
    if isinstance(i, Launch):
        what = "rebuild" if i.rebuild else program.network.steps[i.step - 1].direction
        what = "all-reduce" if span.engine == "network" else what
        return Bar(span.stream, what, step_of_call[i.call].layer.name, span.start, span.end)
    if isinstance(i, HostCopy):
        what = "from the store" if i.inwards else "to the store"
    else:
        what = "batch, results" if i.why in ("batch", "result") else i.op if i.op in style.WORK_STYLE else i.why
    what, tier = what if what in style.WORK_STYLE else "prefetch", getattr(i, "tier", HOST)
    return Bar(span.stream, what, i.tensor.name, span.start, span.end, tier)


def codec_words(program: Program) -> dict[str, str]:
    """Kind of bar → the word of the program's codec for it, if the program has one."""
    copies = (i for i in program.instructions if isinstance(i, HostCopy))
    codec = next((i.codec for i in copies), None)
    return {"to the store": codec.packs, "from the store": codec.unpacks} if codec else {}


def timeline_picture(program: Program, timeline: Timeline, window: range | None = None) -> Figure:
    """Every stream's work over time; `window` are the numbers of the steps to show closer.

    Without a window, a deep network's closer view is of the steps around the longest time in which no kernel ran.
    """
    found = bars(program, timeline)
    if window is None and len(program.network.steps) > FEW_STEPS:
        window = around_stall(program, timeline, found)
    seconds, stalled = duration(timeline.seconds), timeline.stall / timeline.seconds if timeline.seconds else 0
    subtitle = f"{title(program, timeline)} · {seconds} an iteration, {stalled:.1%} of it stalled".replace("%", " %")
    height = style.HEAD + (0.55 * len(timeline.streams) + 0.6) * (2 if window else 1) + 0.2
    with style.page(11, height, "When everything runs, stream by stream", subtitle) as figure:
        panels = figure.subplots(2 if window else 1, 1, squeeze=False)[:, 0]
        _panel(panels[0], timeline, found, 0.0, timeline.seconds)
        if window:
            start, end = _moments(program, timeline, window)
            panels[0].axvspan(start, end, color=style.LINE, linewidth=0, zorder=0)
            panels[0].set_title("the whole iteration", fontsize=9)
            _panel(panels[1], timeline, found, start, end)
            panels[1].set_title(_window_title(program, window), fontsize=9)
        panels[-1].set_xlabel(f"time since the iteration began ({style.time_unit(timeline.seconds)[1]})")
        words = codec_words(program)
        names = [words.get(what, what) for what in style.WORK_STYLE if any(bar.what == what for bar in found)]
        looks = {words.get(what, what): look for what, look in style.WORK_STYLE.items()}
        tiers = {f"{tier} tier": (colour, "") for tier, colour in tier_colours(found).items()}
        style.legend(figure, looks | tiers, [*names, *tiers])
    return figure


def tier_colours(found: Sequence[Bar]) -> dict[str, str]:
    """Tier → the colour of the line below the copies to it and from it; the host's have none."""
    tiers = dict.fromkeys(bar.tier for bar in found if bar.tier != HOST)
    return dict(zip(tiers, itertools.cycle(style.TIER_COLOURS)))


def around_stall(program: Program, timeline: Timeline, found: Sequence[Bar]) -> range:
    """The steps around the longest stall after the first step; without one, those around the turn to backward."""
    count = len(program.network.steps)
    times = step_times(program, timeline)
    stalls = [bar for bar in found if bar.what == "stalled" and bar.start > 0]
    longest = max(stalls, key=lambda bar: bar.end - bar.start, default=None)
    if longest is None or longest.end - longest.start < 1e-4 * timeline.seconds:
        middle = program.network.depth
    else:
        middle = int(np.searchsorted([start for start, _ in times], longest.end * (1 - 1e-9)))
    first = max(1, min(middle - AROUND + 1, count - 2 * AROUND + 1))
    return range(first, min(first + 2 * AROUND, count + 1))


def _moments(program: Program, timeline: Timeline, window: range) -> tuple[float, float]:
    times = step_times(program, timeline)
    start, end = times[window[0] - 1][0], times[window[-1] - 1][1]
    margin = 0.02 * (end - start)
    return max(start - margin, 0.0), min(end + margin, timeline.seconds)


def _window_title(program: Program, window: range) -> str:
    first, last = (program.network.steps[number - 1] for number in (window[0], window[-1]))
    names = f"{first.title} to {last.title}"
    return f"closer: steps {first.number} to {last.number}, {names}"


def _panel(axes: Axes, timeline: Timeline, found: Sequence[Bar], start: float, end: float) -> None:
    """The bars between two moments, a lane a stream."""
    lanes(axes, timeline.streams, found, start, end)
    unit, _ = style.time_unit(timeline.seconds)
    step = style.nice_step((end - start) / unit, 10) * unit
    axes.set_xticks(np.arange(np.ceil(start / step), np.floor(end / step + 1e-9) + 1) * step)
    style.in_units(axes.xaxis, unit)


def lanes(axes: Axes, names: Sequence[str], found: Sequence[Bar], start: float, end: float) -> None:
    """The bars between two moments (seconds), a lane a name, the first on top; time is written in milliseconds."""
    seen = [bar for bar in found if bar.end > start and bar.start < end]
    _bars(axes, seen, start, end)
    for tier, colour in tier_colours(found).items():
        for lane in {bar.stream for bar in seen if bar.tier == tier}:
            spans = [(bar.start, bar.end - bar.start) for bar in seen if bar.tier == tier and bar.stream == lane]
            axes.broken_barh(spans, (-lane - 0.46, 0.1), facecolor=colour, linewidth=0)
    axes.set_yticks([-lane for lane in range(len(names))], list(names))
    axes.set(xlim=(start, end), ylim=(-len(names) + 0.5, 0.5))
    style.in_units(axes.xaxis, 1e-3)
    style.named_rows(axes)


def _bars(axes: Axes, seen: Sequence[Bar], start: float, end: float) -> None:
    """Each bar by itself, named where the name has room."""
    points = 11 * 72 * 0.9 / (end - start)  # of width, a second
    line = 0.4 if len(seen) < FEW_BARS else 0.0
    for what, (colour, hatch) in style.WORK_STYLE.items():
        for lane in {bar.stream for bar in seen if bar.what == what}:
            spans = [(bar.start, bar.end - bar.start) for bar in seen if bar.what == what and bar.stream == lane]
            edge = "none" if what == "stalled" else "white"
            look: Any = {"facecolor": colour, "hatch": hatch, "edgecolor": edge, "linewidth": line}
            axes.broken_barh(spans, (-lane - 0.36, 0.72), **look, rasterized=len(seen) > MANY)
    for bar in seen:
        left, right = max(bar.start, start), min(bar.end, end)
        width, letters = (right - left) * points, len(bar.name)
        flat, upright = letters * 7 * POINT + 3 <= width, width >= 9 and letters <= 8
        if bar.name and (flat or upright):
            colour = style.INK if bar.what in LIGHT else "white"
            turned = {"rotation": 0 if flat else 90, "fontsize": 7 if flat else 6}
            axes.text((left + right) / 2, -bar.stream, bar.name, color=colour, ha="center", va="center", **turned)  # type: ignore[arg-type]
