"""What the CUDA back end asks of the driver, on a stand-in for it: which calls, on which streams, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl.backend import DeviceFailed, RunError, cuda, cuda_host, cuda_network, driver_calls, peer
from refimpl.backend.alone import Communicator
from refimpl.backend.device import Sizes
from refimpl.machine import PEER
from refimpl.names.networks import build
from refimpl.planner import Launch
from tests.messages import lacks, raises_naming
from tests.refimpl.backend import stand_in_driver
from tests.refimpl.backend.stand_in_driver import NO_MEMORY, StandInDriver, StandInStream

SIZES = Sizes(arena=4096, pinned=1001, store=0, streams=2)


class NotedLaunches:
    """In place of bound launches: each is noted."""

    def __init__(self, program: Any, view: Any, settings: Any, rung: str) -> None:
        self.notes: list[tuple[Any, ...]] = []
        self.launches = {
            position: [SimpleNamespace(run=lambda stream, at=position: stream.notes.append((at, stream.handle)))]
            for position, instruction in enumerate(program.instructions)
            if isinstance(instruction, Launch)
        }

    def set(self, settings: Any) -> list[int]:
        return [min(self.launches)]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> StandInDriver:
    """The driver of two GPUs, of which the first is in use."""
    made = StandInDriver()
    for module in (cuda, cuda_host, cuda_network, driver_calls, peer):
        monkeypatch.setattr(module, "driver", made)
    streams: list[StandInStream] = []

    def stream() -> StandInStream:
        streams.append(StandInStream(len(streams) + 100, made.calls))
        return streams[-1]

    events = iter(range(1000, 9000))
    in_use = SimpleNamespace(create_event=lambda options: SimpleNamespace(handle=next(events)))
    monkeypatch.setattr(cuda, "CoreDevice", lambda: in_use)
    monkeypatch.setattr(cuda, "cuda", stand_in_driver.numba_cuda())
    monkeypatch.setattr(cuda, "BoundProgram", NotedLaunches)
    gpu = SimpleNamespace(why_not=lambda: None, stream=stream, device_name=lambda: "a GPU")
    gpu.flat = lambda array: SimpleNamespace(pointer=array.ctypes.data)
    monkeypatch.setattr(cuda, "gpu", gpu)
    return made


# -- the second GPU's memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "own", "other"), [(2, 0, 1), (4, 2, 0)])
def test_the_peer_tier_is_another_gpus_memory(
    gpus: int, own: int, other: int, driver: StandInDriver, reachable: int = 1
) -> None:
    driver.__init__(gpus, own)  # type: ignore[misc]
    driver.reachable = reachable
    here = np.arange(16, dtype=np.uint8)
    memory = peer.PeerMemory(64)
    assert driver.named("cuMemAlloc") == [("cuMemAlloc", 64, f"context {other}")]
    assert driver.current == [f"context {own}"]  # the GPU in use stays so
    assert driver.named("cuCtxEnablePeerAccess") == [("cuCtxEnablePeerAccess", f"context {other}", 0)] * reachable
    memory.copying(24, here.ctypes.data, 16, out=True)(7)
    ((_, there),) = driver.memory.items()
    np.testing.assert_array_equal(there, np.concatenate([np.zeros(24), here, np.zeros(24)]))
    here[:] = 0
    memory.copying(26, here.ctypes.data + 3, 4, out=False)(8)
    assert here.tolist() == [0, 0, 0, 2, 3, 4, 5, *[0] * 9]
    contexts = [f"context {other}", f"context {own}"]
    assert driver.named("cuMemcpyPeerAsync") == [
        ("cuMemcpyPeerAsync", *contexts, 16, 7), ("cuMemcpyPeerAsync", *contexts[::-1], 4, 8),
    ]  # fmt: skip
    memory.close()
    assert not driver.memory and driver.current == [f"context {own}"]
    assert driver.calls[-1] == ("cuDevicePrimaryCtxRelease", other)
    assert driver.named("cuMemFree")[0][2] == f"context {other}"


def test_one_gpu_has_no_peer(driver: StandInDriver) -> None:
    driver.gpus = 1
    with raises_naming(DeviceFailed, "peer", "--tiers"):
        peer.PeerMemory(64)


# -- the device --------------------------------------------------------------------------------------------------------


def test_copies_reach_the_peer_tier_and_come_back(driver: StandInDriver) -> None:
    device = cuda.CudaDevice(replace(SIZES, tiers={PEER: 512}))
    values = np.arange(5, dtype=np.float32)
    device.write(64, values)
    device.copy(True, 64, 32, 20, PEER)
    device.write(64, values * 0)
    assert not device.read(64, (5,), np.float32).any()
    device.copy(False, 68, 36, 12, PEER)
    assert device.read(64, (5,), np.float32).tolist() == [0, 1, 2, 3, 0]
    assert not device.pinned.any() and len(driver.named("cuMemcpyPeerAsync")) == 2
    device.close()
    assert not driver.memory and device.pinned.nbytes == 0


@pytest.mark.parametrize("part", ["tier", "peer"])
def test_a_device_that_cannot_be_made_keeps_nothing(part: str, driver: StandInDriver) -> None:
    tiers = {PEER: 512}
    if part == "tier":
        error, words = RunError, ("remote", "--tiers")
        tiers["remote"] = 4
    else:
        error, words = DeviceFailed, ("peer", "CUDA_ERROR_OUT_OF_MEMORY")
        driver.refused["cuMemAlloc"] = NO_MEMORY
    with raises_naming(error, *words):
        cuda.CudaDevice(replace(SIZES, tiers=tiers))
    assert not driver.memory
    assert len(cuda.cuda.cleared) == 1  # type: ignore[attr-defined]


# -- collective calls --------------------------------------------------------------------------------------------------


class Doubles(Communicator):
    """The mean over all ranks is twice the gradient."""

    size = 2

    def mean(self, gradients: Any) -> Any:
        (numbers,) = gradients
        return lambda: np.multiply(numbers, 2, out=numbers)

    def _exchange(self, word: str) -> list[str]:
        return [word, word]


def test_a_failure_in_the_network_lets_the_streams_go_on(driver: StandInDriver) -> None:
    program = refimpl.plan(build("lenet", 2).data_parallel(2, 100_000), "baseline", "h100")
    device = cuda.CudaDevice(Sizes.of([program]))
    device.communicator = Doubles()
    replay: Any = device.replay(program, {})
    driver.refused["cuEventSynchronize"] = NO_MEMORY
    replay.issue({})
    with pytest.raises(DeviceFailed) as caught:
        replay.finish()
    assert not lacks(str(caught.value), "CUDA_ERROR_OUT_OF_MEMORY")
    assert replay._network._counter[0] == cuda_host.ALL_REACHED
    device.close()
