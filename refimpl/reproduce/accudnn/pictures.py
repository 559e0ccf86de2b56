"""Pictures of AccUDNN's evaluation: memory without loss of speed, when the maps come back, which of them leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.reproduce.accudnn.figures import MemoryRow, RatioRow
from refimpl.reproduce.accudnn.published import BEFORE_GB, MEMORY
from refimpl.reproduce.drawing import grouped_bars
from refimpl.reproduce.evaluation import GIB

COLOURS = (style.BLUE, style.SKY, style.GREEN, style.ORANGE, style.VERMILION)


def memory_picture(rows: Sequence[MemoryRow]) -> Figure:
    """A group of bars a GPU and accounting: the bytes without AccUDNN, and those needed for the same speed."""
    groups = [f"{row.machine}\n{row.accounting}\n{row.batch} images" for row in rows]
    series: dict[str, tuple[dict[str, Any], list[float | None]]] = {
        "by the accounting": ({"color": style.GREY}, [row.accounted_bytes / GIB for row in rows]),
        "needed, at most 1 % slower": ({"color": style.BLUE}, [row.needed_bytes / GIB for row in rows]),
    }
    title = "ResNet-152: memory without loss of speed"
    subtitle = "simulated, our reconstruction · lines: the abstract's more than 24 GB and 8 GB"
    with style.page(11, 4.2, title, subtitle, 0.8) as figure:
        axes = figure.subplots()
        grouped_bars(axes, groups, series, "{:.1f}".format, fontsize=8)
        for value in (BEFORE_GB, MEMORY.value):
            axes.axhline(value, color=style.INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axes.set_ylabel("GiB")
        axes.set_ylim(0, 31)
        axes.legend(loc="upper left", fontsize=8, ncols=2)
    return figure


def ratio_picture(rows: Sequence[RatioRow], title: str) -> Figure:
    """A group of bars a network, a bar a variant: how much slower than with unlimited memory."""
    groups = [f"{row.network}({row.batch})\n{row.budget_bytes / GIB:.2f} GiB" for row in rows]
    series: dict[str, tuple[dict[str, Any], list[float | None]]] = {}
    for label, colour in zip(rows[0].ratios, COLOURS, strict=False):
        ratios = [row.ratios[label] for row in rows]
        series[label] = {"color": colour}, [None if ratio is None else 100 * (ratio - 1) for ratio in ratios]
    subtitle = "Titan X, simulated, our reconstruction · ×: does not fit"
    with style.page(11, 4.2, title, subtitle, 0.6) as figure:
        axes = figure.subplots()
        grouped_bars(axes, groups, series, "{:.1f}".format, fontsize=8)
        axes.set_ylabel("slower than with unlimited memory (%)")
        axes.legend(loc="upper right", fontsize=8)
    return figure


def prefetch_picture(rows: Sequence[RatioRow]) -> Figure:
    return ratio_picture(rows, "When the same maps come back")


def choice_picture(rows: Sequence[RatioRow]) -> Figure:
    return ratio_picture(rows, "Which maps leave, by the order in which they are chosen")
