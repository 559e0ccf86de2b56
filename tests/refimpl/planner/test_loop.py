"""The loop: the published books of AlexNet, and each rule of coming, going and draining on small networks."""

from __future__ import annotations

import csv
import gc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.targets.collector import collector_paused
from refimpl.names import presets
from refimpl.names.networks import build
from refimpl.network import Builder, Network
from refimpl.planner import DoesNotFit, Setup, plan
from refimpl.planner.instructions import Allocate, Free, Launch
from refimpl.planner.loop import Planner
from refimpl.slots.baseline import NetworkWide
from tests.messages import raises_naming
from tests.refimpl.modules import (
    DropSome,
    OffloadSome,
    PooledPinned,
    PrefetchAhead,
    instructions_of,
    least_plan,
    machine,
    networks,
    setup,
    setups,
)  # fmt: skip

GOLDEN = Path(__file__).parents[2] / "data" / "superneurons_alexnet200.csv"
MIB = 2**20
PLENTY = 64 << 30


def chain(layers: int = 6) -> Network:
    b = Builder("chain", (2, 4, 16, 16))
    for _ in range(layers):
        b.conv(4, 3, pad=1)
    b.fc(3)
    b.softmax()
    return b.build()


# -- published figures -------------------------------------------------------------------------------------------------


def test_layer_wise_liveness_gives_superneurons_published_curve() -> None:
    """Every step's live bytes to 0.02 MiB, and its number of live tensors exactly."""
    program = plan(build("alexnet:superneurons", 200), setup(), machine(), PLENTY)
    with GOLDEN.open() as file:
        golden = list(csv.DictReader(file))
    assert len(golden) == len(program.rows) == 46
    for expected, row in zip(golden, program.rows, strict=True):
        assert (row.step.layer.name, row.step.direction) == (expected["layer"], expected["direction"])
        assert row.live_bytes / MIB == pytest.approx(float(expected["liveness_mib"]), abs=0.02)
        assert row.live_tensors == int(expected["liveness_tensors"])
    assert program.peak.live_bytes / MIB == pytest.approx(1489.355, abs=0.001)
    assert (program.peak.step.number, program.peak.step.layer.name) == (32, "POOL5")


# -- what must always hold ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(networks(), setups, st.sampled_from((1e6, 1e8, 1e12)), st.floats(0, 1))
def test_planning_and_simulating_keep_the_same_time(network: Network, wanted: Setup, link: float, room: float) -> None:
    program = least_plan(network, wanted, machine(link), room)
    assert program.simulate().seconds == pytest.approx(program.planned_seconds, abs=1e-12)


@pytest.mark.slow
@given(networks(), setups, st.sampled_from((1e6, 1e12)), st.floats(0, 1))
def test_a_plan_balances_its_books(network: Network, wanted: Setup, link: float, room: float) -> None:
    """Recounted from the instructions: the peak, what is moved, and nothing managed is left at the end."""
    program = least_plan(network, wanted, machine(link), room)
    granule = program.setup.allocator.granularity
    held = sum(-(-tensor.nbytes // granule) * granule for tensor in program.resident)
    peak, alive, moved = held, {}, Counter[str]()
    for instruction in program.instructions:
        if isinstance(instruction, Allocate):
            alive[instruction.tensor] = instruction.nbytes
            held += instruction.nbytes
            peak = max(peak, held)
        elif isinstance(instruction, Free):
            held -= alive.pop(instruction.tensor)
            assert instruction.released <= instruction.step
        elif instruction.op in ("copy out", "copy in"):
            moved[instruction.why] += instruction.nbytes
    assert not alive
    assert peak == program.peak_bytes <= program.budget and program.arena_bytes <= program.budget
    counts = program.counts
    assert moved["offload"] == counts.offloaded_bytes and moved["evicted"] == counts.evicted_bytes
    launched = [(i.call, i.rebuild) for i in program.instructions if isinstance(i, Launch)]
    assert [call for call, rebuild in launched if not rebuild] == [c for step in network.steps for c in step.calls]
    assert not any(call.once for call, rebuild in launched if rebuild)
    assert program.verify().peak_bytes == peak


def test_a_plan_does_not_remember_the_plan_before() -> None:
    network = build("tiny-inception", 2)
    wanted = setup(recompute=DropSome(0.5), offload=OffloadSome(), prefetch=PrefetchAhead(), pinned=PooledPinned())
    first, second = (plan(network, wanted, machine(), PLENTY) for _ in range(2))
    assert first.listing() == second.listing()


# -- each rule ---------------------------------------------------------------------------------------------------------


def test_network_wide_keeps_every_map_and_layer_wise_does_not() -> None:
    network = chain()
    wide = plan(network, setup(liveness=NetworkWide()), machine(), PLENTY)
    lean = plan(network, setup(), machine(), PLENTY)
    maps = sum(tensor.nbytes for tensor in network.managed if tensor.kind in ("map", "input"))
    assert wide.peak.live_bytes > maps > lean.rows[-1].live_bytes
    assert lean.peak.live_bytes < wide.peak.live_bytes


@pytest.mark.vdnnpp
def test_network_wide_lets_all_gradients_go_behind_their_last_use() -> None:
    """Those of weights too, where a network has them come and go: at most one layer's are there at a time."""
    network = build("tiny-vgg:vdnnpp", 8)
    program = plan(network, setup(liveness=NetworkWide()), machine(), PLENTY)
    last = {tensor: step.number for step in network.steps for tensor in step.uses}
    freed = {it.tensor: it.step for it in program.instructions if isinstance(it, Free)}
    gradients = [tensor for tensor in network.managed if tensor.kind in ("gradient map", "weight gradient")]
    assert {tensor.kind for tensor in gradients} == {"gradient map", "weight gradient"}
    assert all(freed[tensor] == last[tensor] for tensor in gradients)
    kept = [tensor for tensor in network.managed if tensor not in gradients and tensor.kind != "workspace"]
    assert {freed[tensor] for tensor in kept} == {network.steps[-1].number}


def test_a_plan_is_the_same_whatever_the_link() -> None:
    wanted = setup(offload=OffloadSome(), prefetch=PrefetchAhead(2))
    slow, middle, fast = (plan(chain(), wanted, machine(link), PLENTY) for link in (1e5, 1e9, 1e15))
    assert instructions_of(slow) == instructions_of(middle) == instructions_of(fast)


# -- when it does not fit ----------------------------------------------------------------------------------------------


def test_what_does_not_fit_says_where_and_what_is_in_the_way() -> None:
    network = build("vgg16", 256)
    with pytest.raises(DoesNotFit) as caught:
        plan(network, setup(liveness=NetworkWide()), machine(), 12 << 30)
    error, text = caught.value, str(caught.value)
    assert error.step is not None and str(error.step) in text
    assert "does not fit in 12 GiB" in text and "the largest hole is" in text
    assert "of maps" in text and "of resident tensors" in text and "\n" not in text
    assert error.asked > error.largest_hole and error.free >= error.largest_hole
    assert sum(error.alive.values()) + error.free == pytest.approx(12 << 30, abs=512)


def test_weights_that_do_not_fit_are_said_to_be_weights() -> None:
    with raises_naming(DoesNotFit, "100 MiB"):
        plan(build("vgg16", 1), setup(), machine(), 100 << 20)


def test_what_does_not_fit_is_freed_at_once() -> None:
    """The garbage collector is paused while a search plans: what waits for it would pile up, plan after plan."""

    def planners() -> int:
        return sum(isinstance(one, Planner) for one in gc.get_objects())

    network, before, failed = chain(), planners(), 0
    with collector_paused():
        for budget in (1 << 15, 1 << 16, 3 << 15):
            try:
                plan(network, presets.setup("vdnn-all"), machine(), budget)
            except DoesNotFit as error:
                failed += error.step is not None
        assert failed and planners() <= before
