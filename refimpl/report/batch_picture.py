"""A picture of images a second over the batch, with batches that matter marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from refimpl.report import style

COLOURS = (style.VERMILION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY, style.OLIVE, style.PALE)


def batch_picture(
    title: str, subtitle: str, rates: Mapping[int, float], marks: Sequence[tuple[str, int, float]]
) -> Figure:
    """X(b) as a line.

    Args:
        title: of the picture.
        subtitle: network, policy, machine, budget, and that it is simulated.
        rates: batch → images a second, of the batches that fit.
        marks: what is marked, its batch, its images a second.
    """
    with style.page(9, 4.6, title, subtitle, head=0.55) as figure:
        axes: Axes = figure.subplots()
        axes.plot([*rates], [*rates.values()], color=style.BLUE, linewidth=1.4, marker=".", markersize=4)
        labels: dict[tuple[int, float], list[str]] = {}
        for label, batch, rate in marks:
            labels.setdefault((batch, rate), []).append(label)
        for ((batch, rate), names), colour in zip(labels.items(), COLOURS * len(labels), strict=False):
            axes.plot([batch, batch], [0, rate], color=colour, linewidth=0.9, linestyle=(0, (4, 2)))
            axes.plot([batch], [rate], "o", color=colour, markersize=6, label=f"{' and '.join(names)}: {batch:,}")
        axes.set_xscale("log")
        style.in_units(axes.xaxis, 1)
        axes.xaxis.set_minor_formatter(axes.xaxis.get_major_formatter())
        axes.xaxis.set_minor_locator(LogLocator(subs=(2, 3, 5, 7)))
        axes.tick_params(axis="x", which="both", labelsize=7, pad=4)
        axes.set_ylim(0, 1.08 * max([*rates.values(), *(rate for _, _, rate in marks)]))
        axes.set_xlabel("images in a batch")
        axes.set_ylabel("images a second")
        style.grid(axes, "y")
        style.legend_above(axes, 4)
    return figure
