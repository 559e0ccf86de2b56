"""Pictures of SuperNeurons' evaluation: those of what the paper draws, not of what it has in tables.

A small white point is a published figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.studies.drawing import PUBLISHED, grouped_bars, named
from refimpl.studies.reproduce.evaluation import GIB, MIB, titled
from refimpl.studies.reproduce.published import Published
from refimpl.studies.reproduce.superneurons import published, speed
from refimpl.studies.reproduce.superneurons.by_type import TYPES, TypeRow, fitted_cost, share
from refimpl.studies.reproduce.superneurons.figures import GPUS, CurveRow, MemoryRow, TotalRow
from refimpl.studies.reproduce.superneurons.speed import CacheRow, WorkspaceRow

#: Kinds of layers: the paper's name and a colour; the small ones share one.
KIND_NAMES = TYPES | {"fork": "FORK", "join": "JOIN", "concat": "CONCAT"}
KIND_COLOURS = {
    "conv": style.BLUE, "relu": style.ORANGE, "batchnorm": style.GREEN, "pool": style.SKY, "lrn": style.PURPLE,
    "fork": style.YELLOW, "join": style.VERMILION, "concat": "#8C6D46",
}  # fmt: skip
SMALL_KINDS = "FC, DROPOUT, SOFTMAX"


# -- the memory curve --------------------------------------------------------------------------------------------------

#: Setup → colour and words; and of its peak's label: points to the right and up, its side, what parts value and place.
CURVES = {
    "liveness": (style.BLUE, "liveness analysis", (0, 7, "center", " · ")),
    "offload": (style.ORANGE, "liveness, offload and prefetch", (-12, 5, "right", " · ")),
    "recompute": (style.GREEN, "liveness and recomputation", (34, 30, "right", "\n")),
}


def curve_picture(rows: Sequence[CurveRow]) -> Figure:
    """The memory alive before each step of AlexNet(200), technique upon technique, and the published points."""
    title = "What SuperNeurons' techniques leave of AlexNet's memory, step by step"
    subtitle = "alexnet:superneurons, batch 200 · lines: the planner's count · points: the paper's figure"
    with style.page(11, 6.8, title, subtitle, 0.55) as figure:
        memory, tensors = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (4.4, 1)})
        for name, (colour, words, (right, up, side, between)) in CURVES.items():
            mine = [row for row in rows if row.setup == name]
            _curve(memory, [row.mib for row in mine], [row.published_mib for row in mine], colour, words)
            _curve(tensors, [row.tensors for row in mine], [row.published_tensors for row in mine], colour, words)
            top = max(mine, key=lambda row: row.mib)
            memory.annotate(
                f"{top.mib:,.1f} MiB{between}step {top.step}, {top.layer.upper()}", (top.step, top.mib), (right, up),
                textcoords="offset points", ha=side, va="bottom", fontsize=8.5, color=colour, fontweight="bold",
                zorder=6,
            )  # fmt: skip
        total, steps = published.TOTAL.value, [row for row in rows if row.setup == "liveness"]
        style.limit(memory, total, color=style.PALE)
        text = f"every tensor allocated: {total:,.1f} MiB"
        memory.annotate(
            text, (0.8, total), (0, -4), textcoords="offset points", va="top", fontsize=8.5, color=style.PALE
        )
        memory.set(ylim=(0, 1.07 * total), ylabel="alive (MiB)")
        memory.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        memory.legend(loc="upper left", bbox_to_anchor=(0.005, 0.91), fontsize=9, handlelength=1.6)
        tensors.set(ylim=(0, 26), yticks=[0, 10, 20], ylabel="tensors alive", xlim=(0.4, len(steps) + 0.6))
        tensors.set_xticks([row.step for row in steps], [row.layer.upper() for row in steps], rotation=90, fontsize=7)
        for axes in (memory, tensors):
            axes.tick_params(axis="x", length=2)
            style.grid(axes, "y")
        depth = sum(row.direction == "forward" for row in steps)
        style.mark_forward(memory, depth, 0.2)
        tensors.axvline(depth + 0.5, color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)))
    return figure


def _curve(axes: Axes, ours: list[Any], theirs: list[Any], colour: str, words: str) -> None:
    """Ours as a line of steps, theirs as points."""
    steps = np.arange(1.0, len(ours) + 1)
    edges = np.repeat(np.append(steps - 0.5, steps[-1] + 0.5), 2)[1:-1]
    axes.fill_between(edges, np.repeat(ours, 2), color=colour, alpha=0.10, linewidth=0)
    axes.plot(edges, np.repeat(ours, 2), color=colour, linewidth=1.6, label=words, solid_joinstyle="miter")
    axes.plot(steps, theirs, "o", markersize=2.8, color=colour, markerfacecolor="white", markeredgewidth=0.9, zorder=5)


# -- everything together -----------------------------------------------------------------------------------------------


def total_picture(rows: Sequence[TotalRow]) -> Figure:
    """The memory of every network, without and with workspaces; published as points."""
    title = "What SuperNeurons' networks take if everything is allocated at once"
    subtitle = "maps, gradient maps, weights with gradients and momentum · workspaces of the fastest convolutions, K40c"
    forward = [(row.memory_bytes + row.forward_workspace_bytes) / 1e9 for row in rows]
    both = [gb + row.backward_workspace_bytes / 1e9 for gb, row in zip(forward, rows, strict=True)]
    bars = {
        "memory": (style.BLUE, [row.memory_bytes / 1e9 for row in rows]),
        "with workspaces, forward": (style.SKY, forward),
        "with workspaces, both ways": (style.FAINT, both),
    }
    with style.page(9.5, 4.6, title, subtitle, 0.55) as figure:
        axes = figure.add_subplot()
        places = grouped_bars(axes, [titled(row) for row in rows], bars, lambda gb: "")
        for number, label in enumerate(["memory", "with workspaces, forward"]):
            theirs = [published.NETWORK_BYTES[row.network][number].value / 1e3 for row in rows]
            axes.plot(places[label], theirs, label=None if number else "published", **PUBLISHED)
        axes.set_ylabel("GB (10⁹ bytes)")
        axes.legend(loc="upper left", fontsize=8.5)
    return figure


# -- memory of the networks --------------------------------------------------------------------------------------------

#: The peak under each setup: its words and look.
LEFT: dict[str, tuple[str, dict[str, Any]]] = {
    "liveness": ("liveness", {"color": style.BLUE, "marker": "o", "markersize": 6}),
    "offload": ("offload", {"color": style.ORANGE, "marker": "s", "markersize": 6}),
    "recompute": ("recomputation", {"color": style.GREEN, "marker": "^", "markersize": 6}),
    "both": ("both, on demand",
             {"color": style.VERMILION, "marker": "D", "markersize": 8, "markerfacecolor": "none"}),
}  # fmt: skip


def memory_picture(rows: Sequence[MemoryRow]) -> Figure:
    """A bar a network, stacked by type of layer; beside it, the peaks that each technique leaves of the total."""
    title = "Where the memory of SuperNeurons' networks goes, and what each technique leaves"
    subtitle = "maps and gradient maps, float32; no weights, no workspaces"
    with style.page(11, 1.6 + 0.42 * len(rows), title, subtitle, 0.55) as figure:
        total, left = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        places = [*named(total, [titled(row) for row in rows]).values()]
        start = np.zeros(len(rows))
        rest = [kind for kind in KIND_NAMES if kind not in KIND_COLOURS]
        stacks = [(KIND_NAMES[kind], colour, [kind]) for kind, colour in KIND_COLOURS.items()]
        for name, colour, kinds in (*stacks, (SMALL_KINDS, style.GREY, rest)):
            taken = np.array([sum(row.kind_bytes.get(kind, 0) for kind in kinds) for row in rows]) / GIB
            total.barh(places, taken, 0.66, start, color=colour, label=name, edgecolor="white", linewidth=0.5)
            start += taken
        for place, end in zip(places, start, strict=True):
            total.text(end + 0.12, place, f"{end:.1f} GiB", va="center", fontsize=8)
        total.set(xlim=(0, 1.12 * start.max()), xticks=np.arange(0, start.max(), 5))
        total.set_xlabel("everything allocated once (GiB)")
        floors = [100 * row.largest_step_bytes / row.managed_bytes for row in rows]
        left.barh(places, floors, 0.66, color=style.FAINT, label="a single step")
        for name, (words, look) in LEFT.items():
            shares = [100 * row.peak_bytes[name] / row.managed_bytes for row in rows]
            left.plot(shares, places, label=words, linestyle="none", markeredgewidth=1.4, **look)
        left.set(xlim=(0, 80), xlabel="alive at the peak (% of that)")
        for axes, columns in ((total, 5), (left, 3)):
            style.grid(axes, "x")
            style.named_rows(axes)
            style.legend_above(axes, columns)
    return figure


# -- time and memory by type -------------------------------------------------------------------------------------------

#: Every type has a colour of its own here: there are no structure layers to share them with.
TYPE_COLOURS = {
    name: (KIND_COLOURS | {"fc": style.GREY, "dropout": style.YELLOW, "softmax": style.VERMILION})[kind]
    for kind, name in TYPES.items()
}


def types_picture(rows: Sequence[TypeRow]) -> Figure:
    """Two bars a network, ours above the published one, stacked by type of layer: time, and memory."""
    title = "Time and memory of SuperNeurons' networks by type of layer"
    subtitle = "upper bars: ours, time with the fitted cost a call · lower, paler bars: as published"
    networks, cost = [row for row in rows if row.network in published.TIME_SHARES], fitted_cost(rows)
    with style.page(11, 1.8 + 0.62 * len(networks), title, subtitle, 0.55) as figure:
        time, memory = figure.subplots(1, 2, sharey=True)
        _types(time, networks, lambda row: row.seconds(cost), published.TIME_SHARES, "share of an iteration's time (%)")
        _types(memory, networks, lambda row: row.needed_bytes, published.MEMORY_SHARES, "share of the bytes needed (%)")
        style.legend_above(time, 8)
    return figure


def _types(
    axes: Axes,
    rows: Sequence[TypeRow],
    parts: Callable[[TypeRow], Mapping[str, float]],
    theirs: Mapping[str, Mapping[str, Published]],
    label: str,
) -> None:
    places = named(axes, [titled(row) for row in rows]).values()
    for row, place in zip(rows, places, strict=True):
        mine = {kind: share(parts(row), kind) for kind in TYPE_COLOURS}
        printed = {kind: figure.value for kind, figure in theirs[row.network].items()}
        for shares, top, alpha in ((mine, place + 0.19, 1.0), (printed, place - 0.19, 0.55)):
            start = 0.0
            for kind, colour in TYPE_COLOURS.items():
                part = shares.get(kind, 0.0)
                words = kind if shares is mine and place == 0 else None
                axes.barh(
                    top, part, 0.34, start, color=colour, alpha=alpha, edgecolor="white", linewidth=0.5, label=words
                )
                if part >= 6:
                    axes.text(start + part / 2, top, f"{part:.0f}", ha="center", va="center", fontsize=7.5)
                start += part
    axes.set(xlim=(0, 100), xlabel=label)
    style.named_rows(axes)


# -- the tensor cache --------------------------------------------------------------------------------------------------


def cache_speed_picture(rows: Sequence[CacheRow]) -> Figure:
    """The speed with the cache over the speed without it, by network and GPU; published as points."""
    title = "What the tensor cache is worth in speed"
    subtitle = "speed with the cache over the speed without it · 12 GiB, simulated"
    names = list(dict.fromkeys(map(titled, rows)))
    bars = {
        machine.name: (colour, [row.ratio for row in rows if row.machine == machine.name])
        for machine, colour in zip(GPUS, (style.BLUE, style.SKY), strict=True)
    }
    with style.page(8.5, 4.6, title, subtitle, 0.55) as figure:
        axes = figure.add_subplot()
        grouped_bars(axes, names, bars, "{:.2f}".format)
        theirs = [published.FASTER_WITH_CACHE[network].value for network in dict.fromkeys(row.network for row in rows)]
        axes.plot(range(len(theirs)), theirs, label="published", **PUBLISHED)
        axes.axhline(1, color=style.INK, linewidth=0.8)
        axes.set(ylim=(0.8, 1.1 * max(theirs)), ylabel="speed with the cache (× without)")
        axes.legend(loc="upper left", fontsize=8.5)
    return figure


# -- workspaces --------------------------------------------------------------------------------------------------------


def workspaces_picture(rows: Sequence[WorkspaceRow]) -> Figure:
    """The workspace of every convolution call of AlexNet, by batch and pool, without recomputation."""
    title = "The larger the pool, the larger the workspaces"
    subtitle = "alexnet:superneurons, all techniques but recomputation · a K40c, speed simulated"
    with style.page(11, 6, title, subtitle, 0.55) as figure:
        panels = figure.subplots(len(speed.BATCHES), len(speed.POOLS), sharex=True, sharey="row")
        for line, batch in zip(panels, speed.BATCHES, strict=True):
            for axes, pool in zip(line, speed.POOLS, strict=True):
                wanted = ("all but recompute", batch, pool * GIB)
                _workspaces(axes, [row for row in rows if (row.setup, row.batch, row.pool_bytes) == wanted])
            line[0].set_ylabel(f"batch {batch} (MiB)")
        style.legend_above(panels[0][0], 2)
    return figure


def _workspaces(axes: Axes, rows: Sequence[WorkspaceRow]) -> None:
    """A bar a call; a line at the workspace of the fastest algorithm."""
    places = range(len(rows))
    axes.bar(places, [row.workspace_bytes / MIB for row in rows], 0.7, color=style.BLUE, label="its workspace")
    fastest = [row.fastest_bytes / MIB for row in rows]
    axes.plot(places, fastest, "_", color=style.VERMILION, markersize=13, markeredgewidth=2, label="of the fastest")
    axes.set_xticks(places, [row.call for row in rows], rotation=90, fontsize=7)
    words = f"pool of {rows[0].pool_bytes // GIB} GiB: {rows[0].images_a_second:.0f} images/s"
    axes.text(0.99, 0.97, words, transform=axes.transAxes, ha="right", va="top", fontsize=9)
    axes.margins(y=0.15)
    style.grid(axes, "y")
