"""A paper's figures beside ours: a table that says what is met and what is missed, and a picture of its networks.

A paper's evaluation is a tuple of parts.  Each knows how to find its figures, in its paper's folder, and how to show
them; the command `refimpl reproduce` needs to know nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.report.tables import Table
from refimpl.reproduce.published import CLOSE, Found, Published, Reproduced, Watch

GIB = 1 << 30

#: Marks that need a word.
MARKS = {
    "p": "p, recalled and not checked again",
    "D": "D, read off its figures",
    "D, C": "D, C, read off and calculated",
}


@dataclass(frozen=True)
class Part:
    """A part of a paper's evaluation."""

    name: str  #: as in `--only NAME`, and its rows' name in JSON
    about: str
    rounds: int  #: how often `find` tells its watch that something begins
    find: Callable[[Watch], Found]
    tables: Callable[[Sequence[Any]], Sequence[Table]] | None = None  #: of the rows that were found
    picture: Callable[[Sequence[Any]], Figure] | None = None


def published_table(paper: str, figures: Sequence[Reproduced]) -> Table:
    """Published and ours, with how far they are apart."""
    rows = []
    for figure in figures:
        published = figure.published
        theirs, ours = (f"{value} {published.unit}".strip() for value in values(published, figure.ours))
        apart = "" if isinf(figure.deviation) else f"{figure.deviation:+.1%}".replace("-0.0%", "+0.0%")
        verdict = "met" if figure.met else "missed"
        rows.append([published.what, theirs, published.mark, ours, apart, verdict, figure.note])
    head = ["figure", "published", "mark", "ours", "apart", "", "how"]
    sources: dict[str, dict[str, None]] = {}
    for figure in figures:
        sources.setdefault(figure.published.mark, {})[figure.published.source] = None
    marks = [f"{MARKS.get(mark, mark)}: {'; '.join(theirs)}." for mark, theirs in sources.items()]
    note = "\n".join([f"met: within {_within(figures)}.", *marks])
    return Table(f"{paper}: published beside ours", head, rows, frozenset({"published", "ours", "apart"}),
                 ("figure", "how"), note)  # fmt: skip


def values(published: Published, ours: float) -> tuple[str, str]:
    """Both as text: the published one as it was given, ours to as many digits, four at least."""
    theirs = f"{published.value:.10g}"
    digits = max(4, sum(map(str.isdigit, theirs.lstrip("0."))), len(str(int(ours))))
    return theirs, f"{ours:.{digits}g}"


def _within(figures: Sequence[Reproduced]) -> str:
    """How close is close: a share, or what a figure says of itself."""
    asked = {(f.published.within, f.published.unit) for f in figures}
    words = [f"{CLOSE:.0%}"] if any(within is None for within, _ in asked) else []
    own = sorted({f"{within:g} {unit}".strip() for within, unit in asked if within})
    counts = ["counts exactly"] if any(within == 0 for within, _ in asked) else []
    return ", ".join([*words, *own, *counts])


class NetworkRow(Protocol):
    """A network under a policy, as far as the picture needs it."""

    @property
    def network(self) -> str: ...
    @property
    def batch(self) -> int: ...
    @property
    def policy(self) -> str: ...
    @property
    def network_wide_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int | None: ...
    @property
    def slowdown(self) -> float | None: ...


def networks_picture(title: str, name: str, rows: Sequence[NetworkRow], budget: int) -> Figure:
    """Memory and slow-down of every network under every policy: a line a network, a dot a policy."""
    names = list(dict.fromkeys(f"{row.network}({row.batch})" for row in rows))
    policies = list(dict.fromkeys(row.policy for row in rows))
    looks = dict(zip(policies, ("o", "s", "^", "D", "P", "v"), strict=False))
    colours = dict(zip(policies, (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.VERMILION), strict=False))
    with style.styled():
        figure = style.new_figure(11, 1.7 + 0.36 * len(names), title, name, 0.75)
        memory, time = figure.subplots(1, 2, sharey=True)
        for row in rows:
            y = -names.index(f"{row.network}({row.batch})")
            memory.plot(row.network_wide_bytes / GIB, y, "|", color=style.INK, markersize=11, markeredgewidth=2)
            drawn = {"color": colours[row.policy], "marker": looks[row.policy], "markersize": 6, "linestyle": "none"}
            if row.peak_bytes is not None and row.slowdown is not None:
                memory.plot(row.peak_bytes / GIB, y, alpha=0.85, **drawn)
                time.plot(100 * row.slowdown, y, alpha=0.85, **drawn)
        memory.axvline(budget / GIB, color=style.VERMILION, linewidth=1.2, linestyle=(0, (6, 2)))
        memory.set_xscale("log", base=2)
        memory.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        memory.set_xlabel("most memory of a step (GiB); | everything at once; dashed: the GPU's")
        time.set_xlabel("slower than a GPU that holds it all (%)")
        memory.set_yticks([-i for i in range(len(names))], names)
        for axes in (memory, time):
            _quiet(axes)
        handles = [
            memory.plot([], [], color=colours[p], marker=looks[p], linestyle="none", label=p)[0] for p in policies
        ]
        time.legend(handles=handles, loc="lower right", fontsize=8, frameon=True, edgecolor="none")
    return figure


def _quiet(axes: Axes) -> None:
    axes.grid(color="#E5E7EB", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
