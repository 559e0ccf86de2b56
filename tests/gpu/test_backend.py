"""Whole programs on a GPU: the bits do not depend on the set-up, memory is taken once, copies and kernels overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.targets import gpu
from kernels.targets.shim import cuda
from refimpl.backend import DeviceFailed, NotFinite, Trainer
from refimpl.machine import Span, Timeline
from refimpl.network import Network
from refimpl.network.small import tiny_inception, tiny_resnet, tiny_vgg
from refimpl.planner import Program, Setup, plan
from refimpl.slots.algorithms import MemoryOptimal, PerformanceOptimal
from refimpl.slots.baseline import NetworkWide
from tests.gpu_device import BACKEND, sized
from tests.matrix import diagonal
from tests.messages import raises_naming
from tests.refimpl.backend.running import (
    MACHINE,
    dense_network,
    differing,
    small_network,
    small_program,
    trained,
    trainer,
)
from tests.refimpl.drawn_networks import every_option, networks
from tests.refimpl.modules import (
    DropSome,
    LastUsed,
    OffloadSome,
    PooledPinned,
    PrefetchAhead,
    least_plan,
    setup,
    setups,
)
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.gpu

LIMIT = 5e-6  # seconds of host time that an instruction may take

SETUPS = {
    "baseline": setup(liveness=NetworkWide()),
    "offload, one copy stream, joined": setup(
        offload=OffloadSome(early=True), prefetch=PrefetchAhead(2), copy_streams="shared", join=True
    ),
    "prefetch": setup(offload=OffloadSome(), prefetch=PrefetchAhead(3), pinned=PooledPinned()),
    "everything": setup(
        recompute=DropSome(0.4), offload=OffloadSome(0.7), prefetch=PrefetchAhead(2), cache=LastUsed(),
        pinned=PooledPinned(),
    ),
}  # fmt: skip
#: Each kernel takes seconds to compile for an emulated GPU, which therefore has one network.
NETWORKS: dict[str, Callable[[int], Network]] = sized(
    {"inception": tiny_inception, "every option": every_option}, {"small": small_network}
)
EASY = ("conv", "relu", "pool", "join", "batchnorm", "dropout")


def programs(network: Network, **modules: Any) -> dict[str, Program]:
    """The same network by every set-up, each in as little memory as will do."""
    return {name: least_plan(network, wanted.replace(**modules), MACHINE) for name, wanted in SETUPS.items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_set_up_comes_to_the_same_bits(name: str) -> None:
    results = {}
    for label, program in programs(NETWORKS[name](sized(16, 2))).items():
        with trainer(program, backend=BACKEND) as made:
            losses = [made.step(*draw_batch(program.network, i)) for i in range(sized(3, 2))]
            assert made.recounted_peak == program.peak_bytes
            results[label] = losses, made.state()
    first_losses, first = results["baseline"]
    for label, (losses, state) in results.items():
        assert differing(state, first) == [], label
        assert losses == first_losses, label


@pytest.mark.parametrize(("name", "algorithms"), diagonal(NETWORKS, [MemoryOptimal(), PerformanceOptimal()]))
def test_gpu_and_cpu_agree(name: str, algorithms: Any) -> None:
    program = least_plan(NETWORKS[name](sized(8, 2)), SETUPS["everything"].replace(algorithms=algorithms), MACHINE)
    losses, ours = trained(program, 2, backend=BACKEND)
    expected_losses, expected = trained(program, 2)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    for tensor, values in expected.items():
        scale = max(1e-3, float(np.abs(values).max()))
        np.testing.assert_allclose(ours[tensor] / scale, values / scale, atol=2e-4, err_msg=tensor)


@given(sized(networks(layers=12), networks(layers=6, kinds=EASY)), setups)
@settings(max_examples=sized(15, 4))
def test_drawn_networks_and_set_ups_come_to_the_bits_of_the_baseline(network: Network, wanted: Setup) -> None:
    program = least_plan(network, wanted.replace(algorithms=MemoryOptimal()), MACHINE)
    _, state = trained(program, 2, backend=BACKEND)
    _, plain = trained(plan(network, setup(liveness=NetworkWide()), MACHINE, 1 << 28), 2, backend=BACKEND)
    assert differing(state, plain) == []


def test_closing_gives_the_memory_back_at_once() -> None:
    network = small_network(sized(1 << 16, 1 << 10))
    program = plan(network, setup(liveness=NetworkWide()), MACHINE, 1 << 32)
    Trainer(program, backend=BACKEND).close()  # kernels are compiled and loaded
    free = cuda.current_context().get_memory_info().free
    with Trainer(program, backend=BACKEND):
        assert cuda.current_context().get_memory_info().free < free - program.arena_bytes // 2
    assert cuda.current_context().get_memory_info().free == free


@pytest.mark.parametrize(
    ("module", "refused", "says"),
    [
        (cuda, "device_array", "taking .* for the device arena .a smaller budget or batch takes less.: "),
        (cuda, "pinned_array", "pinning .* of host memory .a set-up that offloads less takes less.: "),
        (gpu, "stream", "making streams: "),
    ],
    ids=["the device's", "the host's", "a stream's"],
)
def test_memory_that_is_refused(monkeypatch: pytest.MonkeyPatch, module: Any, refused: str, says: str) -> None:
    """One clear line, and nothing is kept."""

    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError("[2] Call to cuMemAlloc\nresults in OUT_OF_MEMORY")

    program = small_program(offload=OffloadSome(), prefetch=PrefetchAhead(2))
    free = cuda.current_context().get_memory_info().free
    with monkeypatch.context() as patched:
        patched.setattr(module, refused, refuse)
        with pytest.raises(DeviceFailed, match=f"the GPU failed while {says}.*OUT_OF_MEMORY") as caught:
            Trainer(program, backend=BACKEND)
    assert "\n" not in str(caught.value)
    assert cuda.current_context().get_memory_info().free == free


def shared(first: Span, second: Span) -> float:
    """Seconds in which both ran."""
    return max(0.0, min(first.end, second.end) - max(first.start, second.start))


def hidden(timeline: Timeline, engine: str) -> float:
    """Seconds of an engine's copies during which a kernel ran."""
    compute = [span for span in timeline.spans if span.engine == "compute"]
    return sum(shared(span, busy) for span in timeline.spans if span.engine == engine for busy in compute)


@pytest.mark.timing
def test_copies_and_kernels_overlap() -> None:
    wanted = setup(offload=OffloadSome(early=True), prefetch=PrefetchAhead(4))
    program = plan(tiny_vgg(batch=sized(512, 16)), wanted, MACHINE, 1 << 32)
    with trainer(program, backend=BACKEND) as made:
        for i in range(3):
            made.step(*draw_batch(program.network, i))
        timeline = made.timeline()
    for engine in ("out", "in"):
        busy, overlapped = timeline.busy(engine), hidden(timeline, engine)  # type: ignore[arg-type]
        print(f"{timeline.machine}: copies {engine} take {busy * 1e3:.2f} ms, {overlapped * 1e3:.2f} beside kernels")
        assert overlapped > 0.2 * busy > 0
    in_turn: dict[int, Span] = {}
    for span in timeline.spans:  # in the program's order: each stream does one thing after another
        before = in_turn.get(span.stream)
        assert before is None or before.end <= span.start + 2e-6
        in_turn[span.stream] = span
    if BACKEND == "cuda":  # on an emulated GPU the times are a model's
        assert not timeline.simulated and timeline.machine == gpu.device_name()


@pytest.mark.timing
def test_an_instruction_costs_the_host_next_to_nothing() -> None:
    program = least_plan(tiny_resnet(batch=sized(8, 2)), SETUPS["everything"], MACHINE)
    with trainer(program, backend=BACKEND) as made:
        for i in range(sized(30, 5)):
            made.step(*draw_batch(program.network, i))
        seconds = made.host_seconds_per_instruction
    assert seconds is not None
    print(f"{gpu.device_name()}: {len(program.instructions)} instructions, {seconds * 1e6:.2f} µs of host time each")
    assert seconds < LIMIT


def test_a_nan_is_found_where_it_began_and_nothing_is_learnt() -> None:
    program = small_program(sized(small_network(), dense_network()))
    with trainer(program, backend=BACKEND) as made:
        made.step(*draw_batch(program.network))
        good = made.state()
        bad = {name: values.copy() for name, values in good.items()}
        bad["right.w"][:] = np.nan
        made.load_state(bad)
        with raises_naming(NotFinite, "right", "forward") as caught:
            made.step(*draw_batch(program.network, 1))
        assert caught.value.layer == "right"
        learnt = [n for n in differing(made.state(), bad) if n.endswith((".w", ".b")) and not n.startswith("d(")]
        assert learnt == []
        made.load_state(good)
        made.step(*draw_batch(program.network, 1))
        assert differing(made.state(), trained(program, 2, backend=BACKEND)[1]) == []
