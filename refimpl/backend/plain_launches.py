"""Calls as launches of plain kernels, and the kernels' source: for a script that needs Numba and NumPy alone.

The launches of a call are found by recording them, on arrays that nothing touches.
"""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from kernels.rungs import function_of
from kernels.targets.launch import KernelLaunch, bind
from refimpl.backend.run_errors import RunError
from refimpl.network import Call, Setting, Tensor

#: Setting → two values, by which an argument of a launch is known to be this setting; none of them is likely elsewhere.
MARKS: dict[str, tuple[float, float]] = {"iteration": (987_654_321, 876_543_219)}
MARKS |= {
    name: (0.71 + number / 97, 0.73 + number / 97)
    for number, name in enumerate(("rate", "momentum", "decay", "beta1", "beta2", "epsilon"))
}


class Shaped(NamedTuple):
    """A tensor as a kernel takes it; shape None: its own."""

    tensor: Tensor
    shape: tuple[int, ...] | None


class PlainLaunch(NamedTuple):
    """A launch as it is written: `kernel[grid, block, stream](*arguments)`, of numbers their text."""

    kernel: str
    grid: str
    block: str
    arguments: tuple[Shaped | str, ...]


class PlainLaunches:
    """The launches of a program's calls, and the source of their kernels."""

    def __init__(self, calls: Iterable[Call], seed: int) -> None:
        self.sources = Sources()
        self.of: dict[Call, list[PlainLaunch]] = {call: list(self._launches(call, seed)) for call in calls}

    def _launches(self, call: Call, seed: int) -> Iterator[PlainLaunch]:
        settings = [x.name for x in call.arguments.values() if isinstance(x, Setting) and x.name != "seed"]
        arrays = {x: np.empty(x.shape, x.dtype) for x in call.operands}
        at = {array.ctypes.data: x for x, array in arrays.items()}
        first, second = (
            recorded(call, arrays, {"seed": seed} | {name: MARKS[name][turn] for name in settings}) for turn in (0, 1)
        )
        for launch, again in zip(first, second, strict=True):
            if not launch.kernel.is_plain:
                raise RunError(f"{call.function} has no plain kernel; leave out --kernels plain")
            self.sources.add(launch.kernel.function)
            arguments: list[Shaped | str] = []
            for value, other in zip(launch.values, again.values, strict=True):
                if isinstance(value, np.ndarray):
                    x = at[value.ctypes.data]
                    arguments.append(Shaped(x, None if value.shape == x.shape else value.shape))
                else:
                    arguments.append(number_text(value, other, settings, call))
            yield PlainLaunch(launch.kernel.name, dim3_text(launch.grid), dim3_text(launch.kernel.block), (*arguments,))


def recorded(call: Call, arrays: Mapping[Tensor, Any], settings: Mapping[str, float]) -> list[KernelLaunch]:
    """The launches of a call on these arrays, with these settings."""

    def given(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(given, value))
        if isinstance(value, Setting):
            return settings[value.name]
        return arrays[value] if isinstance(value, Tensor) else value

    return bind(function_of(call.function, "plain"), **{name: given(x) for name, x in call.arguments.items()})


def number_text(value: Any, other: Any, settings: Iterable[str], call: Call) -> str:
    """A number of a launch, or a tuple of some; `other`: the same where the settings are the second of their marks."""
    if isinstance(value, tuple):
        texts = [number_text(*pair, settings, call) for pair in zip(value, other, strict=True)]
        return f"({', '.join(texts)}{',' * (len(texts) == 1)})"
    if value == other:
        return f"np.float32({float(value)!r})" if isinstance(value, np.float32) else repr(value)
    for name in settings:
        if [type(value)(mark) for mark in MARKS[name]] == [value, other]:
            return name if isinstance(value, int) else f'np.float32(LEARNING["{name}"])'
    raise RunError(f"{call.function} computes with {', '.join(settings)} on the host; leave out --kernels plain")


def dim3_text(given: tuple[int, int, int]) -> str:
    """A grid or a block, with as few numbers as it needs."""
    x, y, z = given
    return repr(given if z > 1 else (x, y) if y > 1 else x)


class Sources:
    """The source of kernels, and of the functions and constants that they use, by name."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}  #: each after those that it calls
        self.constants: dict[str, str] = {}
        self.needs_math = False

    def add(self, function: Callable[..., Any]) -> None:
        """A function under `@cuda.jit`."""
        if function.__name__ in self.functions:
            return
        used = dict.fromkeys(i.argval for i in dis.get_instructions(function) if i.opname == "LOAD_GLOBAL")
        for name in used:
            if name not in function.__globals__:  # Python's own, such as range
                continue
            value = function.__globals__[name]
            if hasattr(value, "py_func"):
                self.add(value.py_func)
            elif isinstance(value, ModuleType):
                self.needs_math |= name == "math"
            else:
                line = constant_line(function, name)
                self.needs_math |= "math." in line
                if self.constants.setdefault(name, line) != line:
                    raise RunError(f"two plain kernels have constants {name}: {self.constants[name]} and {line}")
        self.functions[function.__name__] = inspect.getsource(function).rstrip()

    def text(self) -> str:
        """All of them."""
        constants = "\n".join(self.constants.values())
        return "\n\n\n".join(filter(None, (constants, *self.functions.values())))


def constant_line(function: Callable[..., Any], name: str) -> str:
    """The assignment of a constant that a function uses, alone: of `A, B = 1, 2` and B, `B = 2`."""
    module = inspect.getmodule(function)
    assert module is not None
    for node in ast.parse(inspect.getsource(module)).body:
        match node:
            case ast.Assign([ast.Name(id)], value) if id == name:
                return f"{name} = {ast.unparse(value)}"
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                for target, value in zip(targets, values, strict=True):
                    if isinstance(target, ast.Name) and target.id == name:
                        return f"{name} = {ast.unparse(value)}"
    raise RunError(f"{name}, of {function.__name__}, is not a constant of {module.__name__}")
