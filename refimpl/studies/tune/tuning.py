"""Tuning: a network's X(b) within a budget, the baselines beside it, and what a cluster would make of it.

All times are simulated.  The rules are in `refimpl.accudnn.tuner`; this plans what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

from kernels.checks.arguments import KernelError
from refimpl.accudnn.tuner import ClosedForm, Learning, Objective, Point, fitting, optimum, search
from refimpl.importing.any_batch import Batches
from refimpl.machine import Machine, MachineError
from refimpl.machine.measured_profile import ProfiledMachine
from refimpl.names.largest_batch import attempt, largest, unlimited, unlimited_baseline
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import BASELINE, Setup, plan
from refimpl.slots.baseline import LayerWise
from refimpl.studies.tune import caffe
from refimpl.studies.tune.cluster import Cluster, gradients_of

LAYER_WISE = BASELINE.replace(liveness=LayerWise())

#: Name → how the bytes of a batch without the policy are counted.
ACCOUNTINGS = {
    "caffe-bvlc": "Caffe with BVLC's BatchNorm",
    "caffe-lean": "Caffe without BatchNorm's extra buffers",
    "network-wide": "the preset baseline: every map stays for the whole iteration",
    "layer-wise": "the same, but every tensor is freed after its last use: liveness alone",
}
HIDES = 1.01  #: times the seconds with unlimited memory: the copies hide


@dataclass(frozen=True)
class Accounting:
    """The largest batch that fits without the policy, by one way of counting; it fits in fixed + batch × per image."""

    name: str
    bytes_per_image: int
    fixed_bytes: int
    point: Point  #: of the batch, simulated with unlimited memory; batch 0: not one image fits

    @property
    def batch(self) -> int:
        return self.point.batch


@dataclass(frozen=True)
class Workers:
    """A cluster's iteration at the tuned batch."""

    cluster: Cluster
    learning: Learning
    gradient_bytes: int
    seconds: float  #: of an iteration
    images_a_second: float  #: of all workers
    scaling: float  #: of 1: images a second over as many times one worker's
    speedup: float | None  #: images a second over one baseline GPU's
    baseline_speedup: float | None  #: the same of a cluster of baseline GPUs
    pays_up_to: int  #: the smallest batch within 1 % of this cluster's most images a second


@dataclass(frozen=True)
class Tuned:
    """Everything that `refimpl tune` shows."""

    network: str
    setup: Setup
    machine: Machine
    budget: int
    objective: Objective
    accountings: dict[str, Accounting]
    compared_with: str  #: the accounting that speed-ups of a cluster refer to
    curve: list[Point]
    trainable_batch: int  #: the largest that was found to fit
    optimal_batch: int
    liveness_frees: float  #: bytes of an image
    swapping_frees: float  #: the same, of the largest batch tried whose copies hide
    learning: Learning  #: of one GPU
    workers: list[Workers]

    @property
    def optimal(self) -> Point:
        return next(one for one in self.curve if one.batch == self.optimal_batch)

    @property
    def closed_form(self) -> ClosedForm:
        """From the network-wide accounting."""
        known = self.accountings["network-wide"]
        saved = self.liveness_frees + self.swapping_frees
        return ClosedForm(self.budget, known.fixed_bytes, known.bytes_per_image, saved)

    def ratio(self, accounting: Accounting) -> float | None:
        """b* / b0."""
        return self.optimal_batch / accounting.batch if accounting.batch else None

    def gain(self, accounting: Accounting) -> float | None:
        """X(b*) / X(b0)."""
        rate, known = self.optimal.images_a_second, accounting.point.images_a_second
        return rate / known if rate and known else None


def tune(
    name: str,
    setup: Setup,
    machine: Machine,
    budget: int,
    clusters: Sequence[Cluster] = (),
    objective: Objective = "single",
    compared_with: str = "network-wide",
    learning: Learning | None = None,
    watch: Callable[[str], None] = lambda doing: None,
    networks: Callable[[int], Network] | None = None,
) -> Tuned:
    """The efficiency-optimal batch of a network within a budget.

    Args:
        name: the network's.
        setup: the policy that plans every batch.
        machine: what it is simulated on.
        budget: bytes.
        clusters: clusters to simulate at the batch that is found.
        objective: single or cluster: which of the batches that are as efficient.
        compared_with: the accounting that a cluster's speed-up refers to.
        learning: base batch, base rate and images of an epoch; its global batch is replaced.
        watch: called with a few words before each batch is planned.
        networks: the network of a batch (None: of the name).

    Raises:
        DoesNotFit: not one image fits.
        MachineError: the machine is a profile, which has the seconds of one batch.
    """
    if isinstance(machine, ProfiledMachine):
        raise MachineError(
            f"{machine.name} is a profile of batch {machine.profile.batch} alone, and the tuner plans many batches; "
            "name a machine that is a model"
        )

    network_of = lru_cache(maxsize=8)(networks or Batches(partial(build, name)))

    def measured(batch: int) -> Point:
        watch(f"batch {batch}")
        network = network_of(batch)
        program = None
        with suppress(KernelError):  # no kernel can index as many images: they fit no machine
            program = attempt(network, setup, machine, budget)
        if program is None:
            return Point(batch)
        timeline = program.simulate()
        return Point(
            batch,
            timeline.seconds,
            timeline.stall,
            unlimited_baseline(network, machine).planned_seconds,
            program.counts.offloaded_bytes,
            program.peak_bytes,
            gradients_of(program, timeline) if clusters else (),
        )

    accountings = {one: accounting(one, network_of, machine, budget, bool(clusters), watch) for one in ACCOUNTINGS}
    start = max(1, accountings["network-wide"].batch // 4)
    curve = search(measured, start)
    if start > 1 and not fitting(curve):
        curve = search(measured, 1)
    if not fitting(curve):
        plan(network_of(1), setup, machine, budget)  # raises, and says where
    most = largest(network_of, setup, machine, budget, lambda batch: watch(f"largest batch, {batch}")).size
    if most > max(fitting(curve)):
        curve = sorted((*(one for one in curve if one.batch != most), measured(most)), key=lambda one: one.batch)
    rates = fitting(curve)
    best = optimum(rates, objective)
    per_image = {one: accountings[one].bytes_per_image for one in ("network-wide", "layer-wise")}
    rule = learning or Learning(best)
    rules = [
        Learning(workers * best, rule.base_batch, rule.base_rate, rule.images)
        for workers in (1, *(cluster.workers for cluster in clusters))
    ]
    known = accountings[compared_with].point
    return Tuned(
        network_of(1).name, setup, machine, budget, objective, accountings, compared_with, curve, max(rates), best,
        max(0.0, per_image["network-wide"] - per_image["layer-wise"]), swapping(curve, network_of, machine),
        rules[0], [at_work(one, curve, best, known, rules[1 + i]) for i, one in enumerate(clusters)],
    )  # fmt: skip


def accounting(
    name: str,
    network_of: Callable[[int], Network],
    machine: Machine,
    budget: int,
    gradients: bool,
    watch: Callable[[str], None],
) -> Accounting:
    """The largest batch by one of the `ACCOUNTINGS`; with `gradients` it is known when each is ready.

    Of the two that are planned, all that is not resident is shared out among the images, workspaces too.
    """
    watch(name)
    if name.startswith("caffe"):
        network = network_of(1)
        per_image, fixed = caffe.bytes_per_image(network, bvlc=name == "caffe-bvlc"), caffe.fixed_bytes(network)
        batch = max(0, (budget - fixed) // per_image)
    else:
        setup = LAYER_WISE if name == "layer-wise" else BASELINE
        batch = largest(network_of, setup, machine, budget).size
        network = network_of(batch or 1)
        fixed = network.resident_bytes
        per_image = (unlimited(network, setup, machine).peak_bytes - fixed) // network.batch
    if not batch:
        return Accounting(name, per_image, fixed, Point(0))
    try:
        program = unlimited_baseline(network_of(batch), machine)
    except KernelError:
        return Accounting(name, per_image, fixed, Point(batch))
    ready = gradients_of(program, program.simulate()) if gradients else ()
    seconds = program.planned_seconds
    return Accounting(name, per_image, fixed, Point(batch, seconds, unlimited_seconds=seconds, gradients=ready))


def swapping(curve: Sequence[Point], network_of: Callable[[int], Network], machine: Machine) -> float:
    """Bytes of an image that swapping takes off the peak, beyond liveness, at the largest batch whose copies hide."""
    hidden = [one for one in curve if one.slowdown and one.slowdown <= HIDES]
    if not hidden:
        return 0.0
    most = hidden[-1]
    without = unlimited(network_of(most.batch), LAYER_WISE, machine).peak_bytes
    return max(0.0, (without - most.peak_bytes) / most.batch)


def at_work(cluster: Cluster, curve: Sequence[Point], best: int, known: Point, learning: Learning) -> Workers:
    """A curve as a cluster of GPUs has it.

    Args:
        cluster: its workers and network.
        curve: of one worker.
        best: the tuned batch.
        known: the baseline's batch.
        learning: of the global batch.
    """

    def rate(one: Point) -> float | None:
        """Images a second of all workers."""
        if not one.seconds:
            return None
        return cluster.workers * one.batch / cluster.iteration(one.seconds, one.gradients)

    point = next(one for one in curve if one.batch == best)
    alone, together, before = point.images_a_second, rate(point), known.images_a_second
    assert point.seconds and alone and together
    others = rate(known)
    return Workers(
        cluster,
        learning,
        sum(gradient.nbytes for gradient in point.gradients),
        cluster.iteration(point.seconds, point.gradients),
        together,
        together / (cluster.workers * alone),
        together / before if before else None,
        others / before if others and before else None,
        optimum(fitting(curve, rate)),
    )
