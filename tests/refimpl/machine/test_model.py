"""The model of a machine: seconds from operations and bytes, choices in order, clear refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import CATALOGUES, MACHINES, TITAN_X, Choice, Machine, MachineError, Tier
from refimpl.machine.catalogues import options
from refimpl.machine.model import Efficiency
from refimpl.machine.ring import TEN_GIGABIT, Ring, wire_bytes
from refimpl.machine.work import Work
from refimpl.names.networks import lenet
from refimpl.network import Call, Tensor
from tests.messages import raises_naming
from tests.refimpl.machine.conv_calls import as_kernels_take_it, convolutions, passes

HALF = Efficiency(forward=0.5, backward=0.5, products=0.5, transforms=0.5, streaming=0.5)

#: 100 operations and 10 bytes a second, all by halves; an overhead of a second.
TOY = Machine("toy", 1 << 30, 200.0, 20.0, 4.0, 8, HALF, launch_seconds=1.0, copy_start_seconds=2.0)


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (Work("products", 1000, 10), 1 + 10),  # by arithmetic
        (Work("products", 100, 50), 1 + 5),  # by traffic
        (Work("products", 0, 0, times=7), 7),  # launches alone
        (Work("forward", 1000, 0, blocks=2), 1 + 40),  # two of eight multiprocessors have work
        (Work("forward", 1000, 0, blocks=100), 1 + 10),
        (Work("backward", 100, 50, speed=0.5), 1 + 10),
    ],
)
def test_a_kernel_takes_its_arithmetic_or_its_traffic(work: Work, seconds: float) -> None:
    assert TOY.work_seconds(work) == pytest.approx(seconds)


def test_kinds_and_traffic_have_efficiencies_of_their_own() -> None:
    machine = replace(TOY, efficiency=Efficiency(0.1, 0.2, 0.4, 0.25, 0.5))
    kinds = [machine.work_seconds(Work(kind, 200, 0)) - 1 for kind in ("forward", "backward", "products")]
    assert kinds == pytest.approx([10, 5, 2.5])
    assert machine.work_seconds(Work("products", 0, 20, traffic="transforms")) - 1 == pytest.approx(4)
    assert machine.work_seconds(Work("products", 0, 20)) - 1 == pytest.approx(2)


def test_a_call_without_a_choice_is_timed_by_what_it_moves() -> None:
    x, y = Tensor("x", (5,), "map"), Tensor("y", (5,), "map")
    call = Call("relu.forward", {"x": x, "y": y}, [x], [y])
    assert TOY.seconds(call) == pytest.approx(1 + 40 / 10)
    assert TOY.copy_seconds(40, "out") == TOY.copy_seconds(40, "in") == pytest.approx(2 + 10)


@pytest.mark.parametrize("catalogue", CATALOGUES)
@given(calls=convolutions(), machine=st.sampled_from(sorted(MACHINES)))
def test_choices_are_in_order_and_one_needs_no_workspace(catalogue: str, calls: list[Call], machine: str) -> None:
    here = MACHINES[machine].with_catalogue(catalogue)
    for call in calls:
        choices = here.choices(call)
        assert [choice.seconds for choice in choices] == sorted(choice.seconds for choice in choices)
        assert min(choice.workspace_bytes for choice in choices) == 0
        assert len({(choice.algorithm, choice.workspace_bytes) for choice in choices}) == len(choices)
        assert all(choice.seconds >= here.launch_seconds for choice in choices)
        assert [here.seconds(call, choice) for choice in choices] == [choice.seconds for choice in choices]
        assert here.seconds(call) == choices[0].seconds


@pytest.mark.parametrize("catalogue", CATALOGUES)
@given(calls=convolutions(images=8))
def test_twice_the_images_are_not_faster(catalogue: str, calls: list[Call]) -> None:
    machine = TITAN_X.with_catalogue(catalogue)
    for call in calls:
        if catalogue == "own" and call.function == "conv.backward_filter":
            continue  # a longer sum is split, and fills a GPU better
        _, x, w, stride, pad, dilation = as_kernels_take_it(call)
        larger = passes((2 * x[0], *x[1:]), w[0], w[2:], stride, pad, dilation, groups=x[1] // w[1])
        more = next(c for c in larger if c.function == call.function)
        assert machine.seconds(more) >= machine.seconds(call) * (1 - 1e-12)


def test_a_choice_of_another_catalogue_is_refused() -> None:
    call = passes((4, 3, 16, 16), 8, (3, 3))[0]
    with raises_naming(MachineError, "catalogue", "cudnn4", "winograd", "workspace", 64):
        TITAN_X.seconds(call, Choice("winograd", 64, 1.0))


def test_an_unknown_catalogue_is_refused_with_the_nearest() -> None:
    with raises_naming(MachineError, "catalogue", "cudnn", "cudnn5"):
        TITAN_X.with_catalogue("cudnn")
    with raises_naming(MachineError, "catalogue", "zzz", "cudnn4"):
        TITAN_X.with_catalogue("zzz")


def test_a_catalogue_without_a_family_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUES, "empty", {})
    call = passes((1, 3, 8, 8), 4, (3, 3))[0]
    with raises_naming(MachineError, "empty", call.function, "own"):
        options("empty", call)


def test_calls_are_offered_the_algorithms_that_are_given() -> None:
    forward, backward, *_ = [call for step in lenet(4).steps for call in step.calls if call.choosable]
    machine = MACHINES["h100"]
    slowest = machine.choices(forward)[-1].algorithm
    assert slowest != machine.choices(forward)[0].algorithm
    made = machine.with_algorithms({forward.name: slowest})
    assert made.choices(forward) == tuple(one for one in machine.choices(forward) if one.algorithm == slowest)
    assert made.choices(backward) == machine.choices(backward)
    assert made.with_algorithms({forward.name: slowest}) is made and machine.with_algorithms({}) is machine
    assert made.with_algorithms({}).choices(forward) == machine.choices(forward), "not those of before"
    with raises_naming(MachineError, "h100", "none such", forward.name):
        machine.with_algorithms({forward.name: "none such"}).choices(forward)


# -- tiers and the ring ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "says"),
    [
        (("hosts",), "there is no tier 'hosts'; did you mean host? There are: host, peer, remote."),
        (("peer", -1), "the peer tier has -1 bytes; give 0 or more, or None for no limit"),
        (("peer", 1, 0.0), "the peer tier copies 0.0 bytes a second; give a number above 0"),
        (("peer", 1, float("inf")), "the peer tier copies inf bytes a second; give a number above 0"),
        (("peer", 1, float("nan")), "the peer tier copies nan bytes a second; give a number above 0"),
    ],
)
def test_a_tier_that_cannot_be_is_refused(tier: tuple[str], says: str) -> None:
    with pytest.raises(MachineError) as error:
        Tier(*tier)
    assert str(error.value) == says


def test_a_copy_goes_at_its_tiers_rate() -> None:
    """The papers' where none is given: 10 GB/s over the PCIe switch, 6 by RDMA; the host's is the machine's link."""
    tiered = TOY.with_tiers([Tier("host"), Tier("peer", 0), Tier("remote", None, 3e9)])
    seconds = [tiered.copy_seconds(12, "out", tier) for tier in ("host", "peer", "remote")]
    assert seconds == [2 + 12 / 4, 2 + 12 / 10e9, 2 + 12 / 3e9]
    assert Tier("remote").bytes_per_second == 6e9
    with raises_naming(MachineError, "toy has no peer tier"):
        TOY.copy_seconds(1, "in", "peer")
    for wrong, says in (([Tier("peer")], "host"), ([Tier("host"), Tier("peer"), Tier("peer")], "host, peer, peer")):
        with raises_naming(MachineError, says):
            TOY.with_tiers(wrong)


def test_an_all_reduce_sends_two_rounds_of_a_ring_less_one() -> None:
    """Four ranks: six messages of a quarter each, and each of the four sends them."""
    assert Ring(rate=100.0, latency=0.5).reduce_seconds(800, 4) == 6 * (200 / 100) + 6 * 0.5
    assert wire_bytes(800, 4) == 4 * 6 * 200 and wire_bytes(800, 1) == 0 == TEN_GIGABIT.reduce_seconds(800, 1)
    assert TEN_GIGABIT.rate == 10e9 / 8 and not TEN_GIGABIT.shares_link
    assert TOY.with_ring(Ring(5.0)).ring.rate == 5.0
