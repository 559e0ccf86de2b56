"""Step 1: a kernel's source, read once, with CUDA's vocabulary replaced by plain variables.

    cuda.threadIdx.x            threadIdx_x              a variable
    cuda.blockDim.x             256                      the block shape belongs to the kernel
    cuda.grid(1)                blockIdx_x * 256 + threadIdx_x
    s = cuda.shared.array(…)    (set aside)              one array a block
    a = cuda.local.array(…)     (set aside)              one array a thread
    cuda.syncthreads()          yield LINE               a mark, cut out by `barriers`

What the source refers to outside itself (constants, helpers, modules) is collected too, so that the result can be
written down as a module of its own.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernels.targets.declare import Dim3, Kernel

AXES = "xyz"
INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")


class UnsupportedKernel(TypeError):
    """A kernel uses something that the CPU compiler does not translate; the message says where and what to do."""


@dataclass(frozen=True)
class Array:
    """A shared or local array of a kernel: its shape and NumPy type are known before it runs."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Site:
    """A place in the source that checked mode can complain about."""

    line: int
    text: str
    axis: int | None = None


@dataclass
class Lowered:
    """A function's body in plain variables."""

    name: str
    file: str
    parameters: list[str]
    body: list[ast.stmt]
    shared: dict[str, Array] = field(default_factory=dict)
    local: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)  #: name → source of its value
    helpers: dict[str, Lowered] = field(default_factory=dict)  #: device functions it calls, by the name it uses
    sites: list[Site] = field(default_factory=list)  #: filled in checked mode

    @property
    def has_barriers(self) -> bool:
        return any(has_barrier(statement) for statement in self.body)


def shadow_of(name: str) -> str:
    """Checked mode's name for what it remembers of a shared array."""
    return f"_{name}_shadow"


def has_barrier(node: ast.AST) -> bool:
    return any(isinstance(child, ast.Yield) for child in ast.walk(node))


def stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {n.id for s in nodes for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def dotted(node: ast.AST) -> str:
    """`cuda.shared.array` for the expression of that name, '' for anything else."""
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return f"{left}.{node.attr}" if left else ""
    return node.id if isinstance(node, ast.Name) else ""


def parse(source: str) -> list[ast.stmt]:
    return ast.parse(textwrap.dedent(source)).body


def expression(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body


def lower_kernel(kernel: Kernel) -> Lowered:
    """The kernel.  With barriers, a parameter that it assigns to becomes a variable, which begins as `_given_…`."""
    lowered = _lower(kernel.function, kernel.block)
    if lowered.has_barriers:
        own = stored(lowered.body) & {*lowered.parameters}
        lowered.body[:0] = [s for name in sorted(own) for s in parse(f"{name} = _given_{name}")]
        lowered.parameters = [f"_given_{name}" if name in own else name for name in lowered.parameters]
    return lowered


def source_tree(function: Callable[..., Any]) -> ast.FunctionDef:
    """The function's syntax tree, with the line numbers of its file."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError as error:
        raise UnsupportedKernel(
            f"the source of {function.__name__} cannot be found: write it in a file or a notebook"
        ) from error
    tree = ast.parse(source).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise UnsupportedKernel(f"{function.__name__} is not a plain function")
    return ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)


def outside_names(function: Callable[..., Any]) -> dict[str, Any]:
    """The values of the function's global and closure names."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return {**function.__globals__, **{name: cell.cell_contents for name, cell in cells.items()}}


def _lower(function: Callable[..., Any], block: Dim3) -> Lowered:
    tree, outside = source_tree(function), outside_names(function)
    lowered = Lowered(function.__name__, Path(function.__code__.co_filename).name, [a.arg for a in tree.args.args], [])
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    lowered.body = _Vocabulary(lowered, block, outside).visit(ast.Module(body, [])).body
    for name in sorted({n.id for s in lowered.body for n in ast.walk(s) if isinstance(n, ast.Name)}):
        if name.startswith("_") and name != "_" and name not in outside:
            raise UnsupportedKernel(
                f"{lowered.name}: {name}: names with a leading underscore are the CPU compiler's own"
            )
    if lowered.has_barriers and any(isinstance(n, ast.Return) for s in lowered.body for n in ast.walk(s)):
        raise UnsupportedKernel(f"{lowered.name}: `return` in a kernel that has barriers; guard with `if` instead")
    _collect_outside(lowered, outside, block)
    return lowered


class _Vocabulary(ast.NodeTransformer):
    def __init__(self, lowered: Lowered, block: Dim3, outside: dict[str, Any]) -> None:
        self.lowered, self.block, self.outside = lowered, block, outside

    def fail(self, node: ast.AST, why: str) -> UnsupportedKernel:
        return UnsupportedKernel(f"{self.lowered.file}:{getattr(node, 'lineno', '?')}: {self.lowered.name}: {why}")

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        parts = dotted(node).split(".")
        if len(parts) == 3 and parts[0] == "cuda" and parts[1] in INDICES and parts[2] in AXES:
            if parts[1] == "blockDim":
                return ast.Constant(self.block[AXES.index(parts[2])])
            return ast.Name(f"{parts[1]}_{parts[2]}", ast.Load())
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        called = dotted(node.value.func) if isinstance(node.value, ast.Call) else ""
        if called not in ("cuda.shared.array", "cuda.local.array"):
            return self.generic_visit(node)  # type: ignore[return-value]
        target, call = node.targets[0], node.value
        assert isinstance(call, ast.Call)
        if len(node.targets) != 1 or not isinstance(target, ast.Name):
            raise self.fail(node, "give a shared or local array one name of its own")
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        shape, dtype = (eval(ast.unparse(part), {**self.outside, "np": np}) for part in given[:2])
        array = Array(target.id, tuple(np.atleast_1d(shape).tolist()), np.dtype(dtype).name)
        (self.lowered.shared if called == "cuda.shared.array" else self.lowered.local)[target.id] = array
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if isinstance(node.value, ast.Call) and dotted(node.value.func) == "cuda.syncthreads":
            return ast.copy_location(ast.Expr(ast.Yield(ast.Constant(node.lineno))), node)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        called = dotted(node.func)
        if called in ("cuda.grid", "cuda.gridsize"):
            given = ast.unparse(node.args[0])
            if given not in ("1", "2", "3"):
                raise self.fail(node, f"{called} takes 1, 2 or 3")
            dimensions = [
                f"blockIdx_{axis} * {n} + threadIdx_{axis}" if called == "cuda.grid" else f"gridDim_{axis} * {n}"
                for axis, n in zip(AXES, self.block, strict=True)
            ]
            return expression(f"({', '.join(dimensions[: int(given)])})")
        if called.startswith("cuda."):
            raise self.fail(
                node, f"{called} has no CPU version here (see kernels/targets/cpu/vocabulary.py for what has)"
            )
        return self.generic_visit(node)  # type: ignore[return-value]


def _collect_outside(lowered: Lowered, outside: dict[str, Any], block: Dim3) -> None:
    """Every name that the body reads and does not set itself: a constant, a module, a numeric type or a helper."""
    own = {*lowered.parameters, *lowered.shared, *lowered.local}
    own |= stored(lowered.body) | {f"{index}_{axis}" for index in INDICES for axis in AXES}
    read = {n.id: n for s in lowered.body for n in ast.walk(s) if isinstance(n, ast.Name)}
    for name in sorted(set(read) - own):
        if name in outside:
            value = outside[name]
        elif hasattr(builtins, name):
            continue
        else:
            raise UnsupportedKernel(f"{lowered.file}:{read[name].lineno}: {lowered.name}: {name} is not defined")
        if getattr(value, "targetoptions", {}).get("device"):
            lowered.helpers[name] = _lower(value.py_func, block)
        elif (source := constant_source(value)) is not None:
            lowered.constants[name] = source
        else:
            raise UnsupportedKernel(
                f"{lowered.file}:{read[name].lineno}: {lowered.name}: {name} is a {type(value).__name__}; "
                "a kernel can use numbers, tuples of them, math, numpy, and functions marked @device"
            )


def constant_source(value: Any) -> str | None:
    """Python source for a constant, or None if it is nothing that a kernel can use."""
    if isinstance(value, np.generic):
        return f"np.{value.dtype.name}({constant_source(value.item())})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, tuple) and all(isinstance(item, (int, float)) for item in value):
        return repr(value)
    if isinstance(value, type) and issubclass(value, np.generic):
        return f"np.{np.dtype(value).name}"
    if isinstance(value, types.ModuleType) and value.__name__ in ("math", "numpy"):
        return {"math": "math", "numpy": "np"}[value.__name__]
    if getattr(value, "__module__", None) == "math":
        return f"math.{value.__name__}"
    return None
