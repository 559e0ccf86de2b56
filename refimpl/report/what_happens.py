"""One picture of what a policy does: the memory that the GPU holds, over time, above what the streams do meanwhile.

Beside the program's memory is that of the same network with every map kept, as if memory had no end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refimpl.machine import Timeline
from refimpl.planner import Program
from refimpl.report import style
from refimpl.report.figures import memory_curve, title
from refimpl.report.timeline_picture import bars, lanes
from refimpl.report.times import compute_clock, step_times
from refimpl.text import size

MEANING = {
    "forward": "forward",
    "backward": "backward",
    "rebuild": "computed again",
    "copy out": "to the host's memory",
    "prefetch": "back, before it is needed",
    "on demand": "back, when it is needed",
    "stalled": "the GPU waits",
}


def what_happens_picture(program: Program, kept: Program) -> Figure:
    """Memory over time of a program and of one that keeps every map, and below it the first one's streams."""
    timeline, unhindered = program.simulate(), kept.simulate()
    end = max(timeline.seconds, unhindered.seconds)
    head = title(program, timeline)
    with style.page(11, 5.2, "The GPU's memory during one iteration, and what its streams do", head) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 0.6 + 0.3 * len(timeline.streams)))
        _memory(upper, kept, unhindered, style.VERMILION, "every map stays on the GPU")
        _memory(upper, program, timeline, style.BLUE, f"with {program.setup.name}")
        most = kept.peak_bytes
        if program.budget <= 1.6 * most:  # else the curves would be on the floor
            most = max(most, program.budget)
            style.limit(upper, program.budget, color=style.INK)
            upper.text(0, program.budget, f" the GPU has {size(program.budget)}", va="bottom", fontsize=8)
        style.byte_axis(upper, most, "memory in use")
        found = bars(program, timeline)
        lanes(lower, timeline.streams, found, 0.0, end)
        unit, name = style.time_unit(end)
        style.in_units(lower.xaxis, unit)
        lower.set_xlabel(f"time since the iteration began ({name})")
        _mark_turn(upper, lower, program, timeline)
        names = [kind for kind in MEANING if any(bar.what == kind for bar in found)]
        style.legend(figure, {MEANING[kind]: style.WORK_STYLE[kind] for kind in names}, [MEANING[one] for one in names])
    return figure


def _memory(axes: Axes, program: Program, timeline: Timeline, colour: str, words: str) -> None:
    """The bytes in use at each moment, named beside their peak."""
    curve = memory_curve(program)
    clock = np.array(compute_clock(program, timeline))
    times = clock[np.maximum(curve.positions, 0)]
    axes.fill_between(times, curve.total, step="post", color=colour, alpha=0.15, linewidth=0)
    axes.step(times, curve.total, where="post", color=colour, linewidth=1.4)
    text = f"{words}: {size(program.peak_bytes)} at most"
    place: dict[str, Any] = {"xytext": (-8, -6), "textcoords": "offset points", "ha": "right", "va": "top"}
    axes.annotate(text, (times[curve.peak], program.peak_bytes), color=colour, fontsize=10, **place)


def _mark_turn(upper: Axes, lower: Axes, program: Program, timeline: Timeline) -> None:
    """A line at the moment when the program's backward begins."""
    depth, times = program.network.depth, step_times(program, timeline)
    if depth < len(times):
        style.mark_forward(upper, times[depth][0] - 0.5, 0.004 * timeline.seconds)
        lower.axvline(times[depth][0], color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)))
