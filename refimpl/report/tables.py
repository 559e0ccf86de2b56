"""Tables for people: a plan, its steps, a network's layers, setups side by side.  At most 100 columns wide.

A `Table` is data, a title, a head and rows of text; the command prints it, the documentation takes its rows.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style

from refimpl.machine import Timeline
from refimpl.network import Network
from refimpl.network.accounting import network_wide_bytes
from refimpl.network.summary import Row, summary, total
from refimpl.planner import Launch, Program
from refimpl.planner.instructions import Compress, Decompress
from refimpl.report.comparison import Compared, shortest
from refimpl.report.figures import fragmentation, traffic
from refimpl.report.times import step_times
from refimpl.text import counted, duration, size

WIDTH = 100  #: columns
GAP = "  "  #: between two columns
NARROWEST = 8  #: letters that a column keeps whatever the width


@dataclass(frozen=True)
class Table:
    """Rows of text under a head."""

    title: str
    head: list[str]
    rows: list[list[str]]
    numbers: frozenset[str] = field(default_factory=frozenset)  #: columns that are aligned on the right
    wraps: tuple[str, ...] = ()  #: columns that may break their lines
    note: str = ""  #: lines below

    def rich(self) -> _Body:
        """Head and rows for a console of the library rich."""
        return _Body(self)

    def text(self, width: int = WIDTH) -> str:
        """As plain text."""
        lines = [line for line, _ in self.lines(width)]
        notes = [line for note in self.note.splitlines() for line in textwrap.wrap(note, width)]
        return "\n".join([self.title, "", *lines, *(["", *notes] if notes else [])]) + "\n"

    def lines(self, width: int) -> list[tuple[str, bool]]:
        """Head and rows, line by line, and whether a line is bold."""
        widths = self._widths(width)
        return [
            (line, number == 0 or row[0] in ("total", "all"))
            for number, row in enumerate([self.head, *self.rows])
            for line in self._row(row, widths)
        ]

    def _widths(self, width: int) -> list[int]:
        """Every column's: as wide as its widest cell; where that is too much, those that may wrap give way first."""
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        gaps = len(GAP) * (len(widths) - 1)
        wraps = [i for i, name in enumerate(self.head) if name in self.wraps]
        for columns in (wraps, range(len(widths))):
            while sum(widths) + gaps > width and any(widths[i] > NARROWEST for i in columns):
                widths[max(columns, key=lambda i: widths[i])] -= 1
        return widths

    def _row(self, row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        """One row: one line, or more where a cell wraps."""
        cells = [
            [cell] if len(cell) <= width else textwrap.wrap(cell, width)
            for cell, width in zip(row, widths, strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            placed = [
                part.rjust(width) if name in self.numbers else part.ljust(width)
                for name, part, width in zip(self.head, parts, widths, strict=True)
            ]
            yield GAP.join(placed).rstrip()


class _Body:
    """A table on its way to a console; many times quicker than rich's own, which a deep network's steps need."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line, bold in self._table.lines(options.max_width):
            yield Segment(line, Style(bold=True) if bold else None)
            yield Segment.line()


def title(program: Program, timeline: Timeline) -> str:
    """What a table or a picture is of: network, batch, setup, machine, and whether its times are a model's."""
    how = "simulated" if timeline.simulated else "measured"
    return f"{program.network.name}, batch {program.network.batch} · {program.setup.name} · {timeline.machine} ({how})"


def share(part: float, whole: float) -> str:
    """`37 %`"""
    return f"{part / whole:.0%}".replace("%", " %") if whole else "–"


# -- one plan ----------------------------------------------------------------------------------------------------------


def plan_table(program: Program, timeline: Timeline, baseline_seconds: float | None = None) -> Table:
    """A plan's answer: whether and how it fits, what it moves, how long it takes."""
    counts, peak, pool = program.counts, program.peak, fragmentation(program)
    wide = network_wide_bytes(program.network, max(row.workspace_bytes for row in program.rows))
    layout = pool.layout(pool.peak)
    where = f"step {peak.step.number}, {peak.step.layer} {peak.step.direction}"
    rows = [
        ["budget", size(program.budget), f"{size(program.budget - program.peak_bytes)} to spare"],
        ["pool, at most", size(program.peak_bytes), f"{share(program.peak_bytes, program.budget)} of the budget"],
        ["  resident", size(program.network.resident_bytes), counted(len(program.resident), "tensor")],
        ["  live, at most", size(peak.live_bytes), where],
        ["  live, on average", size(_average(program)), "over the steps"],
        ["  holes at the peak", size(layout.free_bytes), f"the largest {size(layout.largest_hole)}"],
        [
            "network-wide",
            size(wide),
            f"if everything were allocated once; the pool is {share(program.peak_bytes, wide)}",
        ],
    ]
    kernels = timeline.busy("compute")
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
        *_compressed(program, timeline),
        ["iteration", duration(timeline.seconds), _against(timeline.seconds, baseline_seconds)],
        ["  in kernels", duration(kernels), f"{share(kernels, timeline.seconds)}, {speed:.2f} TFLOP/s"],
        ["  stalled", duration(timeline.stall), share(timeline.stall, timeline.seconds)],
        ["instructions", f"{len(program.instructions):,}", counted(counts.waits, "wait") + " among them"],
    ]
    return Table(title(program, timeline), ["", "figure", "remark"], rows, frozenset({"figure"}), ("remark",))


def _compressed(program: Program, timeline: Timeline) -> list[list[str]]:
    """Maps that the host's threads compress: how much, to what, how fast."""
    counts, busy = program.counts, timeline.busy("host")
    if not counts.compressed_bytes:
        return []
    work = [i for i in program.instructions if isinstance(i, (Compress, Decompress))]
    rate = f"{sum(i.nbytes for i in work) / busy / 1e9:.1f} GB/s both ways" if busy else ""
    stored = f"of maps, to {size(counts.stored_bytes)} as planned, {rate}"
    return [["compressed on the host", size(counts.compressed_bytes), stored]]


def _average(program: Program) -> int:
    return round(sum(row.live_bytes for row in program.rows) / len(program.rows))


def _against(seconds: float, baseline_seconds: float | None) -> str:
    return f"{seconds / baseline_seconds:.2f} × the baseline's {duration(baseline_seconds)}" if baseline_seconds else ""


def steps_table(program: Program, timeline: Timeline) -> Table:
    """A line a step."""
    algorithms: dict[int, list[str]] = {}
    for i in program.instructions:
        if isinstance(i, Launch) and not i.rebuild and i.choice is not None:
            algorithms.setdefault(i.step, []).append(i.choice.algorithm)
    rows = []
    for row, (start, end) in zip(program.rows, step_times(program, timeline), strict=True):
        step = row.step
        figures = [size(row.live_bytes), str(row.live_tensors), size(row.pool_bytes)]
        workspace = size(row.workspace_bytes) if row.workspace_bytes else ""
        chosen = ", ".join(dict.fromkeys(algorithms.get(step.number, ())))
        times = [duration(start), duration(end - start)]
        rows.append([str(step.number), step.layer.name, step.direction[0], *figures, workspace, *times, chosen])
    head = ["step", "layer", "", "live", "tensors", "pool", "workspace", "starts", "takes", "algorithm"]
    numbers = frozenset({"step", "live", "tensors", "pool", "workspace", "starts", "takes"})
    note = "f: forward, b: backward.  live and pool: just before the step's launch."
    return Table(title(program, timeline), head, rows, numbers, ("layer", "algorithm"), note)


# -- several plans -----------------------------------------------------------------------------------------------------


def tried_table(program: Program) -> Table:
    """What a policy that searches planned, in its order; the adopted one is marked."""
    rows = []
    for trial in program.tried:
        adopted = "adopted" if program.setup.name.endswith(trial.setup) else ""
        pool = "" if trial.peak_bytes is None else size(trial.peak_bytes)
        time = "" if trial.seconds is None else duration(trial.seconds)
        rows.append([trial.setup, "yes" if trial.fits else "no", pool, time, adopted or trial.failure])
    numbers = frozenset({"pool", "iteration"})
    return Table("What was tried, in this order", ["setup", "fits", "pool", "iteration", ""], rows, numbers, ("",))


def compare_table(name: str, setups: Sequence[Compared]) -> Table:
    """A line a setup; `name` says what they have in common: network, batch, machine, budget."""
    least = shortest(setups)
    rows = []
    for setup in setups:
        if not setup.fits:
            rows.append([setup.name, "no", *[""] * 8])
            continue
        moved = [size(nbytes) if nbytes else "–" for nbytes in (setup.out_bytes, setup.in_bytes)]
        again = str(setup.recomputed_layers or "–")
        time = [duration(setup.seconds), f"{setup.seconds / least:.2f} ×", share(setup.stall, setup.seconds)]
        rows.append([setup.name, "yes", size(setup.pool_bytes), size(setup.live_bytes), *moved, again, *time])
    head = ["setup", "fits", "pool", "live", "out", "in", "rebuilt", "iteration", "", "stalled"]
    numbers = frozenset(head[2:])
    note = "pool, live: at their peaks.  out, in: bytes copied in an iteration.  ×: against the fastest that fits."
    misfits = [f"{setup.name} does not fit: it {setup.misfit}." for setup in setups if not setup.fits]
    return Table(name, head, rows, numbers, ("setup",), "\n".join([*misfits, note]))


# -- a network ---------------------------------------------------------------------------------------------------------


def summary_table(network: Network) -> Table:
    """A line a layer: what it puts out, what it learns, what it computes, what it keeps."""
    rows = summary(network)
    lines = [_layer(row) for row in [*rows, total(rows)]]
    head = ["layer", "kind", "shape", "parameters", "GFLOP forward", "backward", "map"]
    numbers = frozenset({"shape", "parameters", "GFLOP forward", "backward", "map"})
    name = f"{network.name}, batch {network.batch}: {counted(len(network.layers), 'layer')}"
    note = "in place: the layer overwrites the map it reads.  GFLOP: of convolutions and fully connected layers."
    if any(row.relu for row in rows):
        note += "  relu: one is part of the layer, and has no map of its own."
    return Table(name, head, lines, numbers, ("layer",), note)


def _layer(row: Row) -> list[str]:
    flops = [_giga(row.flops_forward), _giga(row.flops_backward)]
    filled = "in place" if row.in_place else size(row.map_bytes)
    kind = (f"{row.kind}, relu" if row.relu else row.kind) if row.shape else ""
    return [
        row.layer,
        kind,
        "×".join(map(str, row.shape)),
        f"{row.parameters:,}" if row.parameters else "",
        *flops,
        filled,
    ]


def _giga(flops: int) -> str:
    if not flops:
        return ""
    return f"{flops / 1e9:,.3g}" if flops < 1e12 else f"{flops / 1e9:,.0f}"
