"""Tuning by name: the table of the specification, and what must hold of every curve."""

from __future__ import annotations

import pytest

from refimpl.accudnn.cluster import Cluster
from refimpl.accudnn.tuner import Learning, fitting
from refimpl.accudnn.tuning import ACCOUNTINGS, Tuned, tune
from refimpl.machine import MachineError
from refimpl.machine.measured_profile import Copies, Profile, as_machine
from refimpl.names.machines import named as machine
from refimpl.names.presets import setup
from refimpl.network.zoo import build
from refimpl.planner import DoesNotFit
from refimpl.planner.largest import attempt
from tests.messages import raises_naming

pytestmark = pytest.mark.accudnn

GIB, MIB = 1 << 30, 1 << 20
TITAN_X = machine("titan-x")


@pytest.fixture(scope="module")
def vgg16() -> Tuned:
    clusters = [Cluster(workers, overlap=False) for workers in (8, 4096)]
    return tune("vgg16", setup("accudnn"), TITAN_X, 12 * GIB, clusters, learning=Learning(1, images=1000))


@pytest.mark.slow
def test_vgg16_is_as_the_specification_has_it(vgg16: Tuned) -> None:
    batches = {name: found.batch for name, found in vgg16.accountings.items()}
    assert batches == {"caffe-bvlc": 89, "caffe-lean": 89, "network-wide": 105, "layer-wise": 146}
    assert 170 <= vgg16.optimal_batch <= 180 and vgg16.trainable_batch == 291
    rates = [vgg16.accountings["network-wide"].point.images_a_second, vgg16.optimal.images_a_second]
    assert rates[0] == pytest.approx(58.4, abs=0.05) and rates[1] is not None and rates[1] >= 63.7


@pytest.mark.slow
def test_the_curve_rises_flattens_and_falls(vgg16: Tuned) -> None:
    rates = fitting(vgg16.curve)
    rising = [rate for batch, rate in rates.items() if batch <= vgg16.optimal_batch]
    assert rising == sorted(rising)
    assert rates[vgg16.trainable_batch] < 0.95 * max(rates.values())  # the largest batch is not the most efficient


@pytest.mark.slow
def test_ratios_and_gains_are_over_each_accounting(vgg16: Tuned) -> None:
    best = vgg16.optimal.images_a_second
    assert best is not None
    for name in ACCOUNTINGS:
        known = vgg16.accountings[name]
        assert vgg16.ratio(known) == vgg16.optimal_batch / known.batch
        assert known.point.images_a_second is not None
        assert vgg16.gain(known) == pytest.approx(best / known.point.images_a_second)


@pytest.mark.slow
def test_the_closed_form_knows_liveness_and_swapping_apart(vgg16: Tuned) -> None:
    wide, layer_wise = (vgg16.accountings[name] for name in ("network-wide", "layer-wise"))
    assert vgg16.liveness_frees == wide.bytes_per_image - layer_wise.bytes_per_image > 20 * MIB
    assert vgg16.swapping_frees > 10 * MIB
    assert vgg16.closed_form.without == pytest.approx(wide.batch, rel=0.06)
    assert vgg16.closed_form.optimum == pytest.approx(200, rel=0.1)


@pytest.mark.slow
def test_a_cluster_scales_until_latency_and_the_network_cost_more(vgg16: Tuned) -> None:
    eight, thousands = vgg16.workers
    point, reduced = vgg16.optimal, eight.cluster.reduce_seconds(eight.gradient_bytes)
    assert point.seconds and eight.seconds == pytest.approx(point.seconds + reduced)
    assert eight.gradient_bytes == build("vgg16", 1).parameter_count * 4
    assert eight.images_a_second == pytest.approx(8 * point.batch / eight.seconds)
    assert thousands.scaling < eight.scaling < 1
    assert thousands.pays_up_to >= eight.pays_up_to >= vgg16.optimal_batch  # fewer synchronisations pay for longer
    assert eight.learning == Learning(8 * point.batch, images=1000)
    assert thousands.learning.scaling == "square root"
    assert eight.speedup and eight.baseline_speedup and eight.speedup > eight.baseline_speedup


@pytest.mark.slow
def test_every_batch_of_the_curve_is_as_planned() -> None:
    found = tune("tiny-vgg", setup("vdnn-dyn"), TITAN_X, 40 * MIB)
    assert found.workers == [] and found.optimal_batch in fitting(found.curve)
    for one in found.curve[:: max(1, len(found.curve) // 5)]:
        program = attempt(build("tiny-vgg", one.batch), setup("vdnn-dyn"), TITAN_X, 40 * MIB)
        assert (program and program.planned_seconds) == one.seconds
    assert attempt(build("tiny-vgg", found.trainable_batch), setup("vdnn-dyn"), TITAN_X, 40 * MIB)


@pytest.mark.slow
def test_where_the_policy_needs_more_than_the_baseline_smaller_batches_are_tried() -> None:
    """With every block rounded up to 4 MiB the policy fits few images, where the baseline fits a thousand."""
    greedy = setup("vdnn-dyn", {"allocator": "block-heap:4MiB"})
    found = tune("tiny-vgg", greedy, TITAN_X, 230 * MIB)
    assert found.trainable_batch < found.accountings["network-wide"].batch // 4
    assert found.curve[0].batch == 1


def test_a_network_that_never_fits_is_refused() -> None:
    with pytest.raises(DoesNotFit):
        tune("tiny-vgg", setup("accudnn"), TITAN_X, 1 << 16)


def test_a_profile_is_refused_which_has_the_seconds_of_one_batch() -> None:
    copies = {way: Copies(0.0, 1e9) for way in ("out", "in")}
    profile = Profile("mine", "cpu", "2026-11-22", "tiny-vgg", 7, GIB, 1e9, 1e9, copies, {}, {})
    with raises_naming(MachineError, "mine", 7):
        tune("tiny-vgg", setup("accudnn"), as_machine(profile), GIB)


@pytest.mark.slow
def test_caffes_batch_is_zero_where_its_context_alone_is_too_much() -> None:
    found = tune("lenet", setup("accudnn"), TITAN_X, 16 * MIB)
    known = found.accountings["caffe-lean"]
    assert known.batch == 0 and known.point.images_a_second is None
    assert found.ratio(known) is None and found.gain(known) is None
