"""Pictures of vDNN's evaluation: memory and performance under each policy, waits of maps, very deep networks.

A white point with a coloured edge is a published figure; a mean's row has those of means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.studies.drawing import PUBLISHED, grouped_bars, named
from refimpl.studies.reproduce.evaluation import titled
from refimpl.studies.reproduce.vdnn import published
from refimpl.studies.reproduce.vdnn.figures import GB, TITAN_X, ReuseRow, VdnnRow

#: Policy → colour and marker.
LOOKS = {
    "all (m)": (style.BLUE, "o"), "all (p)": (style.SKY, "s"), "conv (m)": (style.ORANGE, "^"),
    "conv (p)": (style.VERMILION, "D"), "dyn": (style.GREEN, "P"),
}  # fmt: skip
MEAN = "mean"


def dots(axes: Axes, rows: Sequence[VdnnRow], of: str, theirs: Mapping[tuple[str, str], float]) -> None:
    """A line a network and one of means, a dot a policy, in per cent; `theirs`: (line, policy) → published."""
    places = named(axes, [*dict.fromkeys(map(titled, rows)), MEAN])
    axes.axhline(0.5 * (places[MEAN] + places[titled(rows[-1])]), color=style.PALE, linewidth=0.8)
    for policy, (colour, marker) in LOOKS.items():
        mine = [(100 * getattr(row, of), places[titled(row)]) for row in rows
                if row.policy == policy and getattr(row, of) is not None]  # fmt: skip
        mine.append((mean(x for x, _ in mine), places[MEAN]))
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 7, "linestyle": "none"}
        axes.plot(*zip(*mine, strict=True), **look, alpha=0.85, label=policy)
        known = [(value, places[line]) for (line, whose), value in theirs.items() if whose == policy]
        if known:
            edge = PUBLISHED | {"color": colour, "markersize": 10, "markeredgewidth": 1.6, "zorder": 1}
            axes.plot(*zip(*known, strict=True), **edge)
    style.grid(axes, "x")


def policy_legend(figure: Figure, axes: Axes) -> None:
    published_look = axes.plot([], [], **PUBLISHED | {"color": style.PALE}, label="published")
    style.legend_row(figure, [*axes.get_legend_handles_labels()[0][: len(LOOKS)], *published_look])


def memory_picture(rows: Sequence[VdnnRow]) -> Figure:
    """The share of memory saved at the peak and on average, by network and policy, and their means."""
    title = "How much of the memory each of vDNN's policies saves"
    subtitle = "of everything allocated once · Titan X of 12 GiB, cuDNN 4, planned"
    with style.page(11, 4.4, title, subtitle) as figure:
        peak, average = figure.subplots(1, 2, sharey=True)
        means = published.MEAN_SAVED.items()
        dots(peak, rows, "peak_saving", {(MEAN, policy): highest.value for policy, (highest, _) in means})
        saved = {(f"{network}(128)", "all (m)"): figure.value for network, figure in published.SAVED.items()}
        dots(average, rows, "average_saving", saved | {(MEAN, policy): both[1].value for policy, both in means})
        peak.set(xlim=(20, 100), xlabel="saved at the peak (%)")
        average.set(xlim=(20, 100), xlabel="saved on average over the steps (%)")
        policy_legend(figure, average)
    return figure


def performance_picture(rows: Sequence[VdnnRow]) -> Figure:
    """Performance by network and policy as a share of the oracle's, and the means."""
    title = "The performance under each of vDNN's policies"
    subtitle = "of a GPU that holds everything · Titan X of 12 GiB, cuDNN 4, simulated · no dot: does not fit"
    theirs = {(MEAN, policy): 100 - lost.value for policy, lost in published.MEAN_LOST.items()}
    theirs |= {(MEAN, "dyn"): published.REACHED.value, ("vgg16(256)", "dyn"): 100 - published.LOST.value}
    with style.page(8.5, 4.4, title, subtitle) as figure:
        axes = figure.subplots()
        dots(axes, rows, "performance", theirs)
        axes.set(xlim=(20, 103), xlabel="performance (%)")
        policy_legend(figure, axes)
    return figure


def ranges_picture(rows: Sequence[VdnnRow]) -> Figure:
    """A group of bars a network: everything allocated once, and vdnn-dyn's average on the GPU."""
    title = "Ten networks: the memory that each needs, and what vdnn-dyn holds on average"
    subtitle = "planned with cuDNN 4 · dashed: the 12 GiB of a Titan X · white: the ends of the published range"
    with style.page(11, 4.4, title, subtitle) as figure:
        axes = figure.subplots()
        series = {
            "everything allocated once": (style.GREY, [row.network_wide_bytes / GB for row in rows]),
            "vdnn-dyn, on the GPU on average": (style.BLUE, [row.average_bytes / GB for row in rows]),
        }
        names = [titled(row) for row in rows]
        totals, _ = grouped_bars(axes, names, series, "{:.1f}".format, lift=5).values()
        ends = [totals[names.index("vgg16(128)")], totals[-1]]
        axes.plot(ends, [figure.value for figure in published.NEEDED], **PUBLISHED, label="published")
        style.limit(axes, TITAN_X.memory_bytes / GB)
        axes.set_ylabel("GB (2^30 bytes)")
        style.legend_row(figure, axes.get_legend_handles_labels()[0])
    return figure


def reuse_picture(rows: Sequence[ReuseRow]) -> Figure:
    """How long each layer's X waits, and how long its copies out and in take; a panel a network."""
    title = "How long each layer's input waits between its two uses"
    subtitle = "Titan X that holds everything, fastest algorithms of cuDNN 4, simulated"
    names = list(dict.fromkeys(map(titled, rows)))
    with style.page(11, 3.3 * len(names), title, subtitle) as figure:
        panels = figure.subplots(len(names), 1, squeeze=False)[:, 0]
        for axes, name, theirs in zip(panels, names, published.REUSE.values(), strict=True):
            mine = [row for row in rows if titled(row) == name]
            bars = {
                "X waits": (style.BLUE, [1e3 * row.wait_seconds for row in mine]),
                "its copies out and in take": (style.ORANGE, [1e3 * row.copy_seconds for row in mine]),
            }
            places = grouped_bars(axes, [row.layer for row in mine], bars, "{:,.0f}".format)
            axes.plot(places["X waits"][0], theirs.value, **PUBLISHED, label="published: more than this")
            axes.set(ylabel="ms", title=name)
        style.legend_row(figure, panels[0].get_legend_handles_labels()[0])
    return figure


def deep_picture(rows: Sequence[VdnnRow]) -> Figure:
    """The dynamic policy's memory on the GPU and on the host, beside everything allocated once."""
    mine = [row for row in rows if row.policy == "dyn"]
    title = "Very deep networks: memory under vdnn-dyn"
    subtitle = "planned with cuDNN 4 · dashed: the 12 GiB of a Titan X"
    with style.page(8.5, 4.4, title, subtitle) as figure:
        axes = figure.subplots()
        series = {
            "everything allocated once": (style.GREY, [row.network_wide_bytes / GB for row in mine]),
            "vdnn-dyn, on the host": (style.ORANGE, [row.offloaded_bytes / GB for row in mine]),
            "vdnn-dyn, on the GPU at the peak": (style.BLUE, [row.peak_bytes / GB for row in mine]),
        }
        places = grouped_bars(axes, [titled(row) for row in mine], series, "{:.1f}".format, lift=5)
        totals, _, held = places.values()
        known = (published.DEEP_TOTAL.value, published.DEEP_HELD.value)
        axes.plot((totals[-1], held[-1]), known, **PUBLISHED, label="published")
        style.limit(axes, TITAN_X.memory_bytes / GB)
        axes.set_ylabel("GB (2^30 bytes)")
        style.legend_row(figure, axes.get_legend_handles_labels()[0])
    return figure
