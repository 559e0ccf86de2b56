"""How every picture looks: colours that the colour-blind can tell apart, units, titles, and files that never differ.

The colours are Okabe and Ito's.  A picture drawn twice is the same file: no date is in it, and SVG's identifiers come
from a fixed salt.  An SVG's text stays text, so that it can be searched and read aloud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from refimpl.files import replacing
from refimpl.planner import Launch, Program
from refimpl.report.figures import step_ends
from refimpl.text import UNITS, harmless

ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY, INK, PALE, OLIVE, INDIGO = "#B4B9BE", "#222222", "#6B7280", "#8A7A00", "#5B4FB0"
AMBER, TEAL, BROWN = "#C47F00", "#11808A", "#8C6D46"  #: dark enough for a line on a projector, as orange is not
LINE, FAINT = "#E5E7EB", "#D9DCE1"  #: of grids and free memory; of figures to compare with

#: What device memory holds, as in `figures.KINDS`: colour and hatch.
KIND_STYLE: dict[str, tuple[str, str]] = {
    "resident": (GREY, ""),
    "input": (YELLOW, ""),
    "map": (BLUE, ""),
    "gradient map": (ORANGE, ""),
    "weight gradient": (VERMILION, ""),  # where these come and go; elsewhere they are resident
    "workspace": (GREEN, ""),
    "momentum": (INDIGO, ""),  # or AdamW's averages, where they come from the host; elsewhere they are resident
    "draining": (PURPLE, "////"),
}

#: What runs on a stream.
WORK_STYLE: dict[str, tuple[str, str]] = {
    "forward": (BLUE, ""),
    "backward": (ORANGE, ""),
    "rebuild": (GREEN, ""),
    "copy out": (PURPLE, ""),
    "prefetch": (SKY, ""),
    "on demand": (VERMILION, ""),
    "batch, results": (GREY, ""),
    "to the store": (YELLOW, ""),
    "from the store": (OLIVE, ""),
    "all-reduce": (INDIGO, ""),
    "stalled": ("#FBE3D6", ""),
}

#: Lines below the copies of the first tier beside the host, the second, …
TIER_COLOURS = (INK, "#A50026", "#00695C")

SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "hatch.color": "#FFFFFF",
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "refimpl",
    "text.color": INK,
    "text.parse_math": False,  # a name may have two dollar signs
    "xtick.color": PALE,
    "ytick.color": PALE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}

DPI = 150
HEAD = 0.78  #: inches at the top for title, subtitle and legend
BUSY = 0.75  #: of a step's width on the axis: while its calls run; everything before and after shares the rest
LEGEND: dict[str, Any] = {"fontsize": 8, "handlelength": 1.3, "columnspacing": 1.2, "borderpad": 0, "borderaxespad": 0}
DETAIL = 4000  #: shapes of one kind beyond which an SVG holds an image of them in place of the shapes


def new_figure(width: float, height: float, title: str, subtitle: str, head: float = HEAD) -> Figure:
    """A picture with nothing but its head, `head` inches of it.  To be made and filled inside `styled()`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0, 0, 1, 1 - head / height))
    figure.text(0.1 / width, 1 - 0.12 / height, title, va="top", fontsize=13, fontweight="bold")
    figure.text(0.1 / width, 1 - 0.38 / height, subtitle, va="top", fontsize=9, color=PALE)
    return figure


def styled() -> Any:
    """The context in which pictures are made and saved."""
    return mpl.rc_context(SETTINGS)


@contextmanager
def page(width: float, height: float, title: str, subtitle: str, head: float = HEAD) -> Iterator[Figure]:
    """A new figure inside `styled()`; sizes are inches."""
    with styled():
        yield new_figure(width, height, title, subtitle, head)


def save(figure: Figure, path: str | Path) -> None:
    """Write a picture as PNG or SVG, by the ending of the path; its label is the description in the file."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise ValueError(f"a picture ends in .png or .svg, and {path.name} does not")
    metadata: dict[str, str | None] = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    if figure.get_label():
        metadata["Description"] = harmless(str(figure.get_label()), keep="\n")
    escape_names(figure)
    with styled(), replacing(path) as file:
        figure.savefig(file, format=kind, dpi=DPI, metadata=metadata, facecolor="white")


def escape_names(figure: Figure) -> None:
    """Names in a picture as a terminal shows them: no font has an escape, and half a surrogate is an error."""
    for text in figure.findobj(Text):
        text.set_text(harmless(text.get_text()))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if isinstance(ticks := axis.get_major_formatter(), FuncFormatter):  # set_ticks makes one, too
            ticks.func = partial(escaped_tick, ticks.func)


def escaped_tick(func: Callable[[float, int | None], str], value: float, place: int | None) -> str:
    return harmless(func(value, place))


# -- axes --------------------------------------------------------------------------------------------------------------


def byte_unit(largest: float) -> tuple[int, str]:
    """The unit in which `largest` bytes are a number of one to four digits."""
    return next(((unit, name) for unit, name in UNITS if largest >= unit), (1, "bytes"))


def time_unit(longest: float) -> tuple[float, str]:
    """The same for seconds."""
    return next(((unit, name) for unit, name in ((1.0, "s"), (1e-3, "ms")) if longest >= unit), (1e-6, "µs"))


def in_units(axis: Any, unit: float) -> None:
    """Write an axis' figures as multiples of a unit."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:,.10g}"))


def grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Thin lines below everything that is drawn."""
    axes.grid(axis=axis, color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)


def named_rows(axes: Axes) -> None:
    """The vertical axis names rows: it has neither a line nor ticks."""
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def limit(axes: Axes, value: float, across: bool = True, **look: Any) -> None:
    """A dashed line that must not be crossed, such as the budget; `across` the picture or up it."""
    line: dict[str, Any] = {"color": VERMILION, "linewidth": 1.2, "linestyle": (0, (6, 2))} | look
    (axes.axhline if across else axes.axvline)(value, **line)


def byte_axis(axes: Axes, largest: float, label: str) -> None:
    """The vertical axis counts bytes from 0 to a little over `largest`."""
    unit, name = byte_unit(largest)
    top = largest * 1.12 or 1
    axes.set_ylim(0, top)
    axes.set_yticks(np.arange(0, top, nice_step(top / unit, 6) * unit))
    in_units(axes.yaxis, unit)
    axes.set_ylabel(f"{label} ({name})")
    grid(axes, "y")


def nice_step(span: float, parts: int) -> float:
    """A round number of which about `parts` make up `span`: 1, 2 or 5 times a power of ten."""
    rough = span / parts
    power = 10.0 ** np.floor(np.log10(rough))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999))


def step_axis(program: Program) -> np.ndarray:
    """Position → its place on an axis of steps, where step k reaches from k - ½ to k + ½; one entry more for the end.

    Everything before a step's first own launch is squeezed together on the left, everything after it on the right.
    """
    first: dict[int, int] = {}
    for position, i in enumerate(program.instructions):
        if isinstance(i, Launch) and not i.rebuild:
            first.setdefault(i.step, position)
    margin = (1 - BUSY) / 2
    places = np.empty(len(program.instructions) + 1)
    start = 0
    for number, end in enumerate(step_ends(program)):
        turn = min(first.get(number, start), end)
        places[start:turn] = number - 0.5 + margin * np.arange(turn - start) / max(turn - start, 1)
        places[turn:end] = number + 0.5 - margin + margin * np.arange(end - turn) / max(end - turn, 1)
        start = end
    places[-1] = len(program.network.steps) + 0.5
    return places


def label_steps(axes: Axes, program: Program) -> None:
    """The horizontal axis counts steps; where there are few, their layers' names are below."""
    steps = program.network.steps
    axes.set_xlim(0.3, len(steps) + 0.5)
    if len(steps) <= 80:
        axes.set_xticks(range(1, len(steps) + 1), [step.layer.name for step in steps], rotation=90, fontsize=6)
        axes.tick_params(axis="x", length=2)
        axes.set_xlabel("step, by its layer's name")
    else:
        axes.set_xlabel("step")


def mark_turn(axes: Axes, program: Program) -> None:
    """A line where forward ends and backward begins."""
    steps, depth = len(program.network.steps), program.network.depth
    if depth < steps:
        mark_forward(axes, depth, 0.004 * steps)


def legend(figure: Figure, styles: dict[str, tuple[str, str]], names: Sequence[str]) -> None:
    """Coloured squares with names, in a row below the subtitle."""
    legend_row(figure, [Patch(facecolor=styles[name][0], hatch=styles[name][1], label=name) for name in names])


def legend_row(figure: Figure, handles: Sequence[Any]) -> None:
    """A legend below the subtitle."""
    place = 0.1 / figure.get_figwidth(), 1 - 0.58 / figure.get_figheight()
    row = figure.legend(handles=handles, loc="upper left", bbox_to_anchor=place, ncols=len(handles), **LEGEND)
    row.set_in_layout(False)


def legend_above(axes: Axes, columns: int) -> None:
    """A legend of its own above a panel."""
    axes.legend(ncols=columns, loc="lower left", bbox_to_anchor=(0, 1.02), **LEGEND)


def mark_forward(axes: Axes, depth: float, gap: float) -> None:
    """A line where forward ends and backward begins, after step `depth`; `gap` steps from it to the words."""
    axes.axvline(depth + 0.5, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
    words: dict[str, Any] = {"y": 1.005, "transform": axes.get_xaxis_transform(), "fontsize": 8, "color": PALE}
    axes.text(depth + 0.5 - gap, s="← forward", ha="right", va="bottom", **words)
    axes.text(depth + 0.5 + gap, s="backward →", ha="left", va="bottom", **words)
