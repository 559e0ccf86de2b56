"""This computer: what its operating system says, the GPU as its driver describes it, the processes of a launcher."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernels.targets import gpu
from kernels.targets.cpu.threads import cores
from refimpl.machine import MACHINES, gpus, here
from refimpl.machine.devices import Cpu, Gpu, NoDevice, device_at_hand
from refimpl.machine.model import Source
from tests.messages import raises_naming

GIB = 1 << 30


def test_a_gpu_is_described_by_its_clocks_and_widths() -> None:
    h100 = SimpleNamespace(
        compute_capability_major=9, compute_capability_minor=0, multiprocessor_count=132,
        clock_rate=1_980_000, memory_clock_rate=2_619_000, global_memory_bus_width=5120,
    )  # fmt: skip
    made = here.from_properties("NVIDIA H100 80GB HBM3", 79 * GIB, h100)
    assert made.flops == pytest.approx(MACHINES["h100"].flops, rel=0.01)
    assert made.bandwidth == pytest.approx(MACHINES["h100"].bandwidth, rel=0.01)
    assert made.link == MACHINES["h100"].link and made.memory_bytes == 79 * GIB
    assert made.sources[0] == Source("system", "NVIDIA H100 80GB HBM3, as its driver describes it", gpus.SIZES)
    v100 = SimpleNamespace(
        compute_capability_major=7, compute_capability_minor=0, multiprocessor_count=80,
        clock_rate=1_530_000, memory_clock_rate=877_000, global_memory_bus_width=4096,
    )  # fmt: skip
    made = here.from_properties("Tesla V100", 16 * GIB, v100)
    assert (made.flops, made.bandwidth) == pytest.approx((15.7e12, 898e9), rel=0.01)
    v100.clock_rate = 0  # a driver that does not tell
    assert here.from_properties("Tesla V100", 16 * GIB, v100).flops == pytest.approx(15.4e12, rel=0.01)


def test_the_rough_cpu_grows_with_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.targets.cpu.threads.cores", lambda: 4)
    made = here.rough_cpu()
    assert (made.name, made.multiprocessors, made.launch_seconds) == ("here", 4, 2e-6)
    assert made.flops == pytest.approx(4 * 33.3e9) and made.bandwidth == pytest.approx(4 * 13e9)
    assert made.link == made.bandwidth / 2, "a byte copied is read and written"
    assert made.sources[0] == Source("system", "the CPU at hand, 4 cores", ("memory_bytes", "multiprocessors"))


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, ("Open MPI", 3, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, ("MPICH", 0, 2)),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, None),  # alone
        ({"PMI_RANK": "0"}, None),
        ({"PMI_RANK": "-1", "PMI_SIZE": "2"}, None),
        ({"PMI_RANK": "0", "PMI_SIZE": "9" * 5000}, None),
        ({"PMI_RANK": "1", "PMI_SIZE": "two"}, None),
    ],
)
def test_a_launcher_is_known_by_its_environment(
    environment: dict[str, str], found: tuple[str, int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("OMPI_", "PMI_"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert here.launched() == found


# -- this computer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [None, b"", b"model name\nMemAvailable: -1 kB\n", b"MemAvailable: \xff\xfe lots kB\n"])
def test_nonsense_from_the_operating_system_is_replaced_by_a_guess(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: bytes | None
) -> None:
    if told is not None:
        for name in ("cpuinfo", "meminfo"):
            (tmp_path / name).write_bytes(told)
    monkeypatch.setattr(here, "Path", lambda path: tmp_path / Path(path).name)
    assert here.available_bytes() == here.memory_bytes() > 0
    assert re.fullmatch(r".+, \d+ cores", here.processor())
    monkeypatch.setattr(os, "sysconf", lambda name: -1)
    assert here.memory_bytes() == here.UNTOLD_MEMORY


def test_the_operating_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "processor : 0\nmodel name\t: Some CPU @ 3 GHz \nMemAvailable:  2048 kB\n"
    monkeypatch.setattr(Path, "read_text", lambda self, **options: told)
    assert here.processor() == f"Some CPU @ 3 GHz, {cores()} cores"
    assert here.available_bytes() == 2048 * 1024
    assert here.process_bytes() is None


def test_the_machine_is_busy_where_half_of_its_cores_have_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.targets.cpu.threads.cores", lambda: 4)
    for load, busy in ((0.0, False), (1.9, False), (2.0, True), (9.0, True)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.5, 99.0), raising=False)
        assert here.load_average() == load and here.is_busy() == busy
    monkeypatch.delattr(os, "getloadavg")  # Windows
    assert here.load_average() == 0.0 and not here.is_busy()


def test_a_driver_without_a_device_or_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Driver:
        def __init__(self, status: int, devices: int) -> None:
            self.status, self.devices = status, devices

        def cuInit(self, flags: int) -> int:
            return self.status

        def cuDeviceGetCount(self, count: object) -> int:
            count._obj.value = self.devices  # type: ignore[attr-defined]
            return 0

    def found(driver: object) -> bool:
        def loaded(name: str) -> object:
            asked.append(name)
            if driver is None:
                raise OSError("no such library")
            return driver

        monkeypatch.setattr("ctypes.CDLL", loaded)
        return here.gpu_at_hand.__wrapped__()

    emulated = Driver(0, 1)
    emulated.emulated_register = print  # type: ignore[attr-defined]
    drivers = [None, object(), Driver(100, 1), Driver(0, 0), emulated, Driver(0, 1)]
    assert [found(driver) for driver in drivers] == [False, False, False, False, False, True]
    monkeypatch.setattr("sys.platform", "linux")
    found(None)
    monkeypatch.setattr("sys.platform", "win32")
    found(None)
    assert asked[-2:] == ["libcuda.so.1", "nvcuda.dll"]


# -- the device that is measured ---------------------------------------------------------------------------------------


def test_the_device_at_hand_is_the_cpu_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "why_not", lambda: "no CUDA driver")
    monkeypatch.setattr(here, "available_bytes", lambda: 10 * GIB)
    device = device_at_hand()
    assert isinstance(device, Cpu) and (device.kind, device.free_bytes) == ("cpu", 5 * GIB)
    assert device.name == here.processor() and device.machine == here.rough_cpu()
    with raises_naming(NoDevice, "no kernel can run on a GPU here", "no CUDA driver"):
        device_at_hand("gpu")
    assert Gpu.kind == "gpu" and isinstance(device_at_hand("cpu"), Cpu)
