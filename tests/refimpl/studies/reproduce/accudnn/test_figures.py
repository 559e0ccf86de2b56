"""`refimpl reproduce accudnn`: every reading of the abstract, and what its modules do alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from refimpl.accudnn.tuner import Gradient
from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names import presets
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.names.networks import build
from refimpl.network.small import lenet
from refimpl.planner import plan
from refimpl.studies.reproduce import PAPERS
from refimpl.studies.reproduce.accudnn import accuracy, figures
from refimpl.studies.reproduce.accudnn.figures import AsEarlyAsRoom
from refimpl.studies.tune.cluster import Cluster
from tests.refimpl.studies.reproduce.test_rows import shown

pytestmark = pytest.mark.accudnn

GIB = 1 << 30
GRADIENTS = sum(p.gradient.nbytes for _, _, p in build("tiny-vgg", 1).parameters())
TITAN_X = MACHINES["titan-x"]


def test_the_first_batch_that_takes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "TRAINED", "tiny-resnet")
    batch = figures.first_above(64 << 20, figures.network_wide, TITAN_X)
    assert figures.network_wide(build("tiny-resnet", batch - 1), TITAN_X) <= 64 << 20
    assert figures.network_wide(build("tiny-resnet", batch), TITAN_X) > 64 << 20


def test_the_least_without_loss_is_fast_and_a_little_less_is_not() -> None:
    network = build("vgg16", 32)
    budget = figures.least_without_loss(network, TITAN_X)
    whole = unlimited_baseline(network, TITAN_X)
    assert plan(network, presets.setup("accudnn"), TITAN_X, budget).planned_seconds <= 1.01 * whole.planned_seconds
    assert budget < 0.8 * whole.peak_bytes


def test_the_link_that_a_scaling_needs() -> None:
    """By hand: 8 workers 4 times as fast as one wait as long as they compute."""
    link = figures.link_for(4, seconds=1.0, nbytes=10**9)
    assert link == pytest.approx(14 / 8 * 1e9 / (1 - 14 * 20e-6))
    assert Cluster(8, link, overlap=False).iteration(1.0, [Gradient(0, 10**9)]) == pytest.approx(2.0)


def test_as_early_as_there_is_room() -> None:
    network = build("tiny-vgg", 64)
    setup = presets.setup("liveness=layer-wise offload=accudnn-everything prefetch=accudnn-late")
    late = plan(network, setup, TITAN_X, UNLIMITED)
    early = plan(network, setup.replace(prefetch=AsEarlyAsRoom()), TITAN_X, UNLIMITED)
    assert late.counts.prefetched_bytes > 0
    assert early.counts.prefetched_bytes == early.counts.on_demand_bytes == 0  # at once: no byte was given away yet
    assert early.peak_bytes > late.peak_bytes


@pytest.mark.slow
def test_the_accuracy_of_the_base_batch_and_of_the_tuned_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained within the base batch's memory, with the rule's rate and without it."""
    monkeypatch.setattr(accuracy, "EPOCHS", 1)
    monkeypatch.setattr(accuracy, "SEEDS", range(1))
    monkeypatch.setattr(accuracy, "network_of", lambda batch: lenet(batch, shape=(1, 8, 8)))
    heard: list[str] = []
    found = shown(PAPERS["accudnn"].parts()["accuracy"], heard)
    base, tuned, without = found.rows
    assert (base.batch, base.rate, base.warmup_epochs) == (32, 0.05, 0)
    assert tuned.batch == without.batch > base.batch and tuned.warmup_epochs == 5 and without.warmup_epochs == 0
    assert tuned.rate == pytest.approx(base.rate * tuned.batch / base.batch) and without.rate == base.rate
    assert base.mean > 50 and {row.budget_bytes for row in found.rows} == {base.budget_bytes}
    (figure,) = found.figures
    assert figure.ours == base.mean - tuned.mean and len(heard) == 4


@pytest.mark.slow
def test_every_other_part_is_shown_for_small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reading is there; a cluster's own speed-up is below 8, and what overlaps is no slower."""
    small: dict[str, Any] = {
        "TRAINED": "tiny-vgg", "BUDGET": 400 << 20, "CASES": (("alexnet", 256, 1.4),), "GPUS": ("titan-x",),
        "tuned": cache(figures.tuned.__wrapped__), "BEFORE_GB": 0.5,
    }  # fmt: skip
    for constant, value in small.items():
        monkeypatch.setattr(figures, constant, value)
    parts = PAPERS["accudnn"].parts()
    batches, clusters, claims, *_ = (
        shown(parts[name], []) for name in ("batch", "cluster", "together", "memory", "prefetch")
    )
    assert len(claims.figures) == 4 and not any("8 GPUs scale" in one.published.what for one in claims.figures), (
        "1.9 is met by the fit of the link, so it has no line beside it"
    )
    assert [row.accounting for row in batches.rows] == [*figures.ACCOUNTINGS] and len(batches.figures) == 2
    assert len(clusters.rows) == 4 and len(clusters.figures) == 6
    for own, speedup, better in zip(*(clusters.figures[i::3] for i in range(3)), strict=True):
        assert own.ours <= 8 and better.ours > speedup.ours / 8  # 8 baseline GPUs are less than 8 times one
    for plain, overlapped in zip(clusters.rows[::2], clusters.rows[1::2], strict=True):
        assert plain.own <= overlapped.own <= 8 and not plain.overlap and overlapped.overlap
