"""Pictures of vDNN++'s evaluation: the gain on vDNN, the demonstration's hidden copies, the memory on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from refimpl.report import style
from refimpl.report.timeline_picture import Bar, lanes
from refimpl.studies.drawing import bars_picture, grouped_bars
from refimpl.studies.reproduce.evaluation import MIB, titled
from refimpl.studies.reproduce.vdnnpp import figures, microbenchmark
from refimpl.studies.reproduce.vdnnpp.figures import LayerRow, PinnedRow, SpeedRow
from refimpl.studies.reproduce.vdnnpp.microbenchmark import HidingRow

# -- time --------------------------------------------------------------------------------------------------------------

POLICY_COLOURS = {"all": style.BLUE, "conv": style.ORANGE, "alternate-conv": style.GREEN, "dyn": style.PURPLE}
MODES: dict[str, dict[str, Any]] = {
    "memory": {"hatch": "//////", "label": "least workspace"},
    "performance": {"hatch": "", "label": "fastest algorithms"},
}


def speed_picture(rows: Sequence[SpeedRow]) -> Figure:
    """A bar a policy, a group a network; forward above, the whole iteration below, a column a GPU."""
    machines = list(dict.fromkeys(row.machine for row in rows))
    networks = list(dict.fromkeys(map(titled, rows)))
    title = "How much faster vDNN++ is than vDNN with the same maps offloaded"
    subtitle = "T(vDNN) / T(vDNN++) - 1, simulated · no bar: as fast · ×: does not fit this GPU"
    with style.page(11, 6.2, title, subtitle) as figure:
        panels = figure.subplots(2, len(machines), sharey="row", squeeze=False)
        for line, (part, words) in zip(panels, (("forward", "forward"), ("iteration", "whole iteration")), strict=True):
            every = [100 * (getattr(row, f"{part}_time") or 0.0) for row in rows]
            for axes, machine in zip(line, machines, strict=True):
                series: dict[str, tuple[dict[str, Any], list[float | None]]] = {}
                for row in rows:
                    if row.machine == machine:
                        mode = "performance" if row.policy == "dyn" else row.algorithms
                        look = {
                            "color": POLICY_COLOURS[row.policy],
                            "edgecolor": "white",
                            "hatch": MODES[mode]["hatch"],
                        }
                        value = getattr(row, f"{part}_time")
                        _, values = series.setdefault(f"{row.policy} {mode}", (look, []))
                        values.append(None if value is None else 100 * value)
                grouped_bars(axes, networks, series, _faster, rotation=90, fontsize=6.5)
                axes.axhline(0, color=style.PALE, linewidth=0.8)
                axes.spines["bottom"].set_visible(False)
                axes.set_title(f"{words}, {machine}", fontsize=9)
                axes.set_ylim(min(0, 4 * min(every)), 1.15 * max(every))
            line[0].set_ylabel("faster (%)")
        patches = [Patch(facecolor=colour, label=policy) for policy, colour in POLICY_COLOURS.items()]
        style.legend_row(figure, [*patches, *(Patch(facecolor=style.GREY, **look) for look in MODES.values())])
    return figure


def _faster(percent: float) -> str:
    return f"{percent:.1f}" if round(percent, 1) else ""


# -- the microbenchmark ------------------------------------------------------------------------------------------------


def hiding_picture(rows: Sequence[HidingRow]) -> Figure:
    """A bar for each layer's kernels on each GPU, and a line for the copy of its input."""
    devices = list(dict.fromkeys(row.device for row in rows))
    series = {
        device: (colour, [1e3 * row.kernel_seconds for row in rows if row.device == device])
        for device, colour in zip(devices, (style.BLUE, style.ORANGE), strict=False)
    }
    copies = sorted({1e3 * row.copy_seconds for row in rows})
    size = f"{microbenchmark.IMAGES} images, {microbenchmark.CHANNELS} maps of {microbenchmark.SIDE}²"
    line = f"line: the copy, {', '.join(f'{copy:.0f}' for copy in copies)} ms"
    head = (
        "Where the copy of a layer's input does not fit under its kernels",
        f"{size} · fastest algorithm that fits · simulated · {line}",
    )
    layers = [row.layer.replace(" ", "\n") for row in rows if row.device == devices[0]]
    return bars_picture(head, layers, series, "kernels (ms)", "{:,.0f}".format, copies)


# -- the demonstration -------------------------------------------------------------------------------------------------


def demonstration_picture(rows: Sequence[LayerRow]) -> Figure:
    """Kernels and copies of both: forward on a common axis, then backward from where each one's begins."""
    name, batch, machine = figures.DEMONSTRATION
    setups = list(dict.fromkeys(row.setup for row in rows))
    title = "The layers of vDNN++'s demonstration network, with vDNN's join and without"
    subtitle = f"{name}, batch {batch} · conv, no workspace · {machine} (simulated)"
    with style.page(11, 5.8, title, subtitle) as figure:
        grid = figure.subplots(4, 1)
        for half, direction in enumerate(("forward", "backward")):
            found = {who: [row for row in rows if (row.setup, row.direction) == (who, direction)] for who in setups}
            bars = {who: layer_bars(mine, from_zero=direction == "forward") for who, mine in found.items()}
            took = {who: max(bar.end for bar in mine) for who, mine in bars.items()}
            for axes, who in zip(grid[2 * half :], setups, strict=False):
                lanes(axes, ("kernels", "copies"), bars[who], 0.0, 1.01 * max(took.values()))
                axes.set_title(f"{who}, {direction}: {1e3 * took[who]:,.0f} ms", fontsize=9)
            grid[2 * half].set_xticklabels([])
            since = "the iteration" if direction == "forward" else "backward"
            axes.set_xlabel(f"time since {since} began (ms)", fontsize=8)
        style.legend(figure, style.WORK_STYLE, ["forward", "backward", "copy out", "prefetch", "stalled"])
    return figure


def layer_bars(rows: Sequence[LayerRow], from_zero: bool) -> list[Bar]:
    """Kernels, their stalls, and copies; seconds since the iteration began, or since the first of them."""
    bars = []
    for row in rows:
        bars.append(Bar(0, row.direction, row.layer, row.start, row.end))
        bars += [Bar(1, "copy out" if way == "out" else "prefetch", tensor, start, end)
                 for tensor, way, start, end in row.copies]  # fmt: skip
    begin = 0.0 if from_zero else min(bar.start for bar in bars)
    last, until = max(bar.end for bar in bars), begin
    for start, end in [*((row.start, row.end) for row in rows), (last, last)]:
        if start > until + 1e-9:
            bars.append(Bar(0, "stalled", "", until, start))
        until = end
    return [Bar(bar.stream, bar.what, bar.name, bar.start - begin, bar.end - begin) for bar in bars]


# -- pinned memory -----------------------------------------------------------------------------------------------------

HOST = {
    "vDNN: a pinned buffer a map": (style.BLUE, "vdnn_pinned_bytes"),
    "vDNN++: on demand": (style.SKY, "on_demand_pinned_bytes"),
    "vDNN++: pinned, when maps are compressed": (style.ORANGE, "compressed_pinned_bytes"),
    "not pinned: the compressed maps": (style.GREY, "kept_bytes"),
}


def pinned_picture(rows: Sequence[PinnedRow]) -> Figure:
    """The maps' memory on the host, a group of bars a network and policy."""
    subtitle = "least workspace · densities of the authors' tests · gtx-970 (simulated)"
    series = {label: (colour, [getattr(row, name) / MIB for row in rows])
              for label, (colour, name) in HOST.items()}  # fmt: skip
    groups = [f"{titled(row)}\n{row.policy}" for row in rows]
    return bars_picture(("The maps' memory on the host", subtitle), groups, series, "MiB", "{:,.0f}".format)
