"""The GPU or the CPU at hand, as measuring needs it: memory, arrays in it, times, copies to pinned memory."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from refimpl.machine.here import cores, here
from refimpl.machine.model import Machine

Run = Callable[[], None]
Direction = Literal["out", "in"]


class Device(Protocol):
    """Where calls are timed."""

    kind: Literal["cpu", "gpu"]
    name: str
    machine: Machine  #: a model of the device
    free_bytes: int  #: that an arena may take

    def arena(self, elements: int) -> Any:
        """Float32 memory; `[a:b]` of it is a part."""

    def shaped(self, part: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """A part of the arena as an array."""

    def seconds(self, run: Run, times: int) -> float:
        """Seconds of one run, averaged over so many in a row."""

    def copy(self, direction: Direction, elements: int) -> Run:
        """A copy of so many float32 between device and pinned memory."""


class Cpu:
    """NumPy arrays; the "device" and its host are one memory."""

    kind: Literal["cpu", "gpu"] = "cpu"

    def __init__(self, machine: Machine) -> None:
        self.name, self.machine = processor(), machine
        self.free_bytes = available_bytes(machine.memory_bytes) // 2

    def arena(self, elements: int) -> Any:
        return np.empty(elements, np.float32)

    def shaped(self, part: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return part.view(dtype).reshape(shape)

    def seconds(self, run: Run, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            run()
        return (time.perf_counter() - start) / times

    def copy(self, direction: Direction, elements: int) -> Run:
        source, target = np.zeros(elements, np.float32), np.zeros(elements, np.float32)
        return lambda: np.copyto(target, source)


class Gpu:
    """The current GPU; times are taken between two events on the default stream, where everything here runs."""

    kind: Literal["cpu", "gpu"] = "gpu"

    def __init__(self, machine: Machine) -> None:
        from kernels import gpu
        from kernels.shim import cuda

        self.name, self.machine = gpu.device_name(), machine
        self.free_bytes = int(0.9 * cuda.current_context().get_memory_info().free)

    def arena(self, elements: int) -> Any:
        from kernels import gpu

        return gpu.empty(elements)

    def shaped(self, part: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return part.view(np.dtype(dtype)).reshape(shape)

    def seconds(self, run: Run, times: int) -> float:
        from kernels import gpu

        start, end = gpu.Event(timing=True), gpu.Event(timing=True)
        start.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        return start.seconds_until(end) / times

    def copy(self, direction: Direction, elements: int) -> Run:
        from kernels.shim import cuda

        pinned, device = cuda.pinned_array(elements, np.float32), cuda.device_array(elements, np.float32)
        pinned[:] = 0
        stream = cuda.default_stream()
        if direction == "in":
            return lambda: device.copy_to_device(pinned, stream=stream)
        return lambda: device.copy_to_host(pinned, stream=stream)


def device_at_hand() -> Device:
    """The GPU, or the CPU where there is none."""
    from kernels import gpu

    machine = here()
    return Cpu(machine) if gpu.why_not() is not None else Gpu(machine)


def processor() -> str:
    """What the CPU calls itself, and how many of its cores we may use."""
    model, told = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if told.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", told.read_text(encoding="utf-8"), re.MULTILINE)
        model = found.group(1).strip() if found else model
    return f"{model}, {cores()} cores"


def available_bytes(otherwise: int) -> int:
    """Main memory that nobody uses just now, where the system tells."""
    told = Path("/proc/meminfo")
    found = re.search(r"^MemAvailable:\s*(\d+) kB", told.read_text(encoding="utf-8"), re.M) if told.exists() else None
    return 1024 * int(found.group(1)) if found else otherwise
