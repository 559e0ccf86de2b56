"""Threads of a block in turns, in plain Python: what a kernel of lab A0 touches, and what that costs.

The kernel is a part of Python in which nothing can be reached but the arrays and the numbers that it is given, so what
is counted here can be believed.  `read` refuses all else.  `launched` runs block after block: each thread runs to the
next barrier, then the next thread does.  It finds an index outside, a race and a barrier that some threads miss, and
counts for each access of a warp the 32-byte sectors of global memory and the conflicts of shared memory's banks.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from refimpl.studies.grade.source_tree import parsed

WARP, SECTOR, BANKS, WORD = 32, 32, 32, 4  #: threads, bytes, banks, bytes
MOST_THREADS, MOST_SHARED = 1024, 48 << 10  #: of a block; bytes

NODES = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Expr, ast.Pass, ast.Break, ast.Continue,
    ast.Call, ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Subscript,
    ast.Tuple, ast.Attribute, ast.Load, ast.Store, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod,
    ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor, ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or, ast.Eq, ast.NotEq,
    ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
PLACES = {f"cuda.{what}.{axis}" for what in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"}
CALLS = {"cuda.grid", "cuda.syncthreads", "cuda.shared.array", "np.float32", "np.int32", "np.int64", "np.uint32"}
BUILTINS: dict[str, Callable[..., Any]] = {"range": range, "min": min, "max": max, "abs": abs, "int": int}
#: What `np` is in a kernel.
TYPES = {"float32": np.float32, "int32": np.int32, "int64": np.int64, "uint32": np.uint32}


class NotAKernel(ValueError):
    """The submission is not a kernel of the lab, or does what a GPU would not forgive: one line."""


@dataclass
class Touched:
    """What a launch touched."""

    sectors: int = 0  #: of global memory, over all accesses of warps
    least: int = 0  #: if every access were of neighbouring elements
    conflicts: int = 0  #: further turns of shared memory's banks
    shared: int = 0  #: accesses of warps to shared memory


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadKernel:
    """A kernel that may be run: its generator function, and its block."""

    run: Callable[..., Iterator[int]]
    block: tuple[int, int]


def read(source: bytes, name: str) -> ReadKernel:
    """The kernel of this name, if it is nothing but one.

    Raises:
        NotAKernel: says the line.
    """
    tree = parsed(source, NotAKernel)
    constants = dict(one for node in tree.body if (one := constant(node)))
    found = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name), None)
    if found is None:
        raise NotAKernel(f"the file has no kernel {name}")
    block = block_of(found, constants)
    arguments = [argument.arg for argument in found.args.args]
    body = found.body[1:] if ast.get_docstring(found) is not None else found.body
    for number, node in enumerate(each for statement in body for each in ast.walk(statement)):
        refuse(node)
        node.site = number  # type: ignore[attr-defined]
    module = ast.parse(f"def kernel({', '.join(['cuda', 'np', *arguments])}):\n    if False:\n        yield 0")
    made = module.body[0]  # a generator, even without a barrier
    assert isinstance(made, ast.FunctionDef)
    made.body = [*(Sites().visit(statement) for statement in body), *made.body]
    ast.fix_missing_locations(module)
    names: dict[str, Any] = {"__builtins__": {}, **BUILTINS, **constants}
    exec(compile(module, "submission.py", "exec"), names)  # nothing but what `refuse` lets through
    return ReadKernel(names["kernel"], block)


def constant(node: ast.stmt) -> tuple[str, int | float] | None:
    """`TILE = 16` of the file."""
    match node:
        case ast.Assign([ast.Name(name)], ast.Constant(value)) if type(value) in (int, float):
            return name, value  # type: ignore[return-value]
    return None


def block_of(found: ast.FunctionDef, constants: Mapping[str, Any]) -> tuple[int, int]:
    """Of `@kernel(block=(x, y))`: numbers, or constants of the file."""
    match found.decorator_list:
        case [ast.Call(ast.Name("kernel"), [], [ast.keyword("block", ast.Tuple([one, other]))])]:
            x, y = (
                constants.get(each.id) if isinstance(each, ast.Name) else getattr(each, "value", 0)
                for each in (one, other)
            )
            if isinstance(x, int) and isinstance(y, int) and min(x, y) > 0 and x * y <= MOST_THREADS:
                return x, y
    raise NotAKernel(f"write @kernel(block=(x, y)) above {found.name}, at most {MOST_THREADS} threads")


def refuse(node: ast.AST) -> None:
    """Anything that is not plain arithmetic, a loop, a condition, an array's element or a word of CUDA."""
    line = getattr(node, "lineno", 0)
    if not isinstance(node, NODES):
        raise NotAKernel(f"line {line}: a kernel of this lab has no {type(node).__name__.lower()}")
    if isinstance(node, ast.Name) and node.id.startswith("_"):
        raise NotAKernel(f"line {line}: {node.id[:40]}: give it a name without an underscore before it")
    if isinstance(node, ast.Constant) and type(node.value) not in (int, float, bool):
        raise NotAKernel(f"line {line}: a kernel of this lab has numbers alone")
    if isinstance(node, ast.Attribute) and not (
        isinstance(node.ctx, ast.Load)
        and any(word == ast.unparse(node) or word.startswith(f"{ast.unparse(node)}.") for word in PLACES | CALLS)
    ):
        raise NotAKernel(f"line {line}: there is no {ast.unparse(node)[:40]} here")
    if isinstance(node, ast.Call) and (ast.unparse(node.func) not in CALLS | BUILTINS.keys() or node.keywords):
        raise NotAKernel(f"line {line}: {ast.unparse(node.func)[:40]} cannot be called here")


class Sites(ast.NodeTransformer):
    """`a[i]` becomes `a[number of the place, i]`, and a barrier the end of a thread's turn."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        place = ast.Constant(node.lineno * 10_000 + node.site % 10_000)  # type: ignore[attr-defined]
        self.generic_visit(node)
        node.slice = ast.Tuple([place, node.slice], ast.Load())
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if ast.unparse(node.value) == "cuda.syncthreads()":
            return ast.copy_location(ast.Expr(ast.Yield(ast.Constant(node.lineno))), node)
        return self.generic_visit(node)


# -- running -----------------------------------------------------------------------------------------------------------


@dataclass
class Warps:
    """The accesses of one block, by warp, place in the source, and turn of a loop."""

    touched: Touched
    thread: int = 0
    turns: defaultdict[tuple[int, int, str], int] = field(default_factory=lambda: defaultdict(int))
    accesses: defaultdict[tuple[Any, ...], set[int]] = field(default_factory=lambda: defaultdict(set))

    def note(self, array: Watched, site: int, way: str, at: int) -> None:
        turn = self.turns[self.thread, site, way]
        self.turns[self.thread, site, way] = turn + 1
        self.accesses[array.shared, id(array), self.thread // WARP, site, way, turn].add(at)

    def count(self) -> None:
        for (shared, *_), places in self.accesses.items():
            if shared:
                banks: defaultdict[int, int] = defaultdict(int)
                for at in places:
                    banks[at % BANKS] += 1
                self.touched.shared += 1
                self.touched.conflicts += max(banks.values()) - 1
            else:
                self.touched.sectors += len({at * WORD // SECTOR for at in places})
                self.touched.least += -(-len(places) * WORD // SECTOR)
        self.turns.clear()
        self.accesses.clear()


class Watched:
    """An array whose every access is checked and noted."""

    __slots__ = ("epoch", "name", "readers", "shape", "shared", "values", "warps", "writers")

    def __init__(self, name: str, values: Any, shape: tuple[int, ...], warps: Warps, shared: bool) -> None:
        self.name, self.values, self.shape, self.warps, self.shared = name, values, shape, warps, shared
        self.readers: dict[int, int] = {}
        self.writers: dict[int, int] = {}

    def at(self, index: Any, line: int) -> int:
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) != len(self.shape):
            raise NotAKernel(f"line {line}: {self.name} has shape {self.shape}")
        place = 0
        for one, size in zip(indices, self.shape, strict=True):
            if isinstance(one, float | np.floating | Watched) or not 0 <= one < size:
                raise NotAKernel(f"line {line}: index {one} of {self.name}, which has 0 … {size - 1}")
            place = place * size + int(one)
        return place

    def __getitem__(self, given: tuple[int, Any]) -> Any:
        site, index = given
        place, thread = self.at(index, site // 10_000), self.warps.thread
        if self.writers.get(place, thread) != thread:
            raise NotAKernel(f"line {site // 10_000}: thread {thread} reads what thread {self.writers[place]} wrote in "
                             f"{self.name}, with no barrier between them")  # fmt: skip
        known = self.readers.setdefault(place, thread)
        if known != thread:
            self.readers[place] = -1  # several
        self.warps.note(self, site, "read", place)
        return self.values[place]

    def __setitem__(self, given: tuple[int, Any], value: Any) -> None:
        site, index = given
        place, thread = self.at(index, site // 10_000), self.warps.thread
        for others, did in ((self.writers, "wrote"), (self.readers, "read")):
            if others.get(place, thread) != thread:
                raise NotAKernel(f"line {site // 10_000}: thread {thread} writes what another one {did} in "
                                 f"{self.name}, with no barrier between them")  # fmt: skip
        self.writers[place] = thread
        self.warps.note(self, site, "write", place)
        self.values[place] = value

    def barrier(self) -> None:
        self.readers.clear()
        self.writers.clear()


class Axes:
    """`cuda.threadIdx` and the like."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x: int, y: int, z: int = 0) -> None:
        self.x, self.y, self.z = x, y, z


class Thread:
    """What `cuda` is in a kernel, for one thread."""

    def __init__(self, block: ThreadBlock, x: int, y: int) -> None:
        self.block, self.arrays = block, 0
        self.threadIdx, self.blockIdx = Axes(x, y), Axes(*block.index)
        self.blockDim, self.gridDim = Axes(*block.size, 1), Axes(*block.grid, 1)
        self.shared = self

    def grid(self, dimensions: int) -> Any:
        places = tuple(
            index * size + at
            for index, size, at in zip(
                self.block.index, self.block.size, (self.threadIdx.x, self.threadIdx.y), strict=True
            )
        )
        return places if dimensions == 2 else places[0]

    def array(self, shape: Any, dtype: Any, *_: Any) -> Watched:
        """`cuda.shared.array`: the block's threads have the n-th one together."""
        self.arrays += 1
        return self.block.shared_array(self.arrays, shape if isinstance(shape, tuple) else (shape,))


@dataclass
class ThreadBlock:
    index: tuple[int, int]
    size: tuple[int, int]
    grid: tuple[int, int]
    warps: Warps
    arrays: dict[int, Watched] = field(default_factory=dict)

    def shared_array(self, number: int, shape: tuple[int, ...]) -> Watched:
        if number not in self.arrays:
            taken = sum(prod(array.shape) for array in self.arrays.values())
            if min(shape) < 1 or (taken + prod(shape)) * WORD > MOST_SHARED:
                raise NotAKernel(f"shared memory has {MOST_SHARED >> 10} KiB for a block")
            values = np.full(prod(shape), np.nan, np.float32)
            self.arrays[number] = Watched("a shared array", values, shape, self.warps, True)
        return self.arrays[number]

    def run(self, kernel: ReadKernel, arguments: list[Any], given: list[Watched]) -> None:
        (width, height), numbers = self.size, SimpleNamespace(**TYPES)
        waiting = {
            y * width + x: kernel.run(Thread(self, x, y), numbers, *arguments)
            for y in range(height)
            for x in range(width)
        }
        while waiting:
            at: dict[int, int] = {}
            for number, one in waiting.items():
                self.warps.thread = number
                if (line := next(one, None)) is not None:
                    at[number] = line
            if at and (len(at) < len(waiting) or len({*at.values()}) > 1):
                raise NotAKernel(f"line {min(at.values())}: some threads wait at this barrier and others do not")
            waiting = {number: waiting[number] for number in at}
            for array in (*self.arrays.values(), *given):
                array.barrier()
        self.warps.count()


def launched(kernel: ReadKernel, a: np.ndarray, b: np.ndarray, m: int, n: int, k: int) -> tuple[np.ndarray, Touched]:
    """C = A·B by the kernel, one thread an element of C; what a thread never wrote is NaN."""
    touched, width, height = Touched(), *kernel.block
    grid = (-(-n // width), -(-m // height))
    c = np.full(m * n, np.nan, np.float32)
    owners: dict[int, tuple[int, int]] = {}
    with np.errstate(all="ignore"):
        for y in range(grid[1]):
            for x in range(grid[0]):
                warps = Warps(touched)
                given = [
                    Watched(name, values, (values.size,), warps, False)
                    for name, values in (("A", a), ("B", b), ("C", c))
                ]
                before = c.copy()
                ThreadBlock((x, y), kernel.block, grid, warps).run(kernel, [*given, m, n, k], given)
                for place in np.flatnonzero(~((before == c) | (np.isnan(before) & np.isnan(c)))):
                    if owners.setdefault(int(place), (x, y)) != (x, y):
                        raise NotAKernel(f"blocks {owners[int(place)]} and {(x, y)} both write element {place} of C")
    return c, touched
