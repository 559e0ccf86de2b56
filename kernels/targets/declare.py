"""Declaring kernels: a kernel's source with its block and the types of its arguments.

    @kernel(block=256)
    def add(x: Floats, y: Floats, n: int) -> None:
        i = cuda.grid(1)
        if i < n:
            y[i] += x[i]

A kernel is written once, in the plain part of Numba CUDA's vocabulary.  Its block shape and its argument types are
part of its declaration, so that every launch has the same types: `Floats` (float32 array, seen flat), `Ints` (int32
array, flat), `int` (int64) and `float` (float32).  Nothing is compiled here: `kernels.targets.launch` has it done, by
`kernels.targets.cpu` or `kernels.targets.gpu`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernels.checks.arguments import LARGEST, KernelError, dtype_of, flat, is_array
from kernels.targets.shim import cuda

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
        return self.function.__module__.removeprefix("kernels.").removeprefix("fast.")

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @cached_property
    def gpu(self) -> Any:
        """Numba's dispatcher for the GPU; nothing is compiled yet."""
        return cuda.jit(**self.options)(self.function)

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
    block: int | Sequence[int], name: str | None = None, about: tuple[str, str] | None = None, **options: Any
) -> Callable[[Callable[..., None]], Kernel]:
    """Declare a kernel that is always launched with this block.

    Args:
        block: its threads.
        name: None: the function's.
        about: the module that it belongs to, and its docstring, if it is made for another module than it is written in.
        options: for Numba (`launch_bounds=(256, 2)`).
    """

    def declare(function: Callable[..., None]) -> Kernel:
        if about is not None:
            function.__module__, function.__doc__ = about
        made = Kernel(function, name or function.__name__, dim3(block), options)
        if made.name in REGISTRY and REGISTRY[made.name].function.__module__ != function.__module__:
            raise ValueError(f"there is a kernel {made.name} already, in {REGISTRY[made.name].function.__module__}")
        REGISTRY[made.name] = made
        return made

    return declare


def device(function: Callable[..., Any]) -> Any:
    """Declare a helper that kernels call; it is compiled into its callers on either device."""
    return cuda.jit(device=True)(function)
