"""The batch and the cluster of AccUDNN's abstract, tuned for ResNet-152 in 12 GB on every GPU it may have meant.

batch     the efficiency-optimal batch over the largest one of each accounting: "4.2 times the original Caffe's"
cluster   images a second of 8 GPUs over one: "7.7 times", without optimised communication
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from refimpl.accudnn import ACCUDNN
from refimpl.accudnn.cluster import Cluster
from refimpl.machine import MACHINES
from refimpl.registry.tuning import Tuned, tune
from refimpl.reproduce.accudnn import published
from refimpl.reproduce.accudnn.figures import GPUS, NETWORK
from refimpl.reproduce.evaluation import GIB
from refimpl.reproduce.published import Found, Reproduced, Watch

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
