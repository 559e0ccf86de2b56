"""The two devices that the kernels run on, as the bench and the demo need them: arrays, times, names."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kernels import gpu
from kernels.shim import cuda

Run = Callable[[], Any]

#: Seconds before a run on the CPU is timed: BLAS and OpenMP threads go on spinning for a while after their work is
#: done, and would take the cores from whoever runs next.
PAUSE = 0.03


class NoDevice(RuntimeError):
    """There is no such device here; the message says what was looked for."""


class Device(Protocol):
    """Where the bench runs: makes arrays, waits, and takes times."""

    kind: str

    @property
    def name(self) -> str: ...

    @property
    def workspace_limit(self) -> int:
        """Bytes of workspace that an algorithm may be given."""

    def array(self, values: np.ndarray) -> Any: ...

    def empty(self, size: int) -> Any:
        """So many float32, whatever they are."""

    def host(self, array: Any) -> np.ndarray:
        """The array's values now, as NumPy sees them; on the CPU the array itself."""

    def copy_in(self, values: np.ndarray, array: Any) -> None: ...

    def tensor(self, torch: Any, array: Any) -> Any:
        """The same memory as PyTorch sees it."""

    def seconds(self, run: Run, times: int) -> float:
        """Seconds of one run, averaged over so many in a row."""


class Cpu:
    kind = "cpu"
    workspace_limit = 1 << 30

    @cached_property
    def name(self) -> str:
        model = platform.processor() or platform.machine()
        if Path("/proc/cpuinfo").exists():
            found = re.search(
                r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE
            )
            model = found.group(1).strip() if found else model
        return f"{model}, {cores()} cores"

    def array(self, values: np.ndarray) -> np.ndarray:
        return values

    def empty(self, size: int) -> np.ndarray:
        return np.empty(size, np.float32)

    def host(self, array: np.ndarray) -> np.ndarray:
        return array

    def copy_in(self, values: np.ndarray, array: np.ndarray) -> None:
        np.copyto(array, values)

    def tensor(self, torch: Any, array: np.ndarray) -> Any:
        return torch.from_numpy(array)

    def seconds(self, run: Run, times: int) -> float:
        time.sleep(PAUSE)
        if times > 1:
            run()  # our own threads are awake again
        start = time.perf_counter()
        for _ in range(times):
            run()
        return (time.perf_counter() - start) / times


class Gpu:
    """The current GPU; times are taken between two events on the default stream, where PyTorch launches too."""

    kind = "gpu"

    def __init__(self) -> None:
        why_not = gpu.why_not()
        if why_not is not None:
            raise NoDevice(f"no kernel can run on a GPU here: {why_not}")

    @cached_property
    def name(self) -> str:
        return gpu.device_name()

    @property
    def workspace_limit(self) -> int:
        context = cuda.current_context()
        context.deallocations.clear()  # what is no longer used is free from now on, not some time later
        return int(context.get_memory_info().free) // 3

    def array(self, values: np.ndarray) -> Any:
        return gpu.to_device(values)

    def empty(self, size: int) -> Any:
        return gpu.empty(size)

    def host(self, array: Any) -> np.ndarray:
        return gpu.to_host(array)

    def copy_in(self, values: np.ndarray, array: Any) -> None:
        array.copy_to_device(values)

    def tensor(self, torch: Any, array: Any) -> Any:
        return torch.as_tensor(array, device="cuda")

    def seconds(self, run: Run, times: int) -> float:
        start, end = gpu.Event(timing=True), gpu.Event(timing=True)
        run()
        start.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        return start.seconds_until(end) / times


def device_of(kind: str | None) -> Device:
    """The device of this kind; without one, the GPU if there is one."""
    if kind == "gpu":
        return Gpu()
    if kind is None:
        try:
            return Gpu()
        except NoDevice:
            pass
    return Cpu()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_avx2() -> bool:
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("avx2", False))
