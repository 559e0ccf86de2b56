"""Launching kernels, on the CPU or on a GPU.

    launch(add, ceil_div(n, 256), x, y, n, stream=stream)

Where the arrays are decides where a kernel runs: NumPy arrays on the CPU (`kernels.targets.cpu` compiles the kernel's
own source), device arrays on the GPU (`kernels.targets.gpu`).  What a kernel is, `kernels.targets.declare` says; its
names are given on here, so that a family of kernels needs one import.

`bind(function, *args)` runs one of the families' functions without launching anything and returns the launches it
would have made, arguments bound: replaying them costs next to nothing on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kernels.checks.arguments import LARGEST, KernelError, is_array, place
from kernels.targets import cpu
from kernels.targets.declare import REGISTRY, Dim3, Floats, Ints, Kernel, ceil_div, device, dim3, kernel, of_plain

__all__ = [
    "REGISTRY", "Dim3", "Floats", "Ints", "Kernel", "KernelLaunch", "bind", "ceil_div", "device", "dim3", "kernel",
    "launch", "of_plain", "recording",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class KernelLaunch:
    """One launch with its arguments bound; the arrays are kept alive."""

    kernel: Kernel
    grid: Dim3
    values: tuple[Any, ...]
    run: Callable[[Any], None]  #: run(stream): do it (again)


_recording: ContextVar[list[KernelLaunch] | None] = ContextVar("recording", default=None)


def launch(kernel: Kernel, grid: int | Sequence[int], *args: Any, stream: Any = None, columns: int = 0) -> None:
    """Run `kernel` over `grid` blocks, where its arrays are; inside `recording`, note it down instead.

    Each thread of a CPU runs a share of the blocks, the first half of two.  Where the images are not the slowest
    dimension of the grid, `columns` gives every thread the same images here as in other launches: the blocks in order
    are a matrix with this many columns, and a share has some of them.  It changes nothing on a GPU.
    """
    shape, values = dim3(grid), kernel.values(args)
    if min(shape) < 1 or shape[0] > LARGEST or max(shape[1:]) > 65535:
        raise KernelError(f"kernel {kernel.name}: a grid of {shape} blocks cannot be launched")
    places = {place(value) for value in values if is_array(value)}
    if len(places) > 1:
        raise KernelError(f"kernel {kernel.name}: some arrays are on the CPU and some on the GPU")
    noted = _recording.get()
    if places == {"gpu"}:
        from kernels.targets import gpu

        if noted is None:
            gpu.launch(kernel, shape, values, stream)
        else:
            noted.append(KernelLaunch(kernel, shape, tuple(values), gpu.bind(kernel, shape, values)))
    elif noted is None:
        cpu.run(kernel, shape, values, columns)
    else:
        noted.append(KernelLaunch(kernel, shape, tuple(values), cpu.bind(kernel, shape, values, columns)))


@contextmanager
def recording() -> Iterator[list[KernelLaunch]]:
    """Inside, `launch` does nothing but append to the list that is given out."""
    noted: list[KernelLaunch] = []
    token = _recording.set(noted)
    try:
        yield noted
    finally:
        _recording.reset(token)


def bind(function: Callable[..., Any], *args: Any, **options: Any) -> list[KernelLaunch]:
    """The launches that `function(*args, **options)` would make, in order, ready to be run any number of times."""
    with recording() as noted:
        function(*args, **options)
    return noted
