"""Shared by the papers' evaluations: the interface of a part, the table of published figures, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import isinf
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from refimpl.planner import Program
from refimpl.report.tables import Column, Table, percent, plain
from refimpl.studies.reproduce.published import CLOSE, Found, Published, Quantity, Reproduced, Watch

GIB, MIB = 1 << 30, 1 << 20

#: Marks that need a word.
MARKS = {
    "p": "p, recalled and not checked again",
    "D": "D, read off its figures",
    "D, C": "D, C, read off and calculated",
}


def to_json(value: Any) -> Any:
    """A value for JSON: of a dataclass its fields and its properties."""
    if is_dataclass(value):
        calculated = [name for name, member in vars(type(value)).items() if isinstance(member, property)]
        names = [*(field.name for field in fields(value)), *calculated]
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: to_json(inner) for key, inner in value.items()}
    return [to_json(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def out_bytes(program: Program) -> int:
    """Bytes that an iteration copies to the host, without the results."""
    return program.counts.offloaded_bytes + program.counts.evicted_bytes


def moved_bytes(program: Program) -> int:
    """Bytes that an iteration copies out and in, without the batch and the results, which every setup moves."""
    return out_bytes(program) + program.counts.prefetched_bytes + program.counts.on_demand_bytes


def titled(row: Any) -> str:
    """A row's network and batch, as in `vgg16(64)`."""
    return f"{row.network.partition(':')[0]}({row.batch})"


NETWORK = Column("network", titled)

Tables = Callable[[Sequence[Any]], Sequence[Table]]  #: of a part's rows


def one_table(title: str, columns: Sequence[Column], note: str = "") -> Tables:
    """For a part with one table, a line a row."""
    return lambda rows: [Table.of(title, rows, columns, note)]


@dataclass(frozen=True)
class Part:
    """A part of a paper's evaluation."""

    name: str  #: as in `--only NAME`, and its rows' name in JSON
    about: str
    rounds: int  #: how often `find` calls its watch
    find: Callable[[Watch], Found]
    tables: Tables | None = None  #: of the rows that were found
    picture: Callable[[Sequence[Any]], Figure] | None = None
    document: Callable[[Any], dict[str, Any]] = to_json  #: of one row, for JSON
    units: str = ""  #: the meaning of a unit of the published figures
    beside: bool = True  #: whether it has published figures at all


def reproduced_json(figure: Reproduced) -> dict[str, Any]:
    """A published figure and ours for JSON, which has no number for a deviation from a published 0."""
    published: dict[str, Any] = to_json(figure.published)
    deviation = None if isinf(figure.deviation) else figure.deviation
    return published | {"ours": figure.ours, "deviation": deviation, "met": figure.met, "note": figure.note}


def published_table(paper: str, figures: Sequence[Reproduced], units: str = "") -> Table:
    """Published and ours, with the deviation; `units` is the meaning of a unit."""
    columns = (
        Column("figure", lambda figure: figure.published.what, wraps=True),
        Column("published", lambda figure: values(figure.published, figure.ours)[0], plain),
        Column("mark", lambda figure: figure.published.mark),
        Column("ours", lambda figure: values(figure.published, figure.ours)[1], plain),
        Column("apart", lambda figure: _apart(figure.deviation), plain),
        Column("", lambda figure: "met" if figure.met else "missed"), Column("how", "note", wraps=True),
    )  # fmt: skip
    sources: dict[str, dict[str, None]] = {}
    for figure in figures:
        sources.setdefault(figure.published.mark, {})[figure.published.source] = None
    marks = [f"{MARKS.get(mark, mark)}: {'; '.join(theirs)}." for mark, theirs in sources.items()]
    note = "\n".join([*([units] if units else []), _met(figures), *marks])
    return Table.of(f"{paper}: published beside ours", figures, columns, note)


def _apart(deviation: float) -> str:
    return "" if isinf(deviation) else f"{deviation:+.1%}".replace("-0.0%", "+0.0%")


def values(published: Published, ours: float) -> tuple[str, str]:
    """Both with their unit: the published one as it was given, ours with as many digits, four at least."""
    theirs = f"{published.value:.10g}"
    digits = max(4, sum(map(str.isdigit, theirs.lstrip("0."))), len(str(int(ours))))
    more = "> " if published.above else "≤ " if published.at_most else ""
    return f"{more}{theirs} {published.unit}".strip(), f"{ours:.{digits}g} {published.unit}".strip()


def _met(figures: Sequence[Reproduced]) -> str:
    """How close counts as met: a share, or a figure's own limit."""
    limits = {(f.published.within, f.published.unit) for f in figures if not f.published.above}
    words = [f"{CLOSE:.0%}"] if any(within is None for within, _ in limits) else []
    own = sorted({_limit(within, unit) for within, unit in limits if within})
    counts = ["counts exactly"] if any(within == 0 for within, _ in limits) else []
    close = [f"within {', '.join([*words, *own, *counts])}"] if limits else []
    more = ["above the published figure where that has a >"] if any(f.published.above for f in figures) else []
    less = ["at or below it where it has a ≤"] if any(f.published.at_most for f in figures) else []
    return f"met: {'; '.join([*close, *more, *less])}."


def _limit(within: float, unit: str) -> str:
    """A figure's own limit: of a share it is in percentage points, and no share of a share."""
    if unit == "%":
        return f"{within:g} percentage point{'' if within == 1 else 's'}"
    return f"{within:g} {unit}".strip()


# -- how close, in a line ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """Published figures met and missed, and the median deviation of ours from those in bytes and from those of time."""

    name: str
    figures: int
    met: int
    bytes_figures: int  #: that have a deviation
    bytes_apart: float | None  #: the median
    time_figures: int
    time_apart: float | None

    @classmethod
    def of(cls, name: str, figures: Sequence[Reproduced]) -> Tally:
        met = sum(figure.met for figure in figures)
        return cls(name, len(figures), met, *median_apart("bytes", figures), *median_apart("time", figures))

    @property
    def missed(self) -> int:
        return self.figures - self.met

    def lines(self) -> str:
        """For the end of a paper's evaluation."""
        medians = [
            f"{apart:.1%} of {number} in {what}"
            for what, number, apart in (
                ("bytes", self.bytes_figures, self.bytes_apart),
                ("time", self.time_figures, self.time_apart),
            )
            if apart is not None
        ]
        said = f"Published figures: {self.met} of {self.figures} met."
        return f"{said}  Median deviation: {', '.join(medians)}." if medians else said


def median_apart(quantity: Quantity, figures: Sequence[Reproduced]) -> tuple[int, float | None]:
    """How many figures of a quantity have a deviation, and the median of these, without a sign.

    A published 0 has no deviation, and neither has a "more than".
    """
    apart = [
        abs(figure.deviation)
        for figure in figures
        if figure.published.quantity == quantity and figure.published.value and not figure.published.above
        and figure.published.in_medians
    ]  # fmt: skip
    return len(apart), median(apart) if apart else None


SUMMARY = (
    Column("", "name"), Column("figures", "figures", plain), Column("met", "met", plain),
    Column("missed", "missed", plain), Column("in bytes", "bytes_figures", plain),
    Column("median deviation", "bytes_apart", percent), Column("of time", "time_figures", plain),
    Column("median deviation ", "time_apart", percent),
)  # fmt: skip


def summary_table(tallies: Sequence[Tally]) -> Table:
    """A line a paper, and one for all."""
    note = (
        "A figure that can be read in several ways counts once for each.  Deviations are shares of the published "
        'figures; a published 0 and a "more than" have none.  All times are simulated.'
    )
    return Table.of("Published figures, met and missed", tallies, SUMMARY, note)
