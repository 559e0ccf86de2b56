"""The simulated cluster: the ring's formula, buckets, and what overlap hides."""

from __future__ import annotations

import pytest

import refimpl
from refimpl.accudnn.tuner import Gradient
from refimpl.machine import MACHINES, Ring
from refimpl.network.network import BUCKET_BYTES
from refimpl.studies.tune.cluster import Cluster, gradients_of

pytestmark = pytest.mark.accudnn


@pytest.mark.parametrize(("name", "batch", "megabytes"), [("vgg16", 100, 553), ("resnet50", 64, 102)])
def test_eight_workers(name: str, batch: int, megabytes: int) -> None:
    """By the estimate; and planned and simulated call by call, within 1 %."""
    program = refimpl.plan(refimpl.networks.build(name, batch), machine="titan-x", budget="1TiB")
    gradients = gradients_of(program, program.simulate())
    assert round(sum(gradient.nbytes for gradient in gradients) / 1e6) == megabytes
    seconds = [
        Cluster(workers, 1e9, 20e-6, overlap).iteration(program.planned_seconds, gradients)
        for workers, overlap in ((8, False), (8, True), (1, True))
    ]
    assert seconds[0] > seconds[1] > seconds[2] == program.planned_seconds
    on = MACHINES["titan-x"].with_ring(Ring(1e9, 20e-6))
    networks = [program.network.data_parallel(8, bucket) for bucket in (None, BUCKET_BYTES)]
    planned = [refimpl.plan(network, machine=on, budget="1TiB").planned_seconds for network in networks]
    assert planned == pytest.approx(seconds[:2], rel=0.01)


def test_every_gradient_is_ready_before_the_iteration_ends() -> None:
    program = refimpl.plan("tiny-resnet", machine="titan-x")
    gradients = gradients_of(program, program.simulate())
    assert len(gradients) == len(list(program.network.parameters()))
    assert gradients == sorted(gradients) and 0 < gradients[0].ready < gradients[-1].ready < program.planned_seconds


def test_overlap_hides_all_but_the_last_bucket() -> None:
    """Three buckets of 1 s each, ready after 1, 2 and 6 of 6 seconds: the last one alone is waited for."""
    gradients = [Gradient(ready, BUCKET_BYTES) for ready in (1.0, 2.0, 6.0)]
    ring = Cluster(2, rate=BUCKET_BYTES, latency=0)
    assert ring.iteration(6.0, gradients) == 7.0
    assert Cluster(2, BUCKET_BYTES, 0, overlap=False).iteration(6.0, gradients) == 9.0
    assert ring.iteration(6.0, [Gradient(1.0, BUCKET_BYTES)]) == 6.0
    assert Cluster(1, overlap=False).iteration(6.0, gradients) == 6.0, "one worker reduces nothing"
