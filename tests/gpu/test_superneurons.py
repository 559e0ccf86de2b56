"""SuperNeurons on a GPU: bits, memory, driver calls, and copies that run beside kernels."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.targets import gpu
from kernels.targets.shim import cuda
from refimpl.memory import DriverCalls
from refimpl.names import presets
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Allocate, Program, Setup
from refimpl.studies.reproduce import measured
from refimpl.studies.reproduce.superneurons import measured as superneurons_measured
from tests.gpu_device import BACKEND, sized
from tests.matrix import diagonal
from tests.refimpl.backend.running import MACHINE, differing, held, trained, trainer
from tests.refimpl.modules import least_plan
from tests.refimpl.plainly import draw_batch

pytestmark = [pytest.mark.gpu, pytest.mark.superneurons]

WAYS = ("speed-centric", "memory-centric", "cost-aware")


def wanted(preset: str, **named: str) -> Setup:
    made = presets.setup(preset, named)
    assert isinstance(made, Setup)
    return made


SETUPS = {
    "offload": wanted("superneurons-offload"),
    "recompute, memory-centric": wanted("superneurons-recompute", recompute="memory-centric"),
    **{f"all, {way}": wanted("superneurons", recompute=way) for way in WAYS},
}
RATE = 0.01  #: with the rate of other tests LeNet diverges, on any device
NETWORKS = sized(
    ("lenet", "tiny-vgg:superneurons", "tiny-resnet:superneurons", "tiny-inception"), ("tiny-resnet:superneurons",)
)


def tight(network: Network, label: str, **modules: Any) -> Program:
    return least_plan(network, SETUPS[label].replace(**modules), MACHINE)


@pytest.mark.parametrize(("name", "label"), diagonal(NETWORKS, SETUPS))
def test_no_preset_changes_a_bit_and_the_peak_is_the_predicted(name: str, label: str) -> None:
    program = tight(build(name, sized(16, 2)), label)
    with trainer(program, backend=BACKEND, rate=RATE) as made:
        losses = [made.step(*draw_batch(program.network, i)) for i in range(2)]
        assert made.recounted_peak == program.peak_bytes <= program.budget
        state = made.state()
    expected_losses, expected = trained(held(program), 2, backend=BACKEND, rate=RATE)
    assert differing(state, expected) == []
    assert losses == expected_losses


def test_the_arena_is_all_that_is_taken_and_an_iteration_takes_nothing() -> None:
    """Evictions, fetches and rebuilds: none of them asks the driver for memory."""
    program = tight(build("tiny-resnet:superneurons", sized(64, 2)), "all, memory-centric")
    assert program.counts.evictions > 0 and program.counts.on_demand_bytes > 0 and program.counts.recomputed_layers > 0
    with trainer(program, backend=BACKEND) as made:
        made.step(*draw_batch(program.network))
        gpu.synchronize()
        free = cuda.current_context().get_memory_info().free
        for i in range(2):
            made.step(*draw_batch(program.network, i))
            assert cuda.current_context().get_memory_info().free == free


def test_driver_calls_are_made_counted_and_change_no_bit() -> None:
    network = build("tiny-resnet:superneurons", sized(64, 2))
    program = tight(network, "all, cost-aware", allocator=DriverCalls())
    allocations = sum(isinstance(i, Allocate) for i in program.instructions)
    with trainer(program, backend=BACKEND, guard=False) as made:
        for i in range(2):
            made.step(*draw_batch(network, i))
            assert made.driver_calls is not None
            times = made.driver_calls
            assert times.allocations == times.frees == allocations
            assert 0 < times.allocating and 0 < times.freeing
        state = made.state()
        gpu.synchronize()
        free = cuda.current_context().get_memory_info().free
        made.step(*draw_batch(network))
        assert cuda.current_context().get_memory_info().free == free  # every block was given back
    assert differing(state, trained(held(program), 2, backend=BACKEND)[1]) == []
    print(f"{gpu.device_name()}: {allocations} allocations, {times.seconds * 1e3:.2f} ms in the calls of an iteration")


def test_the_planned_largest_batch_trains() -> None:
    """Within a budget, on the device: the pool's peak is the planned one, and a budget it is."""
    budget = sized(64, 2)  # MiB
    found = superneurons_measured.measure(
        measured.Request("tiny-resnet", sized(64, 2), "superneurons", machine("here"), f"{budget}MiB", BACKEND, 2)
    )
    ours, baseline = found.largest
    assert ours.batch > baseline.batch
    assert ours.peak_bytes <= ours.budget_bytes == budget << 20 and ours.seconds > 0
    assert found.pools is not None and found.comparison is not None
