"""AccUDNN's evaluation as `refimpl reproduce accudnn` shows it: the abstract's claims in every reading, and ours."""

from __future__ import annotations

from refimpl.report.tables import Column, Table, in_units, plain
from refimpl.studies.reproduce.accudnn import figures, pictures
from refimpl.studies.reproduce.evaluation import NETWORK, Part, Tables, one_table
from refimpl.text import duration, size


def times(ratio: float) -> str:
    return f"{ratio:.2f} ×"


def ratio_of(label: str) -> Column:
    """The column of a policy, or of a variant."""
    return Column(label, lambda row: row.ratios[label], times)


GPU, ACCOUNTING = Column("GPU", "machine"), Column("accounting", "accounting")
BUDGET = Column("budget", "budget_bytes", size)

MEMORY = one_table(
    "ResNet-152: memory without loss of speed",
    (
        GPU, ACCOUNTING, Column("images", "batch", plain), Column("without", "accounted_bytes", size),
        Column("in 8 GB", "eight_gb", times), Column("needed", "needed_bytes", size),
    ),
    "Simulated (C) with a reconstructed policy (R); the paper names neither GPU nor batch.  images: the smallest batch "
    "of ResNet-152 that takes more than 24 GB by the accounting, so that both figures follow from one free number.  in "
    "8 GB: the iteration over the one with unlimited memory.  needed: the least budget tried that costs at most 1 % of "
    "speed.",
)  # fmt: skip

BATCH = one_table(
    "ResNet-152: the efficiency-optimal batch",
    (
        GPU, ACCOUNTING, Column("b0", "largest", plain), Column("b*", "optimal", plain),
        Column("trainable", "trainable", plain), Column("b*/b0", "ratio", times), Column("X(b*)/X(b0)", "gain", times),
    ),
    "12 GiB, simulated (C), by our tuner (R).  b0: the largest batch without the policy, by the accounting.  b*: the "
    "largest batch within 1 % of the most images a second.  trainable: the largest one with the policy; it is no aim.  "
    "X: images a second; X(b0) as if memory had no end.",
)  # fmt: skip

CLUSTER = one_table(
    "ResNet-152: 8 GPUs",
    (
        GPU, Column("GB/s", "rate", in_units(1e9, 0)), Column("overlap", lambda row: "yes" if row.overlap else "no"),
        Column("images each", "batch", plain), Column("iteration", "seconds", duration),
        Column("over its own", "own", times), Column("over Caffe's", "speedup", times),
        Column("8 of Caffe's", "baseline", times),
    ),
    "A simulated ring of 8 workers, 20 µs a message; nothing ran on a cluster.  over its own: images a second over one "
    "worker's with the same batch.  over Caffe's: over one GPU with the largest batch by caffe-bvlc.  8 of Caffe's: "
    "eight such GPUs over one.  The abstract says neither the link nor the base.",
)  # fmt: skip

TOGETHER = one_table(
    "ResNet-152: the four claims in one reading",
    (
        GPU, ACCOUNTING, Column("images", "held", plain), Column("in 8 GB", "eight_gb", times),
        Column("b0", "largest", plain), Column("b*", "optimal", plain), Column("b*/b0", "ratio", times),
        Column("link, GB/s", "link", in_units(1e9, 2)), Column("over its own", "own", times),
        Column("over Caffe's", "speedup", times), Column("better", "better", times),
    ),
    f"The abstracts' 7.7 and 1.9 give {figures.SCALING:.2f} for 8 baseline GPUs over one.  link: the one free number, "
    "fitted to that, without overlap.  With it 7.7 and 1.9 are one figure, not two.  b*: the smallest batch within 1 % "
    "of the most images a second, the rule for a single GPU.  images: the smallest batch that takes more than 24 GB.  "
    "better: 8 GPUs over 8 of Caffe's.",
)  # fmt: skip

BESIDE = one_table(
    "AccUDNN beside the other papers' policies",
    (GPU, NETWORK, Column("x", "x", plain), BUDGET, *map(ratio_of, figures.POLICIES)),
    "budget: x of the way from the least that the model can train in to what the baseline takes.  A dash: does not "
    "fit.  Iterations over the baseline's with unlimited memory, simulated (C).",
)


def ratio_table(title: str, note: str) -> Tables:
    """A line a network, a column a variant."""
    note += "  Iterations over those with unlimited memory, Titan X, simulated (C)."
    return lambda rows: [Table.of(title, rows, (NETWORK, BUDGET, *map(ratio_of, rows[0].ratios)), note)]


PREFETCH = ratio_table(
    "When the maps are prefetched",
    "The same maps leave in each line: those that the policy accudnn sends.  late: as late as the deadlines allow.  "
    "early: as early as there is room.  A dash: does not fit.",
)
CHOICE = ratio_table(
    "Which maps leave",
    "The policy accudnn with one order of its candidates alone.  idle: idle longest first.  slack: most idle time left "
    "after the copies, for each byte.  size: largest first.",
)

PARTS = (
    Part("memory", "ResNet-152's memory without loss of speed", len(figures.GPUS) * len(figures.ACCOUNTINGS),
         figures.memory, MEMORY, pictures.memory_picture, units="GB: 2^30 bytes."),
    Part("batch", "the efficiency-optimal batch over each baseline's", len(figures.GPUS), figures.batch, BATCH,
         pictures.batch_picture),
    Part("cluster", "8 GPUs over one", len(figures.GPUS), figures.cluster, CLUSTER, pictures.cluster_picture),
    Part("together", "all four claims in one reading, with one free number", len(figures.GPUS), figures.together,
         TOGETHER, pictures.together_picture),
    Part("policies", "an iteration within a budget, beside the other papers' policies", len(figures.cells()),
         figures.policies, BESIDE, pictures.policies_picture, beside=False),
    Part("prefetch", "when the same maps are prefetched", len(figures.CASES), figures.prefetch, PREFETCH,
         pictures.prefetch_picture, beside=False),
    Part("choice", "which maps leave", len(figures.CASES), figures.choice, CHOICE, pictures.choice_picture,
         beside=False),
)  # fmt: skip
