"""Our figures for AccUDNN's evaluation, planned and simulated.

memory    how little memory ResNet-152 needs without loss of speed, from a batch that needs 24 GB otherwise
batch     in 12 GB, the efficiency-optimal batch over the largest one of each accounting
cluster   images a second of 8 GPUs over one, without optimised communication
together  all four claims in one reading, with one free number: the link
policies  beside the other papers', within the same budget, on networks that the policy was not tuned on
prefetch  the same maps leave; when are they prefetched?
choice    they are prefetched late; which maps leave?
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from typing import ClassVar, Literal

from refimpl.accudnn import Late, Model, with_room
from refimpl.accudnn.carried_out import offloaded_candidates
from refimpl.accudnn.choice import RANKS
from refimpl.accudnn.tuner import fitting, optimum
from refimpl.combined.fixed import FixedAddresses
from refimpl.combined.papers import ACCUDNN
from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED, BestFit
from refimpl.names import presets
from refimpl.names.largest_batch import attempt, unlimited, unlimited_baseline
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, Program, Setup, plan
from refimpl.slots.baseline import LayerWise, NoPrefetch
from refimpl.slots.questions import BoundPrefetch, Prefetch
from refimpl.studies.reproduce.accudnn import published
from refimpl.studies.reproduce.evaluation import GIB
from refimpl.studies.reproduce.published import Found, Reproduced, Watch
from refimpl.studies.tune import caffe
from refimpl.studies.tune.cluster import Cluster
from refimpl.studies.tune.tuning import Tuned, tune
from refimpl.superneurons import Ahead
from refimpl.vdnn import WINDOW

TITAN_X = MACHINES["titan-x"]

# -- memory ------------------------------------------------------------------------------------------------------------

NETWORK = "resnet152"
GPUS = ("titan-x", "k40c", "titan-xp")  #: the abstract names none
LOSS = 1.01  #: times the seconds with unlimited memory: as fast, to us


@dataclass(frozen=True)
class AccountedRow:
    """ResNet-152 with a batch that needs 24 GB by one accounting, on one GPU."""

    machine: str
    accounting: str
    batch: int
    accounted_bytes: int
    eight_gb: float | None  #: iteration in 8 GB over the one with unlimited memory; None: does not fit
    needed_bytes: int  #: the least budget tried without loss of speed


def network_wide(network: Network, machine: Machine) -> int:
    """Bytes of the preset baseline: every map stays for the whole iteration."""
    return unlimited_baseline(network, machine).peak_bytes


def layer_wise(network: Network, machine: Machine) -> int:
    """Bytes where every tensor is released after its last use."""
    return unlimited(network, presets.baseline(liveness=LayerWise()), machine).peak_bytes


def as_caffe(network: Network, machine: Machine, bvlc: bool) -> int:
    """Bytes of original Caffe, with BVLC's BatchNorm or without its extra buffers."""
    return caffe.fixed_bytes(network) + network.batch * caffe.bytes_per_image(network, bvlc)


#: Name → bytes that training takes without AccUDNN.
ACCOUNTINGS: dict[str, Callable[[Network, Machine], int]] = {
    "caffe-bvlc": partial(as_caffe, bvlc=True), "caffe-lean": partial(as_caffe, bvlc=False),
    "network-wide": network_wide, "layer-wise": layer_wise,
}  # fmt: skip


def first_above(nbytes: int, accounting: Callable[[Network, Machine], int], machine: Machine) -> int:
    """The smallest batch of the network that takes more than `nbytes`."""
    enough = 2
    while accounting(build(NETWORK, enough), machine) <= nbytes:
        enough *= 2
    batches = range(enough // 2, enough + 1)
    return batches[bisect_right(batches, nbytes, key=lambda batch: accounting(build(NETWORK, batch), machine))]


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
    rows, figures = [], []
    for gpu in GPUS:
        machine = MACHINES[gpu]
        for name, accounting in ACCOUNTINGS.items():
            watch(f"{gpu}, {name}")
            batch = first_above(published.BEFORE_GB * GIB, accounting, machine)
            network = build(NETWORK, batch)
            fitted = attempt(network, ACCUDNN, machine, 8 * GIB)
            whole = unlimited_baseline(network, machine).planned_seconds
            ratio = fitted.planned_seconds / whole if fitted else None
            needed = least_without_loss(network, machine)
            rows.append(AccountedRow(gpu, name, batch, accounting(network, machine), ratio, needed))
            figure = published.read(published.MEMORY, f"{name}, {gpu}")
            figures.append(Reproduced(figure, needed / GIB, f"{batch} images need 24 GB by it"))
    return Found(figures, rows)


# -- batch and cluster -------------------------------------------------------------------------------------------------

BUDGET = 12 * GIB
CLUSTERS = tuple(Cluster(8, rate, overlap=overlap) for rate in (1e9, 1e10) for overlap in (False, True))


@cache
def tuned(gpu: str) -> Tuned:
    """One GPU's curve, for both parts."""
    return tune(NETWORK, ACCUDNN, MACHINES[gpu], BUDGET, CLUSTERS, "cluster", "caffe-bvlc")


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
                figure = published.read(published.BATCH, f"{name}, {gpu}")
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
                figures.append(Reproduced(published.read(published.CLUSTER, f"{link}, over its own"), own, over))
                if workers.speedup:
                    figure = published.read(published.CLUSTER, f"{link}, over caffe-bvlc")
                    figures.append(Reproduced(figure, workers.speedup, over))
    return Found(figures, rows)


# -- all four claims together ------------------------------------------------------------------------------------------

SCALING = published.CLUSTER.value / published.SCALED.value  #: of 8 baseline GPUs over one, by the abstracts' quotient


@dataclass(frozen=True)
class TogetherRow:
    """A GPU and a Caffe: a link is fitted to the baseline's scaling, everything else follows."""

    machine: str
    accounting: str
    held: int  #: the smallest batch that takes 24 GB by the accounting
    eight_gb: float | None  #: its iteration in 8 GB over the one with unlimited memory; None: does not fit
    largest: int  #: b0
    optimal: int  #: b*, by the rule for a single GPU: of the batches within 1 % of the best the smallest
    ratio: float  #: b* / b0
    link: float  #: the free number, bytes a second: with it 8 baseline GPUs reach `SCALING` times one
    own: float  #: 8 GPUs over one of the same batch
    speedup: float  #: 8 GPUs over one baseline GPU
    better: float  #: 8 GPUs over 8 baseline GPUs


def link_for(scaling: float, seconds: float, nbytes: int, workers: int = 8) -> float:
    """Bytes a second of a ring's links with which workers reach `scaling` times one; without overlap.

    Args:
        scaling: images a second over those of one worker.
        seconds: an iteration of one worker.
        nbytes: of all gradients.
        workers: how many.
    """
    messages = 2 * (workers - 1)
    reduce_seconds = seconds * (workers / scaling - 1)
    return messages / workers * nbytes / (reduce_seconds - messages * Cluster.latency)


def together(watch: Watch) -> Found:
    """The four claims, where the baseline's 8 GPUs scale as the abstracts' quotient says."""
    rows, figures = [], []
    for gpu in GPUS:
        watch(gpu)
        found, machine = tuned(gpu), MACHINES[gpu]
        optimal = optimum(fitting(found.curve), "single")
        tuned_point = next(one for one in found.curve if one.batch == optimal)
        for name in ("caffe-bvlc", "caffe-lean"):
            before = found.accountings[name].point
            held = first_above(published.BEFORE_GB * GIB, ACCOUNTINGS[name], machine)
            network = build(NETWORK, held)
            within = attempt(network, ACCUDNN, machine, 8 * GIB)
            whole = unlimited_baseline(network, machine).planned_seconds
            eight = within.planned_seconds / whole if within else None
            if not (before.seconds and before.images_a_second and tuned_point.seconds):
                continue
            link = link_for(SCALING, before.seconds, sum(gradient.nbytes for gradient in before.gradients))
            seconds = Cluster(8, link, overlap=False).iteration(tuned_point.seconds, tuned_point.gradients)
            speedup = 8 * optimal / seconds / before.images_a_second
            row = TogetherRow(
                gpu, name, held, eight, before.batch, optimal, optimal / before.batch, link,
                8 * tuned_point.seconds / seconds, speedup, speedup / SCALING,
            )  # fmt: skip
            rows.append(row)
            how = f"{name}, {gpu}, together"
            note = f"with a link of {link / 1e9:.2f} GB/s, fitted to {SCALING:.2f} for the baseline's 8"
            figures += [
                Reproduced(published.read(published.BATCH, how), row.ratio, f"{optimal} images over {before.batch}"),
                Reproduced(published.read(published.CLUSTER, how), speedup, note),
                Reproduced(published.read(published.SCALED, how), row.better, "the line above over the same number"),
            ]
            if eight is not None:
                figures.insert(-3, Reproduced(published.read(published.LOSSLESS, how), eight, f"{held} images"))
    return Found(figures, rows)


# -- beside the other papers -------------------------------------------------------------------------------------------

POLICIES = ("accudnn", "vdnn-dyn", "vdnnpp-dyn", "superneurons")
#: GPU, network and batch → the shares x.
CELLS: dict[tuple[str, str, int], tuple[float, ...]] = {
    ("titan-x", "vgg16", 128): (0.05, 0.1, 0.2, 0.35, 0.5),
    ("titan-x", "vgg16", 256): (0.1, 0.2, 0.35),
    ("titan-x", "resnet50", 64): (0.05, 0.1, 0.2, 0.35),
    ("titan-x", "resnet101", 48): (0.1, 0.2, 0.35),
    ("titan-x", "resnet152", 32): (0.1, 0.2, 0.35),
    ("titan-x", "inceptionv4", 32): (0.1, 0.2, 0.35),
    ("titan-x", "alexnet", 256): (0.05, 0.1, 0.2, 0.35, 0.5),
    ("k40c", "vgg16", 128): (0.2, 0.35, 0.5),
    ("k40c", "resnet50", 64): (0.02, 0.05, 0.2, 0.35, 0.5),
}


@dataclass(frozen=True)
class PolicyRow:
    """One network within one budget: an iteration of each policy over the baseline's with unlimited memory."""

    machine: str
    network: str
    batch: int
    x: float
    budget_bytes: int
    ratios: dict[str, float | None]  #: policy → times; None: does not fit


def budget_at(network: Network, machine: Machine, x: float) -> int:
    """Bytes: a share of the way from the least that the model can train in to the baseline's peak."""
    least = Model.of(Context(network, machine, UNLIMITED)).least()
    return int(least + x * (unlimited_baseline(network, machine).peak_bytes - least))


def cells() -> list[tuple[tuple[str, str, int], float]]:
    return [(cell, x) for cell, shares in CELLS.items() for x in shares]


def policies(watch: Watch) -> Found:
    """A row a network and budget."""
    rows = []
    for (gpu, name, batch), x in cells():
        watch(f"{gpu}, {name}({batch}), x = {x:g}")
        network, machine = build(name, batch), MACHINES[gpu]
        budget = budget_at(network, machine, x)
        found = ((policy, attempt(network, presets.setup(policy), machine, budget)) for policy in POLICIES)
        rows.append(PolicyRow(gpu, name, batch, x, budget, slowdowns(network, machine, found)))
    return Found([], rows)


# -- when and which ----------------------------------------------------------------------------------------------------

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


def slowdowns(
    network: Network, machine: Machine, programs: Iterable[tuple[str, Program | None]]
) -> dict[str, float | None]:
    """Label → a program's iteration over the baseline's with unlimited memory; None: does not fit."""
    whole = unlimited_baseline(network, machine).planned_seconds
    return {label: program.planned_seconds / whole if program else None for label, program in programs}


Plans = Callable[[Network, int], Iterator[tuple[str, Program | None]]]


def ratio_row(case: tuple[str, int, float], plans: Plans) -> RatioRow:
    """One network; `plans` gives a label and a program for each variant, of a network and a budget in bytes."""
    name, batch, gib = case
    network, budget = build(name, batch), int(gib * GIB)
    return RatioRow(name, batch, budget, slowdowns(network, TITAN_X, plans(network, budget)))


def by_when(network: Network, budget: int) -> Iterator[tuple[str, Program | None]]:
    """The maps that the policy sends; they are prefetched at other steps."""
    adopted = plan(network, ACCUDNN, TITAN_X, budget).setup
    for label, prefetches in WHEN.items():
        yield label, fastest(network, (adopted.replace(prefetch=one) for one in prefetches), budget)


def by_which(network: Network, budget: int) -> Iterator[tuple[str, Program | None]]:
    """The policy, with one order of its candidates alone."""
    for rank in RANKS:
        yield rank, attempt(network, dataclasses.replace(ACCUDNN, ranks=(rank,)), TITAN_X, budget)


def rows_of(plans: Plans, watch: Watch) -> Found:
    """A row a case."""
    rows = []
    for case in CASES:
        watch(f"{case[0]}({case[1]})")
        rows.append(ratio_row(case, plans))
    return Found([], rows)


prefetch = partial(rows_of, by_when)
choice = partial(rows_of, by_which)
