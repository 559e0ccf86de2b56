"""AccUDNN's evaluation as `refimpl reproduce accudnn` shows it: the abstract's claims in every reading, and ours."""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.report.tables import Column, Table, plain
from refimpl.reproduce.accudnn import figures
from refimpl.reproduce.accudnn.figures import MemoryRow, RatioRow
from refimpl.reproduce.accudnn.pictures import choice_picture, memory_picture, prefetch_picture
from refimpl.reproduce.evaluation import Part
from refimpl.text import size


def times(ratio: float) -> str:
    return f"{ratio:.2f} ×"


MEMORY = (
    Column("GPU", "machine"), Column("accounting", "accounting"), Column("images", "batch", plain),
    Column("without", "accounted_bytes", size), Column("in 8 GB", "eight_gb", times),
    Column("needed", "needed_bytes", size),
)  # fmt: skip


def memory_table(rows: Sequence[MemoryRow]) -> Table:
    """A line a GPU and accounting."""
    note = (
        "Simulated (C) with a reconstructed policy (R); the paper names neither GPU nor batch.  images: the smallest "
        "batch of ResNet-152 that takes more than 24 GB by the accounting, so that both figures follow from one free "
        "number.  in 8 GB: the iteration over the one with unlimited memory.  needed: the least budget tried that "
        "costs at most 1 % of speed."
    )
    return Table.of("ResNet-152: memory without loss of speed", rows, MEMORY, note)


def ratio_table(title: str, note: str, rows: Sequence[RatioRow]) -> Table:
    """A line a network, a column a variant."""

    def ratio_of(label: str) -> Column:
        return Column(label, lambda row: row.ratios[label], times)

    columns = (
        Column("network", lambda row: f"{row.network}({row.batch})"), Column("budget", "budget_bytes", size),
        *map(ratio_of, rows[0].ratios),
    )  # fmt: skip
    return Table.of(
        title, rows, columns, f"{note}  Iterations over those with unlimited memory, Titan X, simulated (C)."
    )


def prefetch_table(rows: Sequence[RatioRow]) -> Table:
    """When the same maps come back."""
    note = (
        "The same maps leave in each line: those that the policy accudnn sends.  late: as late as the deadlines "
        "allow.  early: as early as there is room.  A dash: does not fit."
    )
    return ratio_table("When the maps come back", note, rows)


def choice_table(rows: Sequence[RatioRow]) -> Table:
    """Which maps leave, by the order in which they are chosen."""
    note = (
        "The policy accudnn with one order of its candidates alone.  idle: idle longest first.  slack: most idle time "
        "left after the copies, for each byte.  size: largest first."
    )
    return ratio_table("Which maps leave", note, rows)


PARTS = (
    Part("memory", "ResNet-152's memory without loss of speed", len(figures.GPUS) * len(figures.ACCOUNTINGS),
         figures.memory, lambda rows: [memory_table(rows)], memory_picture, units="GB: 2^30 bytes."),
    Part("prefetch", "when the same maps come back", len(figures.CASES), figures.prefetch,
         lambda rows: [prefetch_table(rows)], prefetch_picture),
    Part("choice", "which maps leave", len(figures.CASES), figures.choice,
         lambda rows: [choice_table(rows)], choice_picture),
)  # fmt: skip
