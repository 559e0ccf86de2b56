"""A picture of several setups side by side: memory at its peak, time, and traffic, as bars."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.report.comparison import Compared, Spread, shortest
from refimpl.report.figures import NAME
from refimpl.text import duration, size


def comparison_picture(name: str, setups: Sequence[Compared], spread: Spread | None = None) -> Figure:
    """A row a setup.

    Args:
        name: what the setups have in common: network, batch, machine, budget, and whether times are simulated.
        setups: in the order of the rows.
        spread: their slow-downs on possible machines: each time has its interval.
    """
    height = 1.25 + 0.42 * len(setups)
    with style.page(11, height, "Setups compared: memory, time, traffic", name, head=0.55) as figure:
        memory, time, traffic = figure.subplots(1, 3, sharey=True)
        rows = -np.arange(len(setups))
        _memory(memory, rows, setups)
        _time(time, rows, setups, spread)
        _traffic(traffic, rows, setups)
        memory.set_yticks(rows, [label(setup.name) for setup in setups], fontsize=9)
        memory.set_ylim(rows[-1] - 0.6, 0.6)
        for axes in (memory, time, traffic):
            style.named_rows(axes)
            style.grid(axes, "x")
    return figure


def label(name: str) -> str:
    """A setup's name in up to three short lines."""
    return textwrap.fill(textwrap.shorten(name, NAME, placeholder=" …"), 26, break_long_words=False)


def _memory(axes: Axes, rows: np.ndarray, setups: Sequence[Compared]) -> None:
    """The most that is in use, and live bytes darker within it."""
    budgets = {setup.budget for setup in setups}
    budget = budgets.pop() if len(budgets) == 1 else None
    most = max((setup.peak_bytes for setup in setups), default=0)
    near = budget if budget and (not most or budget <= 1.6 * most) else 0
    axes.barh(rows, [setup.peak_bytes for setup in setups], 0.62, color=style.SKY, label="in use")
    axes.barh(rows, [setup.live_bytes for setup in setups], 0.28, color=style.BLUE, label="live")
    _scale(axes, max(most, near), *style.byte_unit(max(most, near, 1)), "peak of device memory")
    for row, setup in zip(rows, setups, strict=True):
        if setup.fits:
            _value(axes, row, setup.peak_bytes, size(setup.peak_bytes))
        else:
            text = f"does not fit: {setup.misfit}"
            axes.text(0, row, f" {text}", va="center", ha="left", fontsize=8, style="italic", color=style.VERMILION)
    if near:
        style.limit(axes, near, across=False, label="budget")
    style.legend_above(axes, 3)


def _time(axes: Axes, rows: np.ndarray, setups: Sequence[Compared], spread: Spread | None) -> None:
    """An iteration: in kernels, and stalled; a line from the 5th to the 95th percentile of the slow-down."""
    kernels = [setup.seconds - setup.stall for setup in setups]
    axes.barh(rows, kernels, 0.62, color=style.ORANGE, label="in kernels")
    stalls = [setup.stall for setup in setups]
    axes.barh(rows, stalls, 0.62, kernels, color=style.WORK_STYLE["stalled"][0], label="stalled")
    least = spread.seconds if spread else shortest(setups)
    slow_downs = [(spread and spread.interval(setup)) or (0.0, 0.0) for setup in setups]
    ends = [max(setup.seconds, least * high) for setup, (_, high) in zip(setups, slow_downs, strict=True)]
    if spread:
        low, high = np.transpose(slow_downs) * least
        axes.hlines(rows, low, high, color=style.INK, linewidth=1.4, label="5 to 95 %")
    longest = max(ends, default=0.0)
    _scale(axes, longest, *style.time_unit(longest or 1.0), "an iteration")
    for row, setup, end in zip(rows, setups, ends, strict=True):
        if setup.fits:
            _value(axes, row, end, f"{duration(setup.seconds)}, {setup.seconds / least:.2f} ×")
    style.legend_above(axes, 3)


def _traffic(axes: Axes, rows: np.ndarray, setups: Sequence[Compared]) -> None:
    """Bytes copied out and in."""
    axes.barh(rows + 0.16, [setup.out_bytes for setup in setups], 0.3, color=style.PURPLE, label="out")
    axes.barh(rows - 0.16, [setup.in_bytes for setup in setups], 0.3, color=style.GREEN, label="in")
    most = max(max(setup.out_bytes, setup.in_bytes) for setup in setups)
    _scale(axes, most, *style.byte_unit(max(most, 1)), "copied in an iteration")
    for row, setup in zip(rows, setups, strict=True):
        if setup.fits:
            _value(axes, row + 0.16, setup.out_bytes, size(setup.out_bytes), 7)
            _value(axes, row - 0.16, setup.in_bytes, size(setup.in_bytes), 7)
    style.legend_above(axes, 2)


def _scale(axes: Axes, most: float, unit: float, name: str, label: str) -> None:
    """From 0 to a good deal over the longest bar, so that its value has room after it."""
    top = most * 1.42 or unit
    axes.set_xlim(0, top)
    axes.set_xticks(np.arange(0, top, style.nice_step(top / unit, 5) * unit))
    style.in_units(axes.xaxis, unit)
    axes.set_xlabel(f"{label} ({name})")


def _value(axes: Axes, row: float, x: float, text: str, points: float = 8) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8}
    axes.annotate(text, (x, row), (4, 0), textcoords="offset points", va="center", ha="left", fontsize=points, bbox=box)
