"""The GPU or the CPU at hand, for measuring: memory, arrays in it, times, copies to pinned memory."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from kernels.targets import gpu
from kernels.targets.shim import cuda
from refimpl.machine import here
from refimpl.machine.timing import Run, by
from refimpl.text import MachineError

Direction = Literal["out", "in"]


class NoDevice(MachineError):
    """There is no such device here; the message says what was looked for."""


class Cpu:
    """NumPy arrays; the "device" and its host are one memory."""

    kind: Literal["cpu", "gpu"] = "cpu"

    def __init__(self) -> None:
        self.name, self.machine = here.processor(), here.rough_cpu()
        self.free_bytes = here.available_bytes() // 2  #: memory that arrays may take

    def empty(self, elements: int) -> Any:
        """Float32 memory with no defined content; `[a:b]` of it is a part."""
        return np.empty(elements, np.float32)

    def array(self, values: np.ndarray) -> Any:
        """An array with these values."""
        return values

    def shaped(self, part: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """A part of `empty` memory as an array."""
        return part.view(dtype).reshape(shape)

    def tensor(self, torch: Any, array: Any) -> Any:
        """The same memory as PyTorch sees it."""
        return torch.from_numpy(array)

    def seconds(self, run: Run, times: int) -> float:
        """Seconds of one run, averaged over this many in a row."""
        return by()(run, times)

    def copy(self, direction: Direction, elements: int) -> Run:
        """A copy of this many float32 between device and pinned memory."""
        source, target = np.zeros(elements, np.float32), np.zeros(elements, np.float32)
        return lambda: np.copyto(target, source)


class Gpu:
    """The current GPU, with the methods of `Cpu`.

    Times are taken between two events on the default stream, where PyTorch launches too.
    """

    kind: Literal["cpu", "gpu"] = "gpu"

    def __init__(self) -> None:
        why_not = gpu.why_not()
        if why_not is not None:
            raise NoDevice(f"no kernel can run on a GPU here: {why_not}")
        self.name, self.machine = gpu.device_name(), here.current_gpu()

    @property
    def free_bytes(self) -> int:
        context = cuda.current_context()
        context.deallocations.clear()  # what is no longer used is free from now on, not some time later
        return int(0.9 * context.get_memory_info().free)

    def empty(self, elements: int) -> Any:
        return gpu.empty(elements)

    def array(self, values: np.ndarray) -> Any:
        return gpu.to_device(values)

    def shaped(self, part: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return part.view(np.dtype(dtype)).reshape(shape)

    def tensor(self, torch: Any, array: Any) -> Any:
        return torch.as_tensor(array, device="cuda")

    def seconds(self, run: Run, times: int) -> float:
        start, end = gpu.CudaEvent(timing=True), gpu.CudaEvent(timing=True)
        start.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        return start.seconds_until(end) / times

    def copy(self, direction: Direction, elements: int) -> Run:
        pinned, device = cuda.pinned_array(elements, np.float32), cuda.device_array(elements, np.float32)
        pinned[:] = 0
        stream = cuda.default_stream()
        if direction == "in":
            return lambda: device.copy_to_device(pinned, stream=stream)
        return lambda: device.copy_to_host(pinned, stream=stream)


Device = Cpu | Gpu


def device_at_hand(kind: str | None = None) -> Device:
    """The device of this kind, "cpu" or "gpu"; None: the GPU if there is one."""
    if kind == "cpu" or (kind is None and gpu.why_not() is not None):
        return Cpu()
    return Gpu()
