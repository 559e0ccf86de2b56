"""Tables for people: a plan, its steps, a network's layers, setups side by side.  At most 100 columns wide.

A `Table` is data: a title, a head and rows of text.  The command prints it; the documentation takes its rows.
`Table.of` makes one from rows of any kind and a `Column` for each thing that is shown of a row.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style

from refimpl.machine import Timeline
from refimpl.network import Network, Step
from refimpl.network.accounting import network_wide_bytes, summary, total
from refimpl.planner import HostCopy, Program, ToStore
from refimpl.report.comparison import Compared, Spread, shortest
from refimpl.report.figures import average_live_bytes, choices, fragmentation, title, traffic
from refimpl.report.markdown import markdown_table
from refimpl.report.times import step_times
from refimpl.report.uncounted import Uncounted, uncounted
from refimpl.slots.planner_only import PoolSearch
from refimpl.text import counted, duration, harmless, size

WIDTH = 100  #: columns
GAP = "  "  #: between two columns
NARROWEST = 8  #: letters that a column keeps whatever the width


def plain(value: object) -> str:
    """As it is, but aligned as a figure."""
    return str(value)


def count(number: float) -> str:
    """`5,000`"""
    return f"{number:,}"


def percent(share: float) -> str:
    """A share as `18.0%`; never `-0.0%`."""
    return f"{share:.1%}".replace("-0.0%", "0.0%")


def in_units(unit: float, digits: int = 1) -> Callable[[float], str]:
    """How to write a figure as a multiple of `unit`, such as bytes in MiB."""

    def written(value: float) -> str:
        text = f"{value / unit:,.{digits}f}"
        return text if text.strip("-0.") else text.lstrip("-")

    return written


class Column(NamedTuple):
    """A column of a table made from rows."""

    head: str
    of: str | Callable[[Any], Any]  #: the name of a field, or a function of the row; None is shown as a dash
    how: Callable[[Any], str] = str  #: how it is written; figures, which are all that is not `str`, go to the right
    wraps: bool = False  #: the column may break its lines

    def cell(self, row: Any) -> str:
        value = getattr(row, self.of) if isinstance(self.of, str) else self.of(row)
        return "–" if value is None else self.how(value)


@dataclass(frozen=True)
class Table:
    """Rows of text under a head."""

    title: str
    head: list[str]
    rows: list[list[str]]
    numbers: frozenset[str] = field(default_factory=frozenset)  #: columns that are aligned on the right
    wraps: tuple[str, ...] = ()  #: columns that may break their lines
    note: str = ""  #: lines below
    headings: bool = False  #: lines that others, indented, belong to are bold
    hyphens: bool = True  #: a line may break after one

    @classmethod
    def of(cls, title: str, rows: Iterable[Any], columns: Sequence[Column], note: str = "") -> Table:
        """A line a row."""
        numbers = frozenset(column.head for column in columns if column.how is not str)
        wraps = tuple(column.head for column in columns if column.wraps)
        lines = [[column.cell(row) for column in columns] for row in rows]
        return cls(title, [column.head for column in columns], lines, numbers, wraps, note)

    @classmethod
    def side_by_side(cls, title: str, names: Sequence[str], rows: Sequence[Any], columns: Sequence[Column]) -> Table:
        """A line a `Column`, a column a row, which has one of the `names`."""
        lines = [[column.head, *(column.cell(row) for row in rows)] for column in columns]
        return cls(title, ["", *names], lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Head and rows; many times quicker than rich's own table, which a deep network's steps need."""
        for line, bold in self.lines(options.max_width):
            yield Segment(line, Style(bold=True) if bold else None)
            yield Segment.line()

    def text(self, width: int = WIDTH) -> str:
        """As plain text."""
        lines = [line for line, _ in self.lines(width)]
        notes = [line for note in self.note.splitlines() for line in textwrap.wrap(note, width)]
        return "\n".join([harmless(self.title), "", *lines, *(["", *notes] if notes else [])]) + "\n"

    def markdown(self) -> str:
        """Head and rows as Markdown."""
        return markdown_table(self.head, self.rows)

    def lines(self, width: int) -> list[tuple[str, bool]]:
        """Head and rows, line by line, and whether a line is bold; longer ones where `width` is below `least_width`."""
        cells = self._cells()
        widths = self._widths(cells, width)
        return [
            (line, number == 0 or row[0] in ("total", "all") or (self.headings and row[0][:1] != " "))
            for number, row in enumerate(cells)
            for line in self._row(row, widths)
        ]

    @property
    def least_width(self) -> int:
        """The columns that its lines need at least."""
        widths = self._widths(self._cells(), 0)
        return sum(widths) + len(GAP) * (len(widths) - 1)

    def _cells(self) -> list[list[str]]:
        """Head and rows, without what a terminal obeys."""
        return [[harmless(cell, keep="") for cell in row] for row in (self.head, *self.rows)]

    def _widths(self, cells: Sequence[Sequence[str]], width: int) -> list[int]:
        """Every column's: as wide as its widest cell; where that is too much, those that may wrap give way first."""
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        gaps = len(GAP) * (len(widths) - 1)
        wraps = [i for i, name in enumerate(self.head) if name in self.wraps]
        for columns in (wraps, range(len(widths))):
            while sum(widths) + gaps > width and any(widths[i] > NARROWEST for i in columns):
                widths[max(columns, key=lambda i: widths[i])] -= 1
        return widths

    def _row(self, row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        """One row: one line, or more where a cell wraps."""
        cells = [
            [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=self.hyphens)
            for cell, width in zip(row, widths, strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            placed = [
                part.rjust(width) if name in self.numbers else part.ljust(width)
                for name, part, width in zip(self.head, parts, widths, strict=True)
            ]
            yield GAP.join(placed).rstrip()


def share(part: float, whole: float) -> str:
    """`37 %`"""
    return f"{part / whole:.0%}".replace("%", " %") if whole else "–"


# -- one plan ----------------------------------------------------------------------------------------------------------


def plan_table(program: Program, timeline: Timeline, baseline_seconds: float | None = None) -> Table:
    """A plan's answer: its memory, its traffic, its time."""
    counts, peak, pool = program.counts, program.peak, fragmentation(program)
    wide = network_wide_bytes(program.network, max(row.workspace_bytes for row in program.rows))
    layout = pool.layout(pool.peak)
    of_wide = share(program.peak_bytes, wide)
    where = f"step {peak.step.number}, {peak.step.title}"
    rows = [
        ["budget", size(program.budget), f"{size(program.budget - program.peak_bytes)} to spare"],
        ["pool", size(program.pool_bytes), _why_this_pool(program)],
        ["peak", size(program.peak_bytes), f"{share(program.peak_bytes, program.budget)} of the budget"],
        ["  resident", size(program.network.resident_bytes), counted(len(program.resident), "tensor")],
        ["  live, at most", size(peak.live_bytes), where],
        ["  live, on average", size(average_live_bytes(program)), "over the steps"],
        ["  holes at the peak", size(layout.hole_bytes), f"the largest {size(layout.largest_hole)}"],
        ["network-wide", size(wide), f"if everything were allocated once; the peak is {of_wide}"],
    ]
    kernels, against = timeline.busy("compute"), ""
    if baseline_seconds:
        against = f"{timeline.seconds / baseline_seconds:.2f} × the baseline's {duration(baseline_seconds)}"
    speed = program.network.flops / kernels / 1e12
    for moved in traffic(program):
        rate = f", {timeline.link_rate(moved.why) / 1e9:.1f} GB/s" if moved.why not in ("batch", "result") else ""
        rows.append([f"{moved.direction}, {moved.why}", size(moved.nbytes), counted(moved.copies, "time") + rate])
    if counts.evictions:
        found = f"{counts.hits} hits, {counts.misses} misses"
        rows.append(["evictions", str(counts.evictions), found])
    if counts.skipped_prefetches:
        rows.append(["prefetches skipped", str(counts.skipped_prefetches), "for want of a hole"])
    if counts.recomputed_layers:
        rows.append(["rebuilt", str(counts.recomputed_layers), "forward steps run again"])
    rows += [
        ["pinned memory", size(program.pinned_bytes), "on the host, batch and results included"],
        *([f"{name} tier", size(nbytes), "of maps"] for name, nbytes in program.tier_bytes.items()),
        *_stored(program, timeline),
        ["iteration", duration(timeline.seconds), against],
        ["  in kernels", duration(kernels), f"{share(kernels, timeline.seconds)}, {speed:.2f} TFLOP/s"],
        ["  stalled", duration(timeline.stall), share(timeline.stall, timeline.seconds)],
        *_reduced(program, timeline),
        ["instructions", f"{len(program.instructions):,}", counted(counts.waits, "wait") + " among them"],
        *([f"not counted: {one.name}", bytes_of(one), one.why] for one in uncounted(program)),
    ]
    return Table(title(program, timeline), ["", "figure", "remark"], rows, frozenset({"figure"}), ("remark",))


def bytes_of(one: Uncounted) -> str:
    """From its least to its most."""
    return "not known" if one.most is None else f"{size(one.least)} to {size(one.most)}"


def _why_this_pool(program: Program) -> str:
    """Why the pool has the size that it has."""
    if program.pool_bytes == program.budget:
        return "all of the budget"
    if isinstance(program.setup.allocator, PoolSearch):
        return "found by the search before training"
    return f"{share(program.pool_bytes, program.budget)} of the budget: in a larger one a hole is too small"


def _reduced(program: Program, timeline: Timeline) -> list[list[str]]:
    """The network's figures in data-parallel training."""
    reduced, ranks = program.network.reduced, program.network.ranks
    if not reduced:
        return []
    how = f"{counted(len(reduced), 'all-reduce')} of {size(sum(reduced))}, {ranks} ranks"
    busy, hidden = timeline.busy("network"), timeline.hidden("network")
    return [["  on the network", duration(busy), f"{how}; {share(hidden, busy)} beside kernels"]]


def _stored(program: Program, timeline: Timeline) -> list[list[str]]:
    """Maps that the host's threads copy to the store: how much, to what, how fast."""
    work = [i for i in program.instructions if isinstance(i, HostCopy)]
    if not work:
        return []
    busy, raw = timeline.busy("host"), sum(i.nbytes for i in work if isinstance(i, ToStore))
    rate = f"{sum(i.nbytes for i in work) / busy / 1e9:.1f} GB/s both ways" if busy else ""
    stored = f"of maps, to {size(program.counts.stored_bytes)} as planned, {rate}"
    return [[f"{work[0].codec.packed} on the host", size(raw), stored]]


def steps_table(program: Program, timeline: Timeline) -> Table:
    """A line a step."""
    chosen = choices(program)

    def algorithms(step: Step) -> str:
        return ", ".join(dict.fromkeys(chosen[call].algorithm for call in step.calls if call in chosen))

    def letter(step: Step) -> str:
        return step.direction[0] + str(step.part) * (step.parts > 1)

    columns = (
        Column("step", lambda it: it[0].step.number, plain),
        Column("layer", lambda it: it[0].step.layer.name, wraps=True), Column("", lambda it: letter(it[0].step)),
        Column("live", lambda it: it[0].live_bytes, size), Column("tensors", lambda it: it[0].live_tensors, plain),
        Column("in use", lambda it: it[0].pool_bytes, size),
        Column("workspace", lambda it: it[0].workspace_bytes, lambda nbytes: size(nbytes) if nbytes else ""),
        Column("starts", lambda it: it[1][0], duration), Column("takes", lambda it: it[1][1] - it[1][0], duration),
        Column("algorithm", lambda it: algorithms(it[0].step), wraps=True),
    )  # fmt: skip
    rows = zip(program.rows, step_times(program, timeline), strict=True)
    parts = ", b1, b2: its parts" * any(row.step.parts > 1 for row in program.rows)
    note = f"f: forward, b: backward{parts}.  live, in use: just before the step's launch."
    return Table.of(title(program, timeline), rows, columns, note)


# -- several plans -----------------------------------------------------------------------------------------------------


def tried_table(program: Program) -> Table:
    """The setups that a search planned, in its order; the adopted one is marked."""
    by_a_model = (
        Column("predicted", "predicted", duration), Column("chosen", lambda trial: trial.note or None, wraps=True),
    )  # fmt: skip
    adopted = program.adopted
    columns = (
        Column("setup", "setup"), Column("fits", lambda trial: "yes" if trial.fits else "no"),
        Column("peak", lambda trial: trial.peak_bytes, size),
        Column("iteration", lambda trial: trial.seconds, duration),
        *(by_a_model if any(trial.predicted for trial in program.tried) else ()),
        Column("", lambda trial: "adopted" if trial is adopted else trial.failure, wraps=True),
    )  # fmt: skip
    return Table.of("What was tried, in this order", program.tried, columns)


FITS = Column("fits", lambda setup: "yes" if setup.fits else "no")
BEST_OF_PAPERS = (
    Column("paper", "paper"), Column("policy", lambda setup: setup.name if setup.fits else "none fits", wraps=True),
)  # fmt: skip


def compare_table(
    name: str, setups: Sequence[Compared], baseline_seconds: float | None = None, spread: Spread | None = None
) -> Table:
    """A line a setup, or the best of every paper's.

    Args:
        name: what they have in common: network, batch, machine, budget.
        setups: of one network within one budget.
        baseline_seconds: what the iterations are compared with; None: the fastest that fits.
        spread: the same on possible machines.
    """
    least = baseline_seconds or shortest(setups)

    def fitting(of: str | Callable[[Compared], Any]) -> Callable[[Compared], Any]:
        return lambda setup: (getattr(setup, of) if isinstance(of, str) else of(setup)) if setup.fits else None

    papers = any(setup.paper for setup in setups)
    smaller = any(setup.fits and setup.pool_bytes < setup.budget for setup in setups)
    columns = (
        *(BEST_OF_PAPERS if papers else (Column("setup", "name", wraps=True),)),
        *([] if papers or smaller else [FITS]),
        *([Column("pool", fitting("pool_bytes"), size)] if smaller else []),
        *([Column("least", "least_bytes", size)] if any(setup.least_bytes for setup in setups) else []),
        Column("peak", fitting("peak_bytes"), size),
        *([] if papers else [Column("live", fitting("live_bytes"), size)]),
        Column("out", fitting(lambda setup: setup.out_bytes or None), size),
        Column("in", fitting(lambda setup: setup.in_bytes or None), size),
        Column("rebuilt", fitting(lambda setup: setup.recomputed_layers or None), plain),
        Column("iteration", fitting("seconds"), duration),
        Column("", fitting(lambda setup: setup.seconds / least), lambda ratio: f"{ratio:.2f} ×"),
        *([Column("5 to 95 %", fitting(spread.interval), "{0[0]:.2f}–{0[1]:.2f}".format)] if spread else []),
        *([] if papers else [Column("stalled", fitting(lambda setup: share(setup.stall, setup.seconds)), plain)]),
    )  # fmt: skip
    whole = "The pool is all of the budget.  " * any(setup.fits for setup in setups)
    pools = "pool: what is taken of the budget.  " if smaller else whole
    peaks = f"{pools}peak: what is in use at most{'' if papers else '; live: by tensors'}."
    against = f"the baseline with unlimited memory, {duration(least)}" if baseline_seconds else "the fastest that fits"
    note = f"{peaks}  out, in: bytes copied in an iteration.  ×: against {against}."
    note += "  least: the smallest budget tried that fits." * any(setup.least_bytes for setup in setups)
    if papers:
        why = [line for setup in setups if (line := _others(setup, least))]
    else:
        why = [f"{setup.name} does not fit: it {setup.misfit}." for setup in setups if not setup.fits]
    return Table.of(name, setups, columns, "\n".join([*why, note, *(_orders(spread) if spread else [])]))


def _orders(spread: Spread) -> list[str]:
    """On how many possible machines the order of the rows is the model's."""
    lines = [
        f"5 to 95 %: the × on {spread.machines} machines that differ from the model as much as models were found to."
    ]
    if found := spread.orders():
        pairs = [f"{one.paper or one.name} is faster than {two.paper or two.name} on {n}" for one, two, n in found]
        lines.append(f"Of these {spread.machines}, {', '.join(pairs)}.")
    return lines


def _others(best: Compared, baseline_seconds: float) -> str:
    """Why a paper's other policies are not its row: they take longer, or do not fit; empty where there is no other."""
    by_reason: dict[str, list[str]] = {}
    for one in best.others if best.fits else (best, *best.others):
        why = f"takes {one.seconds / baseline_seconds:.2f} ×" if one.fits else one.misfit
        by_reason.setdefault(why, []).append(one.name)
    if not best.others:
        return "".join(f"{best.paper} {why}." for why in by_reason)
    return f"{best.paper}: " + "; ".join(_sentence(names, why) for why, names in by_reason.items()) + "."


def _sentence(names: Sequence[str], predicate: str) -> str:
    """Subjects and what is said of one of them: a, b and c fail at conv1."""
    if len(names) == 1:
        return f"{names[0]} {predicate}"
    verb, _, rest = predicate.partition(" ")
    return f"{', '.join(names[:-1])} and {names[-1]} {'are' if verb == 'is' else verb.removesuffix('s')} {rest}"


# -- a network ---------------------------------------------------------------------------------------------------------


def summary_table(network: Network) -> Table:
    """A line a layer: the shape of its output, its parameters, its operations, its map."""
    rows = summary(network)
    columns = (
        Column("layer", "layer", wraps=True),
        Column("kind", lambda row: (f"{row.kind}, relu" if row.relu else row.kind) if row.shape else ""),
        Column("shape", lambda row: "×".join(map(str, row.shape)), plain),
        Column("parameters", "parameters", lambda number: count(number) if number else ""),
        Column("GFLOP forward", "flops_forward", _giga), Column("backward", "flops_backward", _giga),
        Column("map", lambda row: "in place" if row.in_place else size(row.map_bytes), plain),
    )  # fmt: skip
    name = f"{network.name}, batch {network.batch}: {counted(len(network.layers), 'layer')}"
    note = "in place: the layer overwrites the map it reads.  GFLOP: of convolutions and fully connected layers."
    if network.opaque:
        note += "  opaque: an operator of PyTorch's that is no kind of layer here; it is planned, and cannot be run."
    if any(row.relu for row in rows):
        note += "  relu: one is part of the layer, and has no map of its own."
    return Table.of(name, [*rows, total(rows)], columns, note)


def _giga(flops: int) -> str:
    if not flops:
        return ""
    return f"{flops / 1e9:,.3g}" if flops < 1e12 else f"{flops / 1e9:,.0f}"
