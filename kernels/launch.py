"""Declaring kernels and launching them, on the CPU or on a GPU.

    @kernel(block=256)
    def add(x: Floats, y: Floats, n: int) -> None:
        i = cuda.grid(1)
        if i < n:
            y[i] += x[i]

    launch(add, ceil_div(n, 256), x, y, n, stream=stream)

A kernel is written once, in the plain part of Numba CUDA's vocabulary.  Its block shape and its argument types are
part of its declaration, so that every launch has the same types: `Floats` (float32 array, seen flat), `Ints` (int32
array, flat), `int` (int64) and `float` (float32).  Where the arrays are decides where it runs: NumPy arrays on the
CPU (`kernels.cpu` compiles the kernel's own source), device arrays on the GPU (`kernels.gpu`).

`bind(function, *args)` runs one of the families' functions without launching anything and returns the launches it
would have made, arguments bound: replaying them costs next to nothing on the host.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernels.arguments import LARGEST, KernelError, dtype_of, flat, is_array, place
from kernels.shim import cuda

Floats = Any  #: a float32 array; the kernel sees it flat
Ints = Any  #: an int32 array; the kernel sees it flat
Dim3 = tuple[int, int, int]

KINDS = {"Floats": np.float32, "Ints": np.int32, "int": int, "float": np.float32}
REGISTRY: dict[str, Kernel] = {}  #: every kernel of the package by name, in the order of its declaration


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def dim3(value: int | Sequence[int]) -> Dim3:
    """One to three numbers as x, y and z."""
    given = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not 1 <= len(given) <= 3:
        raise KernelError(f"{given} is not a grid or a block: give one to three numbers")
    x, y, z = (*given, 1, 1)[:3]
    return int(x), int(y), int(z)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel's source with what every launch of it has in common."""

    function: Callable[..., None]
    name: str
    block: Dim3
    options: dict[str, Any]

    @cached_property
    def parameters(self) -> dict[str, str]:
        """Parameter name → kind, a key of KINDS."""
        kinds = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            note = parameter.annotation
            kinds[name] = note if isinstance(note, str) else "Floats" if note is Any else note.__name__
            if kinds[name] not in KINDS:
                raise TypeError(f"kernel {self.name}: annotate {name} as Floats, Ints, int or float")
        return kinds

    @property
    def family(self) -> str:
        """The module the kernel is written in, below `kernels`."""
        return self.function.__module__.removeprefix("kernels.")

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @cached_property
    def gpu(self) -> Any:
        """Numba's dispatcher for the GPU; nothing is compiled yet."""
        return cuda.jit(**self.options)(self.function)

    @cached_property
    def cpu(self) -> Callable[..., None]:
        """The kernel compiled for the CPU: called with the grid, then the arguments."""
        from kernels import cpu

        return cpu.compile_kernel(self)

    def values(self, args: Sequence[Any]) -> list[Any]:
        """The arguments as the kernel takes them: arrays flat, numbers of the declared type."""
        if len(args) != len(self.parameters):
            raise KernelError(f"kernel {self.name} takes {len(self.parameters)} arguments, got {len(args)}")
        out: list[Any] = []
        for (name, kind), value in zip(self.parameters.items(), args, strict=True):
            if kind in ("Floats", "Ints"):
                found = dtype_of(value) if is_array(value) else type(value).__name__
                if not is_array(value) or found != np.dtype(KINDS[kind]):
                    raise KernelError(
                        f"kernel {self.name}: {name} must be a {np.dtype(KINDS[kind])} array, not {found}"
                    )
                view = flat(value)
                if view.shape[0] > LARGEST:
                    raise KernelError(f"kernel {self.name}: {name} spans {view.shape[0]} elements, more than {LARGEST}")
                out.append(view)
            else:
                out.append(int(value) if kind == "int" else np.float32(value))
        return out


def kernel(
    block: int | Sequence[int], name: str | None = None, **options: Any
) -> Callable[[Callable[..., None]], Kernel]:
    """Declare a kernel that is always launched with this block.  `options` go to Numba (`launch_bounds=(256, 2)`)."""

    def declare(function: Callable[..., None]) -> Kernel:
        made = Kernel(function, name or function.__name__, dim3(block), options)
        if made.name in REGISTRY and REGISTRY[made.name].function.__module__ != function.__module__:
            raise ValueError(f"there is a kernel {made.name} already, in {REGISTRY[made.name].function.__module__}")
        REGISTRY[made.name] = made
        return made

    return declare


def device(function: Callable[..., Any]) -> Any:
    """Declare a helper that kernels call; it is compiled into its callers on either device."""
    return cuda.jit(device=True)(function)


@dataclass(frozen=True, eq=False)
class Launch:
    """One launch with its arguments bound; the arrays are kept alive."""

    kernel: Kernel
    grid: Dim3
    values: tuple[Any, ...]
    run: Callable[[Any], None]  #: run(stream): do it (again)


_recording: ContextVar[list[Launch] | None] = ContextVar("recording", default=None)


def launch(kernel: Kernel, grid: int | Sequence[int], *args: Any, stream: Any = None) -> None:
    """Run `kernel` over `grid` blocks, where its arrays are; inside `recording`, note it down instead."""
    shape, values = dim3(grid), kernel.values(args)
    if min(shape) < 1 or shape[0] > LARGEST or max(shape[1:]) > 65535:
        raise KernelError(f"kernel {kernel.name}: a grid of {shape} blocks cannot be launched")
    places = {place(value) for value in values if is_array(value)}
    if len(places) > 1:
        raise KernelError(f"kernel {kernel.name}: some arrays are on the CPU and some on the GPU")
    noted = _recording.get()
    if places == {"gpu"}:
        from kernels import gpu

        if noted is None:
            gpu.launch(kernel, shape, values, stream)
        else:
            noted.append(Launch(kernel, shape, tuple(values), gpu.bind(kernel, shape, values)))
    elif noted is None:
        kernel.cpu(shape, *values)
    else:
        compiled = kernel.cpu
        noted.append(Launch(kernel, shape, tuple(values), lambda _stream: compiled(shape, *values)))


@contextmanager
def recording() -> Iterator[list[Launch]]:
    """Inside, `launch` does nothing but append to the list that is given out."""
    noted: list[Launch] = []
    token = _recording.set(noted)
    try:
        yield noted
    finally:
        _recording.reset(token)


def bind(function: Callable[..., Any], *args: Any, **options: Any) -> list[Launch]:
    """The launches that `function(*args, **options)` would make, in order, ready to be run any number of times."""
    with recording() as noted:
        function(*args, **options)
    return noted
