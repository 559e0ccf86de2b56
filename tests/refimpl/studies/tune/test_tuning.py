"""Tuning by name: the table of the specification, and what must hold of every curve."""

from __future__ import annotations

import pytest

from refimpl.accudnn.tuner import Learning, Point, fitting
from refimpl.machine import MachineError
from refimpl.machine.measured_profile import Copies, Profile, as_machine
from refimpl.names.largest_batch import attempt, unlimited, unlimited_baseline
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.names.presets import setup
from refimpl.network import Network
from refimpl.planner import BASELINE
from refimpl.studies.tune.caffe import bytes_per_image, fixed_bytes
from refimpl.studies.tune.cluster import Cluster
from refimpl.studies.tune.tuning import ACCOUNTINGS, LAYER_WISE, Tuned, accounting, at_work, swapping, tune
from tests.messages import raises_naming

pytestmark = pytest.mark.accudnn

GIB, MIB = 1 << 30, 1 << 20
TITAN_X = machine("titan-x")


def test_where_the_policy_needs_more_than_the_baseline_smaller_batches_are_tried() -> None:
    """With every block rounded up to 256 KiB the policy fits 5 images, where the baseline fits more than 40."""
    greedy = setup("vdnn-all", {"allocator": "block-heap:256KiB"})
    found = tune("lenet", greedy, TITAN_X, 43 * MIB // 4)
    assert found.trainable_batch == 5 < found.accountings["network-wide"].batch // 4
    assert [one.batch for one in found.curve] == [1, 2, 3, 4, 5, 6]


def test_a_profile_is_refused_which_has_the_seconds_of_one_batch() -> None:
    copies = {way: Copies(0.0, 1e9) for way in ("out", "in")}
    profile = Profile("mine", "cpu", "2026-11-22", "tiny-vgg", 7, GIB, 1e9, 1e9, copies, {}, {})
    with raises_naming(MachineError, "mine", 7):
        tune("tiny-vgg", setup("accudnn"), as_machine(profile), GIB)


# -- a small network, each number worked out a second time -------------------------------------------------------------

SMALL, PAIR = 6 * MIB, Cluster(2, overlap=False)


def lenet(batch: int) -> Network:
    return build("lenet", batch)


@pytest.fixture(scope="module")
def small() -> Tuned:
    return tune("lenet", setup("vdnn-all"), TITAN_X, SMALL, [PAIR], learning=Learning(1, 64, 0.2, 500))


def test_each_point_of_a_small_curve_is_its_plan_s(small: Tuned) -> None:
    largest = max(fitting(small.curve))
    assert [one.batch for one in small.curve] == sorted({one.batch for one in small.curve})
    for one in (small.curve[0], small.optimal, small.curve[-1]):
        program = attempt(lenet(one.batch), setup("vdnn-all"), TITAN_X, SMALL)
        assert (program is None) == (one.batch > largest)
        if program:
            assert (one.seconds, one.peak_bytes) == (program.planned_seconds, program.peak_bytes)
            assert one.stall_seconds == program.simulate().stall
            assert one.offloaded_bytes == program.counts.offloaded_bytes > 0
            assert one.unlimited_seconds == unlimited_baseline(lenet(one.batch), TITAN_X).planned_seconds
    rates = [one.batch / one.seconds for one in small.curve if one.seconds]
    first = next(one for one in small.curve if one.seconds and one.batch / one.seconds >= 0.99 * max(rates))
    assert small.optimal_batch == first.batch and small.trainable_batch == largest
    assert small.curve[0].batch == small.accountings["network-wide"].batch // 4
    assert small.learning == Learning(first.batch, 64, 0.2, 500)
    assert small.workers[0].learning == Learning(2 * first.batch, 64, 0.2, 500)


def test_what_a_small_network_needs_without_the_policy(small: Tuned) -> None:
    assert small.accountings.keys() == ACCOUNTINGS.keys()
    for name, plain in (("network-wide", BASELINE), ("layer-wise", LAYER_WISE)):
        known = small.accountings[name]
        assert attempt(lenet(known.batch), plain, TITAN_X, SMALL)
        assert not attempt(lenet(known.batch + 1), plain, TITAN_X, SMALL)
        network = lenet(known.batch)
        assert known.fixed_bytes == network.resident_bytes
        peak = unlimited(network, plain, TITAN_X).peak_bytes
        assert known.bytes_per_image == (peak - network.resident_bytes) // known.batch
        assert (
            known.point.seconds == known.point.unlimited_seconds == unlimited_baseline(network, TITAN_X).planned_seconds
        )
        assert known.point.images_a_second and small.optimal.images_a_second
        assert small.gain(known) == small.optimal.images_a_second / known.point.images_a_second
        assert small.ratio(known) == small.optimal_batch / known.batch
    wide, layer_wise = (small.accountings[name].bytes_per_image for name in ("network-wide", "layer-wise"))
    assert small.liveness_frees == wide - layer_wise > 0
    assert small.swapping_frees == 0  # no copy of so small a network hides
    form = small.closed_form
    assert (form.budget, form.per_image, form.saved) == (SMALL, wide, wide - layer_wise)
    assert form.fixed == small.accountings["network-wide"].fixed_bytes
    caffe = small.accountings["caffe-lean"]
    assert caffe.batch == 0 and small.ratio(caffe) is None and small.gain(caffe) is None


@pytest.mark.parametrize(("images", "batch"), [(10, 10), (10.9, 10), (0.9, 0), (-5, 0)])
@pytest.mark.parametrize("name", ["caffe-bvlc", "caffe-lean"])
def test_caffe_s_batch_is_what_its_context_leaves(name: str, images: float, batch: int) -> None:
    fixed, each = fixed_bytes(lenet(1)), bytes_per_image(lenet(1), bvlc=name == "caffe-bvlc")
    found = accounting(name, lenet, TITAN_X, int(fixed + images * each), True, lambda doing: None)
    assert (found.name, found.fixed_bytes, found.bytes_per_image, found.batch) == (name, fixed, each, batch)
    assert found.point.seconds == (unlimited_baseline(lenet(batch), TITAN_X).planned_seconds if batch else None)
    assert sum(one.nbytes for one in found.point.gradients) == (4 * lenet(1).parameter_count if batch else 0)


def test_swapping_is_counted_at_the_largest_batch_whose_copies_hide() -> None:
    without = unlimited(lenet(4), LAYER_WISE, TITAN_X).peak_bytes
    hidden, slow = Point(4, 1.01, 0, 1.0, 0, without - 4000), Point(8, 1.02, 0, 1.0, 0, 0)
    curve = [Point(2, 1.0, 0, 1.0, 0, 0), hidden, slow, Point(16)]
    assert swapping(curve, lenet, TITAN_X) == 1000
    assert swapping(curve[2:], lenet, TITAN_X) == 0
    assert swapping([Point(4, 1.0, 0, 1.0, 0, without + 4000)], lenet, TITAN_X) == 0


def test_two_workers_of_a_small_network(small: Tuned) -> None:
    (found,), point = small.workers, small.optimal
    known = small.accountings["network-wide"].point
    assert point.seconds and known.seconds and point.images_a_second and known.images_a_second
    nbytes = 4 * lenet(1).parameter_count
    reduced = PAIR.reduce_seconds(nbytes)
    assert found.gradient_bytes == nbytes and found.seconds == pytest.approx(point.seconds + reduced)
    assert found.images_a_second == pytest.approx(2 * point.batch / found.seconds)
    assert found.scaling == pytest.approx(point.seconds / found.seconds)
    assert found.speedup == pytest.approx(found.images_a_second / known.images_a_second)
    theirs = 2 * known.batch / (known.seconds + reduced)
    assert found.baseline_speedup == pytest.approx(theirs / known.images_a_second)
    rates = {one.batch: one.batch / (one.seconds + reduced) for one in small.curve if one.seconds}
    assert found.pays_up_to == min(batch for batch, rate in rates.items() if rate >= 0.99 * max(rates.values()))
    alone = at_work(PAIR, small.curve, point.batch, Point(0), found.learning)  # not one image fits without the policy
    assert alone.speedup is None and alone.baseline_speedup is None and alone.seconds == found.seconds
