"""Pictures of vDNN++'s evaluation: what is gained on vDNN, how the demonstration's copies hide, what the host keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from refimpl.report import style
from refimpl.reproduce.vdnnpp import figures
from refimpl.reproduce.vdnnpp.figures import MIB, LayerRow, PinnedRow, SpeedRow

# -- time --------------------------------------------------------------------------------------------------------------

POLICY_COLOURS = {"all": style.BLUE, "conv": style.ORANGE, "alternate-conv": style.GREEN, "dyn": style.PURPLE}
FASTEST: dict[str, Any] = {"hatch": ""}
LEAST: dict[str, Any] = {"hatch": "//////"}


def speed_picture(rows: Sequence[SpeedRow]) -> Figure:
    """A bar a policy, a group a network; forward above, the whole iteration below, a column a GPU."""
    machines = list(dict.fromkeys(row.machine for row in rows))
    networks = list(dict.fromkeys((row.network, row.batch) for row in rows))
    kinds = list(dict.fromkeys((row.policy, _mode(row)) for row in rows))
    parts = ("forward", "iteration")
    values = {part: [getattr(row, f"{part}_time") or 0.0 for row in rows] for part in parts}
    with style.styled():
        title = "How much faster vDNN++ is than vDNN with the same maps offloaded"
        subtitle = "T(vDNN) / T(vDNN++) - 1, simulated · no bar: as fast · ×: does not fit this GPU"
        figure = style.new_figure(11, 6.2, title, subtitle)
        panels = figure.subplots(2, len(machines), sharey="row", squeeze=False)
        for column, machine in enumerate(machines):
            for line, part in enumerate(parts):
                axes = panels[line, column]
                mine = [row for row in rows if row.machine == machine]
                _bars(axes, mine, networks, kinds, part)
                axes.set_title(f"{part.replace('iteration', 'whole iteration')}, {machine}", fontsize=9)
                axes.set_ylim(min(0, 400 * min(values[part])), 115 * max(values[part]))
                if column == 0:
                    axes.set_ylabel("faster (%)")
        _policy_legend(figure)
    return figure


def _mode(row: SpeedRow) -> str:
    """The dynamic policy chooses for itself."""
    return "" if row.policy == "dyn" else row.algorithms


def _bars(axes: Axes, rows: Sequence[SpeedRow], networks: list[Any], kinds: list[Any], part: str) -> None:
    width = 0.82 / len(kinds)
    for row in rows:
        at = networks.index((row.network, row.batch)) + (kinds.index((row.policy, _mode(row))) + 0.5) * width - 0.41
        value = getattr(row, f"{part}_time")
        if value is None:
            above: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "va": "bottom"}
            axes.annotate("×", (at, 0), fontsize=8, color=style.PALE, **above)
            continue
        look = LEAST if row.algorithms == "memory" and row.policy != "dyn" else FASTEST
        colour = POLICY_COLOURS[row.policy]
        axes.bar(at, 100 * value, 0.9 * width, color=colour, edgecolor="white", linewidth=0, **look)
        if round(100 * value, 1):
            place: dict[str, Any] = {
                "ha": "center",
                "va": "bottom",
                "rotation": 90,
                "fontsize": 6.5,
                "color": style.INK,
            }
            axes.text(at, max(100 * value, 0), f" {100 * value:.1f}", **place)
    axes.set_xticks(range(len(networks)), [f"{name}({batch})" for name, batch in networks], fontsize=7.5)
    axes.tick_params(axis="x", length=0)
    axes.axhline(0, color=style.PALE, linewidth=0.8)
    axes.spines["bottom"].set_visible(False)
    axes.grid(axis="y", color="#E5E7EB", linewidth=0.6)
    axes.set_axisbelow(True)


def _policy_legend(figure: Figure) -> None:
    patches = [Patch(facecolor=colour, label=policy) for policy, colour in POLICY_COLOURS.items()]
    modes = (("least workspace", LEAST), ("fastest algorithms", FASTEST))
    patches += [Patch(facecolor=style.GREY, label=name, **look) for name, look in modes]
    place = 0.1 / figure.get_figwidth(), 1 - 0.58 / figure.get_figheight()
    row = figure.legend(handles=patches, loc="upper left", bbox_to_anchor=place, ncols=len(patches), **style.LEGEND)
    row.set_in_layout(False)


# -- the demonstration -------------------------------------------------------------------------------------------------

POINT = 0.6  #: width of a letter, as a share of the font's size


def demonstration_picture(rows: Sequence[LayerRow]) -> Figure:
    """Kernels and copies of both: forward on a common axis, then backward from where each one's begins."""
    name, batch, machine = figures.DEMONSTRATION
    setups = list(dict.fromkeys(row.setup for row in rows))
    with style.styled():
        title = "The layers of vDNN++'s demonstration network, with vDNN's join and without"
        subtitle = f"{name}, batch {batch} · conv, no workspace · {machine} (simulated)"
        figure = style.new_figure(11, 5.8, title, subtitle)
        grid = figure.subplots(4, 1)
        for half, direction in enumerate(("forward", "backward")):
            found = {who: [row for row in rows if (row.setup, row.direction) == (who, direction)] for who in setups}
            begins = {who: min(_moments(mine)) if half else 0.0 for who, mine in found.items()}
            end = 1.01 * max(max(_moments(mine)) - begins[who] for who, mine in found.items())
            for line, who in enumerate(setups):
                axes = grid[2 * half + line]
                took = max(_moments(found[who])) - begins[who]
                _lanes(axes, found[who], begins[who], end)
                axes.set_title(f"{who}, {direction}: {1e3 * took:,.0f} ms", fontsize=9)
                if line < len(setups) - 1:
                    axes.set_xticklabels([])
                else:
                    since = "since the iteration began" if not half else "since backward began"
                    axes.set_xlabel(f"time {since} (ms)", fontsize=8)
        style.legend(figure, style.WORK_STYLE, ["forward", "backward", "copy out", "prefetch", "stalled"])
    return figure


def _moments(rows: Sequence[LayerRow]) -> list[float]:
    """Starts and ends of kernels, and of copies of maps."""
    copies = [moment for row in rows for _, _, start, end in row.copies for moment in (start, end)]
    return [*copies, *(moment for row in rows for moment in (row.start, row.end))]


def _lanes(axes: Axes, rows: Sequence[LayerRow], begin: float, end: float) -> None:
    """Kernels above, copies below; where kernels wait the lane is shaded."""
    until = begin
    for row in rows:
        if row.start > until + 1e-9:
            _bar(axes, 0, until - begin, row.start - begin, "stalled", "", end)
        _bar(axes, 0, row.start - begin, row.end - begin, row.direction, row.layer, end)
        until = row.end
        for tensor, way, start, done in row.copies:
            _bar(axes, 1, start - begin, done - begin, "copy out" if way == "out" else "prefetch", tensor, end)
    last = max(_moments(rows))
    if last > until + 1e-9:
        _bar(axes, 0, until - begin, last - begin, "stalled", "", end)
    axes.set(xlim=(0, end), ylim=(-1.5, 0.5))
    axes.set_yticks([0, -1], ["kernels", "copies"])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    style.in_units(axes.xaxis, 1e-3)


def _bar(axes: Axes, lane: int, start: float, stop: float, what: str, name: str, end: float) -> None:
    colour, _ = style.WORK_STYLE[what]
    axes.broken_barh([(start, stop - start)], (-lane - 0.36, 0.72), facecolor=colour, edgecolor="white", linewidth=0.4)
    width = (stop - start) * 11 * 72 * 0.9 / end
    if name and len(name) * 6.5 * POINT + 3 <= width:
        ink = "white" if what == "forward" else style.INK
        axes.text((start + stop) / 2, -lane, name, color=ink, ha="center", va="center", fontsize=6.5)


# -- pinned memory -----------------------------------------------------------------------------------------------------

HOST = {
    "vDNN: a pinned buffer a map": (style.BLUE, lambda row: row.vdnn_pinned_bytes),
    "vDNN++: on demand": (style.SKY, lambda row: row.on_demand_pinned_bytes),
    "vDNN++: pinned, when maps are compressed": (style.ORANGE, lambda row: row.compressed_pinned_bytes),
    "not pinned: what is compressed": (style.GREY, lambda row: row.kept_bytes),
}


def pinned_picture(rows: Sequence[PinnedRow]) -> Figure:
    """What the maps take on the host, a group of bars a network and policy."""
    names = [f"{row.network}({row.batch})\n{row.policy}" for row in rows]
    with style.styled():
        title = "What the maps take on the host"
        subtitle = "least workspace · densities of the authors' tests · gtx-970 (simulated)"
        figure = style.new_figure(11, 4.2, title, subtitle, 0.6)
        axes = figure.subplots()
        width = 0.82 / len(HOST)
        for number, (label, (colour, of)) in enumerate(HOST.items()):
            places = np.arange(len(rows)) + (number + 0.5) * width - 0.41
            heights = [of(row) / MIB for row in rows]
            axes.bar(places, heights, 0.92 * width, color=colour, label=label)
            for x, height in zip(places, heights, strict=True):
                axes.text(x, height, f"{height:,.0f}", ha="center", va="bottom", fontsize=7)
        axes.set_xticks(range(len(rows)), names, fontsize=8)
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel("MiB")
        axes.grid(axis="y", color="#E5E7EB", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.legend(loc="upper left", fontsize=8)
    return figure
