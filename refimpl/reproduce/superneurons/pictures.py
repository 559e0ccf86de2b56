"""Pictures of SuperNeurons' evaluation: the memory curve step by step, memory by type of layer, what fits, what moves.

Where the paper published a figure, a small white point stands at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.reproduce.superneurons import capacity, published, traffic
from refimpl.reproduce.superneurons.figures import BudgetRow, CurveRow, MemoryRow

MIB, GIB = 1 << 20, 1 << 30

#: Set-ups of the memory curve: colour and words.
CURVES = {
    "liveness": (style.BLUE, "liveness analysis"),
    "offload": (style.ORANGE, "liveness, offload and prefetch"),
    "recompute": (style.GREEN, "liveness and recomputation"),
}

#: Kinds of layers: the paper's name and a colour.
KIND_NAMES = {
    "conv": "CONV", "pool": "POOL", "relu": "ACT", "lrn": "LRN", "batchnorm": "BN", "fc": "FC", "dropout": "DROPOUT",
    "softmax": "SOFTMAX", "fork": "FORK", "join": "JOIN", "concat": "CONCAT",
}  # fmt: skip
KIND_COLOURS = {
    "conv": style.BLUE, "relu": style.ORANGE, "batchnorm": style.GREEN, "pool": style.SKY, "lrn": style.PURPLE,
    "fork": style.YELLOW, "join": style.VERMILION, "concat": "#8C6D46",
}  # fmt: skip
SMALL_KINDS = "FC, DROPOUT, SOFTMAX"

#: How published figures are drawn, SuperNeurons' and those of others.
PUBLISHED: dict[str, Any] = {
    "marker": "o", "color": style.INK, "markerfacecolor": "white", "markersize": 7, "linestyle": "none", "zorder": 6,
}  # fmt: skip
OTHERS: dict[str, Any] = {"marker": "|", "color": style.PALE, "markersize": 12, "linestyle": "none"}


def by_kind(row: MemoryRow, kind: str) -> int:
    """Bytes that layers of this kind allocate, forward and backward."""
    return row.forward_bytes.get(kind, 0) + row.backward_bytes.get(kind, 0)


# -- the memory curve --------------------------------------------------------------------------------------------------


def curve_picture(rows: Sequence[CurveRow]) -> Figure:
    """What is alive before each step of AlexNet(200), technique upon technique, with the published points on it."""
    with style.styled():
        title = "What SuperNeurons' techniques leave of AlexNet's memory, step by step"
        subtitle = "alexnet:superneurons, batch 200 · lines: the planner's count · points: the paper's figure"
        figure = style.new_figure(11, 6.8, title, subtitle, 0.55)
        memory, tensors = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (4.4, 1)})
        for name, (colour, words) in CURVES.items():
            mine = [row for row in rows if row.setup == name]
            _curve(memory, mine, [row.mib for row in mine], [row.published_mib for row in mine], colour, words)
            counts, theirs = [row.tensors for row in mine], [row.published_tensors for row in mine]
            _curve(tensors, mine, counts, theirs, colour, words)
            _peak(memory, max(mine, key=lambda row: row.mib), colour, *LABELS[name])
        _everything(memory, published.TOTAL.value)
        memory.set_ylim(0, 1.07 * published.TOTAL.value)
        memory.set_ylabel("alive (MiB)")
        memory.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        memory.legend(loc="upper left", bbox_to_anchor=(0.005, 0.91), fontsize=9, handlelength=1.6)
        tensors.set_ylim(0, 26)
        tensors.set_yticks([0, 10, 20])
        tensors.set_ylabel("tensors alive")
        _steps(memory, tensors, [row for row in rows if row.setup == "liveness"])
    return figure


#: Where a peak's words stand: points to the right and up, which end of them, what parts value and place.
LABELS = {
    "liveness": (0, 7, "center", " · "),
    "offload": (-12, 5, "right", " · "),
    "recompute": (34, 30, "right", "\n"),
}


def _curve(axes: Axes, rows: Sequence[CurveRow], ours: list[Any], theirs: list[Any], colour: str, words: str) -> None:
    steps = np.array([row.step for row in rows], dtype=float)
    edges = np.repeat(np.append(steps - 0.5, steps[-1] + 0.5), 2)[1:-1]
    axes.fill_between(edges, np.repeat(ours, 2), color=colour, alpha=0.10, linewidth=0)
    axes.plot(edges, np.repeat(ours, 2), color=colour, linewidth=1.6, label=words, solid_joinstyle="miter")
    axes.plot(steps, theirs, "o", markersize=2.8, color=colour, markerfacecolor="white", markeredgewidth=0.9, zorder=5)


def _peak(axes: Axes, top: CurveRow, colour: str, right: float, up: float, ha: str, between: str) -> None:
    """The highest step, with its value and where it is."""
    text = f"{top.mib:,.1f} MiB{between}step {top.step}, {top.layer.upper()}"
    where: dict[str, Any] = {"xytext": (right, up), "textcoords": "offset points", "ha": ha, "va": "bottom"}
    axes.annotate(text, (top.step, top.mib), fontsize=8.5, color=colour, fontweight="bold", zorder=6, **where)


def _everything(axes: Axes, mib: float) -> None:
    axes.axhline(mib, color=style.PALE, linewidth=1.2, linestyle=(0, (6, 2)))
    text = f"every tensor allocated: {mib:,.1f} MiB"
    axes.annotate(text, (0.8, mib), (0, -4), textcoords="offset points", va="top", fontsize=8.5, color=style.PALE)


def _steps(upper: Axes, lower: Axes, rows: Sequence[CurveRow]) -> None:
    """Both panels count steps; their layers' names stand below, and forward and backward are parted."""
    lower.set_xticks([row.step for row in rows], [row.layer.upper() for row in rows], rotation=90, fontsize=7)
    lower.set_xlim(0.4, len(rows) + 0.6)
    turn = sum(row.direction == "forward" for row in rows) + 0.5
    for axes in (upper, lower):
        axes.tick_params(axis="x", length=2)
        axes.grid(axis="y", color="#E5E7EB", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.axvline(turn, color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)))
    place: dict[str, Any] = {"y": 1.005, "transform": upper.get_xaxis_transform(), "fontsize": 8, "va": "bottom"}
    upper.text(turn - 0.2, s="forward ←", ha="right", color=style.PALE, **place)
    upper.text(turn + 0.2, s="→ backward", ha="left", color=style.PALE, **place)


# -- memory of the networks --------------------------------------------------------------------------------------------


def memory_picture(rows: Sequence[MemoryRow]) -> Figure:
    """A bar a network, stacked by type of layer; beside it, what each technique leaves of the total."""
    with style.styled():
        title = "Where the memory of SuperNeurons' networks goes, and what each technique leaves"
        subtitle = "maps and gradient maps, float32; no weights, no workspaces"
        figure = style.new_figure(11, 1.6 + 0.42 * len(rows), title, subtitle, 0.55)
        total, left = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        places = -np.arange(len(rows))
        start = np.zeros(len(rows))
        rest = [kind for kind in KIND_NAMES if kind not in KIND_COLOURS]
        stacks = [(KIND_NAMES[kind], colour, [kind]) for kind, colour in KIND_COLOURS.items()]
        for name, colour, kinds in (*stacks, (SMALL_KINDS, style.GREY, rest)):
            taken = np.array([sum(by_kind(row, kind) for kind in kinds) for row in rows]) / GIB
            total.barh(places, taken, 0.66, start, color=colour, label=name, edgecolor="white", linewidth=0.5)
            start += taken
        for place, end in zip(places, start, strict=True):
            total.text(end + 0.12, place, f"{end:.1f} GiB", va="center", fontsize=8)
        total.set_xlim(0, 1.12 * start.max())
        total.set_xticks(np.arange(0, start.max(), 5))
        total.set_xlabel("everything allocated once (GiB)")
        _left(left, places, rows)
        total.set_yticks(places, [f"{row.network}({row.batch})" for row in rows], fontsize=9)
        total.set_ylim(places[-1] - 0.6, 0.6)
        for axes in (total, left):
            _quiet(axes)
        for axes, columns in ((total, 5), (left, 3)):
            axes.legend(ncols=columns, loc="lower left", bbox_to_anchor=(0, 1.02), **style.LEGEND)
    return figure


#: What is left under each set-up: colour, marker, words.
LEFT = {
    "liveness": (style.BLUE, "o", "liveness"),
    "offload": (style.ORANGE, "s", "offload"),
    "recompute": (style.GREEN, "^", "recomputation"),
    "both": (style.VERMILION, "D", "both, on demand"),
}
FLOOR = "#D9DCE1"  #: what the largest step uses by itself


def _left(axes: Axes, places: np.ndarray, rows: Sequence[MemoryRow]) -> None:
    """Peaks as shares of the total, and the largest single step as the limit of them all."""
    for place, row in zip(places, rows, strict=True):
        floor = 100 * row.largest_step_bytes / row.managed_bytes
        axes.barh(place, floor, 0.66, color=FLOOR, label="a single step" if place == 0 else None)
    for name, (colour, marker, words) in LEFT.items():
        shares = [100 * row.peak_bytes[name] / row.managed_bytes for row in rows]
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 8} if name == "both" else {"markersize": 6}
        axes.plot(shares, places, marker, color=colour, label=words, markeredgewidth=1.4, **hollow)
    axes.set_xlim(0, 80)
    axes.set_xlabel("alive at the peak (% of that)")


def _quiet(axes: Axes) -> None:
    axes.grid(axis="x", color="#E5E7EB", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


# -- the tensor cache --------------------------------------------------------------------------------------------------


def cache_picture(rows: Sequence[traffic.Row]) -> Figure:
    """Bytes moved with the cache and without, by batch; published as points."""
    with style.styled():
        title = "What the tensor cache keeps off the link"
        subtitle = "alexnet:superneurons, 12 GiB of a K40c · GB moved in an iteration, the batch not counted"
        figure = style.new_figure(8.5, 4.6, title, subtitle, 0.55)
        axes = figure.add_subplot()
        x = np.arange(len(rows))
        theirs = {
            "without": [published.WITHOUT_CACHE[row.batch].value for row in rows],
            "with": [published.WITH_CACHE[row.batch].value for row in rows],
        }
        without, cached = ([getattr(row, f"{which}_bytes") / 1e9 for row in rows] for which in theirs)
        fit = [row.without_fitted_bytes / 1e9 for row in rows]
        alone = [row.with_nothing_freed_bytes / 1e9 for row in rows]
        bars = [
            axes.bar(x - 0.2, without, 0.36, color=style.ORANGE, label="without the cache"),
            axes.bar(x + 0.2, cached, 0.36, color=style.BLUE, label="with it, all techniques"),
        ]
        for places, values in ((x - 0.2, without), (x + 0.2, cached)):
            for place, value in zip(places, values, strict=True):
                where: dict[str, Any] = {"xytext": (0, 3 if value else 7), "textcoords": "offset points"}
                axes.annotate(f"{value:.2f}" if value else "0", (place, value), fontsize=8, ha="center", **where)
        flat: dict[str, Any] = {"linestyle": "none", "marker": "_", "markersize": 22, "markeredgewidth": 2}
        (fitted,) = axes.plot(x - 0.2, fit, **flat, color=style.ORANGE, label="without: a fit, see the table")
        (lonely,) = axes.plot(x + 0.2, alone, **flat, color=style.BLUE, label="the cache alone, nothing freed")
        (dots,) = axes.plot(x - 0.2, theirs["without"], **PUBLISHED, label="published")
        axes.plot(x + 0.2, theirs["with"], **PUBLISHED)
        for line in axes.get_lines():
            line.set_clip_on(False)
        axes.set_xticks(x, [str(row.batch) for row in rows])
        axes.set_xlabel("images in a batch")
        axes.set_ylabel("moved (GB)")
        axes.set_ylim(0, 1.1 * max(theirs["without"]))
        axes.grid(axis="y", color="#E5E7EB", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(axis="x", length=0)
        axes.legend(handles=[*bars, fitted, lonely, dots], loc="upper left", fontsize=8.5)
    return figure


#: The networks whose budget shrinks: colours in their order.
SHRUNK_COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE)


def budget_picture(rows: Sequence[BudgetRow]) -> Figure:
    """What the cache moves as the pool grows."""
    with style.styled():
        title = "The larger the pool, the less the tensor cache moves"
        subtitle = "all of SuperNeurons, least workspaces · left end of a line: the least of these budgets that fits"
        figure = style.new_figure(8.5, 4.6, title, subtitle, 0.55)
        axes = figure.add_subplot()
        names = list(dict.fromkeys(row.network for row in rows))
        for name, colour in zip(names, SHRUNK_COLOURS, strict=False):
            mine = [row for row in rows if row.network == name]
            x = [100 * row.budget_share for row in mine]
            y = [100 * row.moved_bytes / row.managed_bytes for row in mine]
            axes.plot(x, y, "-o", color=colour, markersize=4, linewidth=1.6, label=f"{name}({mine[0].batch})")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("budget (% of what is taken when nothing moves)")
        axes.set_ylabel("moved in an iteration (% of all tensors' bytes)")
        axes.grid(color="#E5E7EB", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.legend(loc="upper right", fontsize=8.5)
    return figure


# -- 12 GB -------------------------------------------------------------------------------------------------------------

#: Set-ups of the capacity: colour and marker.
SETUPS = {
    "baseline": (style.GREY, "o"),
    "liveness": (style.BLUE, "o"),
    "offload": (style.ORANGE, "s"),
    "recompute": (style.GREEN, "^"),
    "all but recompute": (style.PURPLE, "v"),
    "all": (style.VERMILION, "D"),
}


def largest_picture(rows: Sequence[capacity.Row]) -> Figure:
    """The largest batch of every network, and the deepest ResNet, under each set-up; published figures beside them."""
    wide = [row for row in rows if row.depth is None]
    deep = [row for row in rows if row.depth is not None]
    names = list(dict.fromkeys(row.network for row in wide))
    with style.styled():
        title = "What fits 12 GiB: the largest batches, and the deepest ResNet"
        subtitle = "SuperNeurons' networks, planned for a K40c; white points: SuperNeurons as published"
        figure = style.new_figure(11, 1.8 + 0.42 * len(names), title, subtitle, 0.55)
        batches, depths = figure.subplots(1, 2, width_ratios=(3, 2))
        _batches(batches, names, wide)
        _depths(depths, deep)
        for axes in (batches, depths):
            _quiet(axes)
        batches.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1.02), **style.LEGEND)
    return figure


def _batches(axes: Axes, names: list[str], rows: Sequence[capacity.Row]) -> None:
    places = {name: -place for place, name in enumerate(names)}
    for name, place in places.items():
        sizes = [row.batch for row in rows if row.network == name]
        axes.plot([min(sizes), max(sizes)], [place, place], color="#D9DCE1", linewidth=1.2, zorder=1)
    for setup, (colour, marker) in SETUPS.items():
        mine = [row for row in rows if row.setup == setup]
        axes.plot(
            [row.batch for row in mine],
            [places[row.network] for row in mine],
            marker,
            color=colour,
            markersize=6.5,
            label=setup,
            alpha=0.9,
        )
    theirs = [(figure.value, places[name]) for name, figure in published.LARGEST.items() if name in places]
    axes.plot(*zip(*theirs, strict=True), **PUBLISHED, label="published")
    others = [(n, places[name]) for name, them in published.LARGEST_OF_OTHERS.items() if name in places for n in them]
    known = [(n, place) for n, place in others if n is not None]
    axes.plot(*zip(*known, strict=True), **OTHERS, label="other frameworks", zorder=0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("largest batch (images)")
    axes.set_yticks([*places.values()], names, fontsize=9)
    axes.set_ylim(-len(names) + 0.4, 0.6)


def _depths(axes: Axes, rows: Sequence[capacity.Row]) -> None:
    places = [-float(place) for place in range(len(rows))]
    for place, row in zip(places, rows, strict=True):
        axes.barh(place, row.largest, 0.62, color=SETUPS[row.setup][0])
        axes.text(row.largest, place, f" {row.largest:,}", va="center", fontsize=8.5)
        if row.published:
            axes.plot(row.published.value, place, **PUBLISHED)
    others = sorted(published.DEEPEST_OF_OTHERS.values())
    axes.plot(others, [-len(rows)] * len(others), **OTHERS)
    axes.set_yticks([*places, -len(rows)], [*(row.setup for row in rows), "others"], fontsize=9)
    axes.set_ylim(-len(rows) - 0.5, 0.6)
    axes.set_xlim(0, 1.16 * max(row.largest for row in rows))
    axes.set_xlabel(f"deepest ResNet (layers, {rows[0].batch} images)")
