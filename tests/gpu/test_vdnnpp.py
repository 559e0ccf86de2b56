"""vDNN++ on a GPU: bits, pinned memory, and threads that compress while kernels run."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from kernels.targets import gpu
from kernels.targets.shim import cuda
from refimpl.backend import DeviceFailed
from refimpl.backend.host_thread import HostWork, host_stream
from refimpl.names import presets
from refimpl.names.machines import named as machine
from refimpl.names.networks import build
from refimpl.planner import Program, Setup, ToStore
from refimpl.planner.verify import verify
from refimpl.studies.reproduce import measured
from refimpl.studies.reproduce.vdnnpp import measured as vdnnpp_measured
from tests.gpu_device import BACKEND, sized
from tests.matrix import diagonal
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, differing, held, trained, trainer
from tests.refimpl.modules import least_plan
from tests.refimpl.plainly import draw_batch

pytestmark = [pytest.mark.gpu, pytest.mark.vdnnpp]

KEEPS_UP = dataclasses.replace(MACHINE, host_rate=1e12)  # the plan has as many maps compressed as there can be
PRESETS = ("vdnnpp-all", "vdnnpp-conv", "vdnnpp-alternate-conv")
NETWORKS = sized(("lenet:vdnnpp", "tiny-vgg:vdnnpp", "tiny-inception"), ("tiny-inception",))


def wanted(preset: str, **named: str) -> Setup:
    made = presets.setup(preset, named)
    assert isinstance(made, Setup)
    return made


def compressing(batch: int = sized(16, 2)) -> Program:
    program = least_plan(build("tiny-inception", batch), wanted("vdnnpp-all"), KEEPS_UP, 0.3)
    assert sum(isinstance(i, ToStore) for i in program.instructions) >= 2
    return program


@pytest.mark.parametrize(
    ("name", "pinned", "preset"), diagonal(NETWORKS, ["vdnnpp-compressed", "vdnnpp-on-demand"], PRESETS)
)
def test_no_preset_changes_a_bit_and_the_peak_is_the_predicted(name: str, pinned: str, preset: str) -> None:
    program = least_plan(build(name, sized(16, 2)), wanted(preset, pinned=pinned), KEEPS_UP, 0.3)
    with trainer(program, backend=BACKEND) as made:
        losses = [made.step(*draw_batch(program.network, i)) for i in range(2)]
        assert made.recounted_peak == program.peak_bytes <= program.budget
        state = made.state()
    expected_losses, expected = trained(held(program), 2, backend=BACKEND)
    assert differing(state, expected) == []
    assert losses == expected_losses


def test_the_pinned_arena_is_never_exceeded_and_an_iteration_takes_nothing() -> None:
    program = compressing()
    verify(program)  # raises if the program is not safe
    with trainer(program, backend=BACKEND) as made:
        device: Any = made.device
        assert device.pinned.size >= program.pinned_bytes and device.store.size == program.store_bytes
        offset = device._counter.ctypes.data - device.pinned.ctypes.data
        assert offset >= device.pinned.size  # the counter that streams wait for is in no map's buffer
        assert len(device.streams) == host_stream(program)
        made.step(*draw_batch(program.network))
        gpu.synchronize()
        free = cuda.current_context().get_memory_info().free
        for i in range(2):
            made.step(*draw_batch(program.network, i))
            assert cuda.current_context().get_memory_info().free == free
        compressed = made.compressed
    planned = [i.tensor.name for i in program.instructions if isinstance(i, ToStore)]
    assert [one.tensor for one in compressed] == planned
    for one in compressed:
        assert 0 < one.density <= 1 and one.density * one.nbytes <= one.stored <= one.nbytes + one.nbytes // 32
        print(f"{gpu.device_name()}: {one}")


@pytest.mark.timing
def test_packing_runs_beside_kernels() -> None:
    """Maps large enough that compressing one takes longer than issuing the rest of forward."""
    program = compressing(sized(64, 16))
    with trainer(program, backend=BACKEND) as made:
        for i in range(3):
            made.step(*draw_batch(program.network, i))
        timeline = made.timeline()
    threads, kernels = timeline.on("host"), timeline.on("compute")
    both = sum(max(0.0, min(a.end, b.end) - max(a.start, b.start)) for a in threads for b in kernels)
    total = timeline.busy("host")
    print(f"{timeline.machine}: {total * 1e3:.2f} ms of compressing and decompressing, {both * 1e3:.2f} beside kernels")
    assert 0 < both <= total
    assert both > 0.2 * min(total, timeline.busy("compute"))


def test_a_failing_piece_is_an_error_and_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: HostWork, work: Any) -> None:
        raise ValueError("no such map")

    program = compressing()
    with trainer(program, backend=BACKEND) as made, monkeypatch.context() as patched:
        patched.setattr(HostWork, "run", fail)
        with raises_naming(DeviceFailed, "host's"):
            made.step(*draw_batch(program.network))
    expected = trained(held(program), 2, backend=BACKEND)[1]
    assert differing(trained(program, 2, backend=BACKEND)[1], expected) == []  # the GPU is as good as before


def test_vdnnpp_is_measured_against_vdnn() -> None:
    found = vdnnpp_measured.measure(
        measured.Request("tiny-vgg:vdnnpp", sized(512, 4), "vdnnpp-all", machine("here"), "1GiB", BACKEND, 2)
    )
    assert found.compressed.pinned_bytes <= found.on_demand.pinned_bytes <= found.vdnn.pinned_bytes
    assert all(run.seconds > 0 for run in found.runs())
    for table in found.tables():
        print(table.text())
    assert np.isfinite(found.readings[found.compressed.setup]["speed-up"])  # type: ignore[arg-type]
