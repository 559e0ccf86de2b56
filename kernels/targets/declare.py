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

A *plain* kernel is declared as in Numba's own documentation, with `@cuda.jit` and without types.  `of_plain` finds the
types of a launch from its arguments, as Numba does: an array keeps its axes (kind `Floats4`), and several whole numbers
may be a tuple (kind `ints2`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from kernels.checks.arguments import LARGEST, KernelError, dtype_of, flat, is_array, shaped
from kernels.targets.shim import cuda

Floats = Any  #: a float32 array; the kernel sees it flat
Ints = Any  #: an int32 array; the kernel sees it flat
Dim3 = tuple[int, int, int]

KINDS = {"Floats": np.float32, "Ints": np.int32, "int": int, "float": np.float32}
REGISTRY: dict[str, Kernel] = {}  #: every kernel of the package by name, in the order of its declaration


@dataclass(frozen=True)
class Kind:
    """A kind of argument, as the compilers need it."""

    base: str  #: "Floats", "Ints", "int", "float"; "ints": a tuple of whole numbers
    axes: int = 0  #: of an array; the numbers of a tuple

    @property
    def is_array(self) -> bool:
        return self.base in ("Floats", "Ints")

    @property
    def words(self) -> int:
        """Words that pass such an argument to a CPU kernel: a tuple's numbers, or an array's address and shape."""
        return self.axes + self.is_array or 1


@cache
def kind_of(name: str) -> Kind:
    """The kind of a name: "Floats" is an array seen flat, "Floats4" one with four axes, "ints2" a tuple of two."""
    found = re.fullmatch(r"(Floats|Ints|ints)([1-9]?)|int|float", name)
    if found is None:
        raise TypeError(f"{name} is no kind of argument")
    return Kind(found[1] or name, int(found[2] or 1) if found[1] else 0)


def kind_of_value(value: Any) -> str:
    """The kind of an argument of a plain kernel."""
    if is_array(value):
        return f"{'Floats' if dtype_of(value) == np.float32 else 'Ints'}{len(value.shape)}"
    if isinstance(value, tuple):
        return f"ints{len(value)}"
    return "int" if isinstance(value, (int, np.integer)) else "float"


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
    kinds: tuple[str, ...] | None = None  #: of a plain kernel's arguments; None: its annotations name them

    @cached_property
    def parameters(self) -> dict[str, str]:
        """Parameter name → kind (see `kind_of`)."""
        if self.kinds is not None:
            return dict(zip(inspect.signature(self.function).parameters, self.kinds, strict=True))
        kinds = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            note = parameter.annotation
            kinds[name] = note if isinstance(note, str) else "Floats" if note is Any else note.__name__
            if kinds[name] not in KINDS:
                raise TypeError(f"kernel {self.name}: annotate {name} as Floats, Ints, int or float")
        return kinds

    @property
    def is_plain(self) -> bool:
        return self.kinds is not None

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
            known = kind_of(kind)
            if known.is_array:
                found = dtype_of(value) if is_array(value) else type(value).__name__
                if not is_array(value) or found != np.dtype(KINDS[known.base]):
                    raise KernelError(
                        f"kernel {self.name}: {name} must be a {np.dtype(KINDS[known.base])} array, not {found}"
                    )
                view = flat(value) if known.base == kind else shaped(value, value.shape)
                if view.size > LARGEST:
                    raise KernelError(f"kernel {self.name}: {name} spans {view.size} elements, more than {LARGEST}")
                out.append(view)
            elif known.base == "ints":
                out.append(tuple(int(number) for number in value))
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


def of_plain(function: Any, args: Sequence[Any], block: int | Sequence[int]) -> Kernel:
    """The kernel that Numba's dispatcher `function` is for arguments of these types, in blocks of this shape."""
    return _of_plain(function.py_func, tuple(map(kind_of_value, args)), dim3(block))


@cache
def _of_plain(function: Callable[..., None], kinds: tuple[str, ...], block: Dim3) -> Kernel:
    return Kernel(function, function.__name__, block, {}, kinds)


def device(function: Callable[..., Any]) -> Any:
    """Declare a helper that kernels call; it is compiled into its callers on either device."""
    return cuda.jit(device=True)(function)
