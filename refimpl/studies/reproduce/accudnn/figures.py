"""AccUDNN's evaluation, part by part, planned and simulated: the abstracts' claims in every reading, and ours.

`published.json` has the figures of the abstracts (P).  arXiv's are about ResNet-152; ICCD's 1.9 names no network,
and is taken to be.  Nothing else of the paper could be read: not which GPU or link these hold for, nor the batches, nor
how Caffe's memory is counted.  Each figure is therefore shown in every reading.  None is chosen by its fit but in
`together`.  "Without loss of speed" is no figure: it is how the memory is found, and 8 GB is met by all that need less.

memory    how little memory ResNet-152 needs for at most 1 % less speed, from a batch that needs 24 GB otherwise: the
          smallest one by each accounting, so that both figures follow from one free number
batch     in 12 GB, the efficiency-optimal batch over the largest one of each accounting
cluster   images a second of 8 GPUs over one, without optimised communication
together  the claims about speed in one reading, with one free number: the link
accuracy  a small network trained with its base batch and with the tuned one
prefetch  the same maps leave; when are they prefetched?
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from typing import ClassVar, Literal

from refimpl.accudnn import Late, Model, with_room
from refimpl.accudnn.carried_out import offloaded_candidates
from refimpl.accudnn.tuner import fitting, optimum
from refimpl.combined.fixed import FixedAddresses
from refimpl.combined.papers import ACCUDNN
from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED, BestFit
from refimpl.names.largest_batch import attempt, unlimited, unlimited_baseline
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, Program, Setup, plan
from refimpl.report.tables import Column, Table, in_units, plain
from refimpl.slots.baseline import NoPrefetch
from refimpl.slots.questions import BoundPrefetch, Prefetch
from refimpl.studies.reproduce.accudnn.accuracy import TABLE as ACCURACY_TABLE
from refimpl.studies.reproduce.accudnn.accuracy import accuracy
from refimpl.studies.reproduce.evaluation import GIB, NETWORK, Part, one_table, titled
from refimpl.studies.reproduce.pictures import Datum, Marks
from refimpl.studies.reproduce.published import Figures, Found, Published, Reproduced, Watch
from refimpl.studies.tune import caffe
from refimpl.studies.tune.cluster import Cluster
from refimpl.studies.tune.tuning import LAYER_WISE, Tuned, tune
from refimpl.superneurons import Ahead
from refimpl.text import duration, size
from refimpl.vdnn import WINDOW

FIGURES = Figures(__file__)
BEFORE_GB: int = FIGURES.data["before"]  #: what ResNet-152 needs without AccUDNN, "more than"
TITAN_X = MACHINES["titan-x"]

GPU, ACCOUNTING = Column("GPU", "machine"), Column("accounting", "accounting")
WITHIN = Column("budget", "budget_bytes", size)


def times(ratio: float) -> str:
    return f"{ratio:.2f} ×"


def read(name: str, how: str) -> Published:
    """A figure in one reading."""
    figure = FIGURES.one(name)
    return replace(figure, what=f"{figure.what}; {how}")


# -- memory ------------------------------------------------------------------------------------------------------------

TRAINED = "resnet152"
GPUS = ("titan-x", "k40c", "titan-xp")  #: the abstract names none
LOSS = 1.01  #: times the seconds with unlimited memory: as fast, to us


def network_wide(network: Network, machine: Machine) -> int:
    """Bytes of the preset baseline: every map stays for the whole iteration."""
    return unlimited_baseline(network, machine).peak_bytes


def layer_wise(network: Network, machine: Machine) -> int:
    """Bytes where every tensor is released after its last use."""
    return unlimited(network, LAYER_WISE, machine).peak_bytes


def as_caffe(network: Network, machine: Machine, bvlc: bool) -> int:
    """Bytes of original Caffe, with BVLC's BatchNorm or without its extra buffers."""
    return caffe.fixed_bytes(network) + network.batch * caffe.bytes_per_image(network, bvlc)


#: Name → bytes that training takes without AccUDNN.
ACCOUNTINGS: dict[str, Callable[[Network, Machine], int]] = {
    "caffe-bvlc": partial(as_caffe, bvlc=True), "caffe-lean": partial(as_caffe, bvlc=False),
    "network-wide": network_wide, "layer-wise": layer_wise,
}  # fmt: skip


def first_above(nbytes: int, accounting: Callable[[Network, Machine], int], machine: Machine) -> int:
    """The smallest batch of ResNet-152 that takes more than `nbytes`."""
    enough = 2
    while accounting(build(TRAINED, enough), machine) <= nbytes:
        enough *= 2
    batches = range(enough // 2, enough + 1)
    return batches[bisect_right(batches, nbytes, key=lambda batch: accounting(build(TRAINED, batch), machine))]


def least_without_loss(network: Network, machine: Machine) -> int:
    """The smallest budget tried in which an iteration is as fast as with unlimited memory; to 1 % of it."""
    seconds = LOSS * unlimited_baseline(network, machine).planned_seconds
    high = unlimited_baseline(network, machine).peak_bytes
    low = Model.of(Context(network, machine, UNLIMITED)).least()
    while high - low > high // 100:
        middle = (low + high) // 2
        program = attempt(network, ACCUDNN, machine, middle)
        if program and program.planned_seconds <= seconds:
            high = middle
        else:
            low = middle
    return high


def memory(watch: Watch) -> Found:
    """From more than 24 GB to 8 GB, without loss of speed."""
    figures = []
    for gpu in GPUS:
        machine = MACHINES[gpu]
        for name, accounting in ACCOUNTINGS.items():
            watch(f"{gpu}, {name}")
            batch = first_above(BEFORE_GB * GIB, accounting, machine)
            network = build(TRAINED, batch)
            fitted = attempt(network, ACCUDNN, machine, 8 * GIB)
            whole = unlimited_baseline(network, machine).planned_seconds
            ratio = fitted.planned_seconds / whole if fitted else None
            needed = least_without_loss(network, machine)
            figure = read("memory", f"{name}, {gpu}")
            note = f"{batch} images need 24 GB by it; in 8 GB {times(ratio) if ratio else 'they do not fit'}"
            figures.append(Reproduced(figure, needed / GIB, note))
    return Found(figures, [])


# -- batch and cluster -------------------------------------------------------------------------------------------------

BUDGET = 12 * GIB
CLUSTERS = tuple(Cluster(8, rate, overlap=overlap) for rate in (1e9, 1e10) for overlap in (False, True))


@cache
def tuned(gpu: str) -> Tuned:
    """One GPU's curve, for both parts."""
    return tune(TRAINED, ACCUDNN, MACHINES[gpu], BUDGET, CLUSTERS, "cluster", "caffe-bvlc")


@dataclass(frozen=True)
class BatchRow:
    """A GPU and an accounting: the largest batch without the policy, and the tuned one."""

    machine: str
    accounting: str
    largest: int  #: b0
    optimal: int  #: b*
    trainable: int  #: the largest with the policy
    ratio: float | None  #: b* / b0
    gain: float | None  #: X(b*) / X(b0)


@dataclass(frozen=True)
class ClusterRow:
    """Eight workers of one kind."""

    machine: str
    rate: float  #: bytes a second of a link
    overlap: bool
    batch: int  #: of a worker
    seconds: float  #: of an iteration
    own: float  #: images a second over those of one worker at the same batch
    speedup: float | None  #: over one GPU with Caffe's largest batch
    baseline: float | None  #: of 8 such GPUs over one


def batch(watch: Watch) -> Found:
    """The efficiency-optimal minibatch over each baseline's."""
    rows, figures = [], []
    for gpu in GPUS:
        watch(gpu)
        found = tuned(gpu)
        for name, one in found.accountings.items():
            ratio = found.ratio(one)
            rows.append(
                BatchRow(gpu, name, one.batch, found.optimal_batch, found.trainable_batch, ratio, found.gain(one))
            )
            if name.startswith("caffe") and ratio:
                figure = read("batch", f"{name}, {gpu}")
                figures.append(Reproduced(figure, ratio, f"{found.optimal_batch} images over {one.batch}"))
    return Found(figures, rows)


def cluster(watch: Watch) -> Found:
    """The speed-up of 8 GPUs: over one of the same batch, and over one with the baseline's."""
    rows, figures = [], []
    for gpu in GPUS:
        watch(gpu)
        found = tuned(gpu)
        for workers in found.workers:
            ring = workers.cluster
            own = ring.workers * workers.scaling
            rows.append(
                ClusterRow(
                    gpu, ring.rate, ring.overlap, found.optimal_batch, workers.seconds, own, workers.speedup,
                    workers.baseline_speedup,
                )
            )  # fmt: skip
            if not ring.overlap:
                link = f"{gpu}, {ring.rate / 1e9:g} GB/s"
                over = f"{found.optimal_batch} images each, no overlap"
                figures.append(Reproduced(read("cluster", f"{link}, over its own"), own, over))
                if workers.speedup:
                    figure = read("cluster", f"{link}, over caffe-bvlc")
                    figures.append(Reproduced(figure, workers.speedup, over))
                if workers.speedup and workers.baseline_speedup:
                    figure, better = read("scaled", link), workers.speedup / workers.baseline_speedup
                    beside = f"{workers.speedup:.2f} over the {workers.baseline_speedup:.2f} of 8 of Caffe's"
                    figures.append(Reproduced(figure, better, beside))
    return Found(figures, rows)


BATCH_TABLE = one_table(
    "ResNet-152: the efficiency-optimal batch",
    (
        GPU, ACCOUNTING, Column("b0", "largest", plain), Column("b*", "optimal", plain),
        Column("trainable", "trainable", plain), Column("b*/b0", "ratio", times), Column("X(b*)/X(b0)", "gain", times),
    ),
    "12 GiB, simulated (C), by our tuner (R).  b0: the largest batch without the policy, by the accounting.  b*: the "
    "largest batch within 1 % of the most images a second.  trainable: the largest one with the policy; it is no aim.  "
    "X: images a second; X(b0) as if memory had no end.",
)  # fmt: skip


CLUSTER_TABLE = one_table(
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


# -- the claims about speed together -----------------------------------------------------------------------------------

#: Of 8 baseline GPUs over one, by the abstracts' quotient.
SCALING = FIGURES.one("cluster").value / FIGURES.one("scaled").value


def link_for(scaling: float, seconds: float, nbytes: int) -> float:
    """Bytes a second of a ring's links with which 8 workers reach `scaling` times one; without overlap.

    Args:
        scaling: images a second over those of one worker.
        seconds: an iteration of one worker.
        nbytes: of all gradients.
    """
    messages = 2 * (8 - 1)
    reduce_seconds = seconds * (8 / scaling - 1)
    return messages / 8 * nbytes / (reduce_seconds - messages * Cluster.latency)


def together(watch: Watch) -> Found:
    """The claims about speed, where the baseline's 8 GPUs scale as the abstracts' quotient says.

    A GPU and a Caffe: a link is fitted to the baseline's scaling, everything else follows.  What the same reading makes
    of the memory is in `memory`.
    """
    figures = []
    for gpu in GPUS:
        watch(gpu)
        found = tuned(gpu)
        optimal = optimum(fitting(found.curve), "single")  # of the batches within 1 % of the best the smallest
        tuned_point = next(one for one in found.curve if one.batch == optimal)
        for name in ("caffe-bvlc", "caffe-lean"):
            before = found.accountings[name].point
            if not (before.seconds and before.images_a_second and tuned_point.seconds):
                continue
            link = link_for(SCALING, before.seconds, sum(gradient.nbytes for gradient in before.gradients))
            seconds = Cluster(8, link, overlap=False).iteration(tuned_point.seconds, tuned_point.gradients)
            speedup = 8 * optimal / seconds / before.images_a_second
            how = f"{name}, {gpu}, together"
            note = f"with a link of {link / 1e9:.2f} GB/s, fitted to {SCALING:.2f} for the baseline's 8"
            figures += [
                Reproduced(read("batch", how), optimal / before.batch, f"{optimal} images over {before.batch}"),
                Reproduced(read("cluster", how), speedup, note),
            ]
    return Found(figures, [])


# -- when --------------------------------------------------------------------------------------------------------------

#: Network, batch, budget in GiB: 0.2 to 0.35 of the way from the least to what the baseline takes, on a Titan X.
CASES = (("resnet50", 64, 2.30), ("resnet152", 64, 4.00), ("inceptionv4", 32, 1.54), ("vgg16", 128, 8.68))


@dataclass(frozen=True)
class RatioRow:
    """An iteration within a budget over the one with unlimited memory, by what was varied."""

    network: str
    batch: int
    budget_bytes: int
    ratios: dict[str, float | None]  #: None: does not fit


@dataclass(frozen=True)
class AsEarlyAsRoom(Prefetch):
    """As soon as the model sees room for a map; a share of the budget stays free, for holes that are too small."""

    free: float = 0.0
    name: ClassVar[str] = "as-early-as-room"
    summary: ClassVar[str] = "as early as memory allows"
    order: Literal["early", "between", "late"] = field(default="early", init=False)
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> BoundPrefetch:
        model, maps = offloaded_candidates(context)
        coming = with_room(model, {one: one.last_use + 1 for one in maps}, int((1 - self.free) * context.budget))
        return Late(tuple((one.name, step) for one, step in coming.items())).bind(context)


#: Label → the prefetches that it means: the fastest that fits counts.
WHEN: dict[str, tuple[Prefetch, ...]] = {
    "late": (Late(),),
    "early": tuple(AsEarlyAsRoom(free) for free in (0.0, 0.05, 0.1, 0.2)),
    "3 steps ahead": (Ahead(3),),
    "vDNN's window": (WINDOW,),
    "on demand": (NoPrefetch(),),
}


def fastest(network: Network, setups: Iterable[Setup], budget: int) -> Program | None:
    """The fastest plan of the setups, with best fit or with fixed addresses; None where none fits."""
    pairs = product(setups, (BestFit(), FixedAddresses()))
    found = [attempt(network, setup.replace(allocator=allocator), TITAN_X, budget) for setup, allocator in pairs]
    return min(filter(None, found), key=lambda program: program.planned_seconds, default=None)


def ratio_row(case: tuple[str, int, float]) -> RatioRow:
    """One network: the maps that the policy sends, prefetched at other steps."""
    name, batch, gib = case
    network, budget = build(name, batch), int(gib * GIB)
    whole = unlimited_baseline(network, TITAN_X).planned_seconds
    adopted = plan(network, ACCUDNN, TITAN_X, budget).setup
    ratios = {}
    for label, prefetches in WHEN.items():
        made = fastest(network, (adopted.replace(prefetch=one) for one in prefetches), budget)
        ratios[label] = made.planned_seconds / whole if made else None
    return RatioRow(name, batch, budget, ratios)


def prefetch(watch: Watch) -> Found:
    """A row a case."""
    rows = []
    for case in CASES:
        watch(f"{case[0]}({case[1]})")
        rows.append(ratio_row(case))
    return Found([], rows)


def prefetch_tables(rows: Sequence[RatioRow]) -> list[Table]:
    """A line a network, a column a prefetch."""
    note = (
        "The same maps leave in each line: those that the policy accudnn sends.  late: as late as the deadlines allow. "
        " early: as early as there is room.  A dash: does not fit.  Iterations over those with unlimited memory, Titan "
        "X, simulated (C)."
    )

    def column(label: str) -> Column:
        return Column(label, lambda row: row.ratios[label], times)

    return [Table.of("When the maps are prefetched", rows, (NETWORK, WITHIN, *map(column, WHEN)), note)]


def ratio_marks(rows: Sequence[RatioRow]) -> Iterator[Datum]:
    """Per cent slower than with unlimited memory."""
    for row in rows:
        for label, ratio in row.ratios.items():
            group = f"{titled(row)}\n{row.budget_bytes / GIB:.2f} GiB"
            yield Datum(group, label, 100 * (ratio - 1) if ratio else None)


PREFETCH_PICTURE = Marks(
    "When the same maps are prefetched", "Titan X, simulated, our reconstruction · ×: does not fit",
    "slower than with unlimited memory (%)", ratio_marks,
)  # fmt: skip

PARTS = (
    Part("memory", "ResNet-152's memory without loss of speed", len(GPUS) * len(ACCOUNTINGS), memory,
         units="GB: 2^30 bytes."),
    Part("batch", "the efficiency-optimal batch over each baseline's", len(GPUS), batch, BATCH_TABLE),
    Part("cluster", "8 GPUs over one", len(GPUS), cluster, CLUSTER_TABLE),
    Part("together", "the claims about speed in one reading, with one free number", len(GPUS), together),
    Part("accuracy", "the digits with the base batch and the tuned one", 4, accuracy, ACCURACY_TABLE),
    Part("prefetch", "when the same maps are prefetched", len(CASES), prefetch, prefetch_tables, PREFETCH_PICTURE,
         beside=False),
)  # fmt: skip
