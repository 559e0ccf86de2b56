"""AccUDNN's evaluation as `refimpl reproduce accudnn` shows it: the abstract's claims in every reading, and ours."""

from __future__ import annotations

from collections.abc import Sequence

from refimpl.report.tables import Column, Table, in_units, plain
from refimpl.reproduce.accudnn import figures, policies, tuned
from refimpl.reproduce.accudnn.figures import MemoryRow, RatioRow
from refimpl.reproduce.accudnn.pictures import (
    batch_picture,
    choice_picture,
    cluster_picture,
    memory_picture,
    policies_picture,
    prefetch_picture,
)
from refimpl.reproduce.accudnn.policies import POLICIES, PolicyRow
from refimpl.reproduce.accudnn.tuned import BatchRow, ClusterRow
from refimpl.reproduce.evaluation import Part
from refimpl.text import duration, size


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


BATCH = (
    Column("GPU", "machine"), Column("accounting", "accounting"), Column("b0", "largest", plain),
    Column("b*", "optimal", plain), Column("trainable", "trainable", plain), Column("b*/b0", "ratio", times),
    Column("X(b*)/X(b0)", "gain", times),
)  # fmt: skip
CLUSTER = (
    Column("GPU", "machine"), Column("GB/s", "rate", in_units(1e9, 0)),
    Column("overlap", lambda row: "yes" if row.overlap else "no"), Column("images each", "batch", plain),
    Column("iteration", "seconds", duration), Column("over its own", "own", times),
    Column("over Caffe's", "speedup", times), Column("8 of Caffe's", "baseline", times),
)  # fmt: skip


def batch_table(rows: Sequence[BatchRow]) -> Table:
    """A line a GPU and accounting."""
    note = (
        "12 GiB, simulated (C), by our tuner (R).  b0: the largest batch without the policy, by the accounting.  b*: "
        "the largest batch within 1 % of the most images a second.  trainable: the largest one with the policy; it is "
        "no aim.  X: images a second; X(b0) as if memory had no end."
    )
    return Table.of("ResNet-152: the efficiency-optimal batch", rows, BATCH, note)


def cluster_table(rows: Sequence[ClusterRow]) -> Table:
    """A line a GPU, link and overlap."""
    note = (
        "A simulated ring of 8 workers, 20 µs a message; nothing ran on a cluster.  over its own: images a second over "
        "one worker's with the same batch.  over Caffe's: over one GPU with the largest batch by caffe-bvlc.  8 of "
        "Caffe's: eight such GPUs over one.  The abstract says neither the link nor the base."
    )
    return Table.of("ResNet-152: 8 GPUs", rows, CLUSTER, note)


def ratio_of(label: str) -> Column:
    """The column of a policy, or of a variant."""
    return Column(label, lambda row: row.ratios[label], times)


def policies_table(rows: Sequence[PolicyRow]) -> Table:
    """A line a network and budget, a column a policy."""
    columns = (
        Column("GPU", "machine"), Column("network", lambda row: f"{row.network}({row.batch})"),
        Column("x", "x", plain), Column("budget", "budget_bytes", size), *map(ratio_of, POLICIES),
    )  # fmt: skip
    note = (
        "budget: x of the way from the least that the model can train in to what the baseline takes.  A dash: does not "
        "fit.  Iterations over the baseline's with unlimited memory, simulated (C)."
    )
    return Table.of("AccUDNN beside the other papers' policies", rows, columns, note)


def ratio_table(title: str, note: str, rows: Sequence[RatioRow]) -> Table:
    """A line a network, a column a variant."""
    columns = (
        Column("network", lambda row: f"{row.network}({row.batch})"), Column("budget", "budget_bytes", size),
        *map(ratio_of, rows[0].ratios),
    )  # fmt: skip
    return Table.of(
        title, rows, columns, f"{note}  Iterations over those with unlimited memory, Titan X, simulated (C)."
    )


def prefetch_table(rows: Sequence[RatioRow]) -> Table:
    """When the same maps are prefetched."""
    note = (
        "The same maps leave in each line: those that the policy accudnn sends.  late: as late as the deadlines "
        "allow.  early: as early as there is room.  A dash: does not fit."
    )
    return ratio_table("When the maps are prefetched", note, rows)


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
    Part("batch", "the efficiency-optimal batch over each baseline's", len(figures.GPUS), tuned.batch,
         lambda rows: [batch_table(rows)], batch_picture),
    Part("cluster", "8 GPUs over one", len(figures.GPUS), tuned.cluster, lambda rows: [cluster_table(rows)],
         cluster_picture),
    Part("policies", "an iteration within a budget, beside the other papers' policies", len([*policies.cells()]),
         policies.policies, lambda rows: [policies_table(rows)], policies_picture),
    Part("prefetch", "when the same maps are prefetched", len(figures.CASES), figures.prefetch,
         lambda rows: [prefetch_table(rows)], prefetch_picture),
    Part("choice", "which maps leave", len(figures.CASES), figures.choice,
         lambda rows: [choice_table(rows)], choice_picture),
)  # fmt: skip
