"""What the threads of a kernel touch: its source run in plain Python, thread by thread, and each access noted.

A thread runs to the next barrier, then the next one does.  Threads of a warp that access an array in one line of the
source, in one turn of a loop, are one access: of 32-byte sectors of global memory, or of the banks of shared memory.
What is run here has passed the checked mode, so every index is inside, and no barrier is missing.

`python -m tutorials.labs.counted_threads mine.py 24x31x20` shows what each line of lab A0's kernel touches.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.targets.declare import Kernel
from refimpl.text import RefimplError

WARP, SECTOR, BANKS, WORD = 32, 32, 32, 4  #: threads, bytes, banks, bytes
Access = tuple[int, int, int]  #: the warp, the line of the source, the turn


class CountedArray:
    """An array that notes which elements each access of a warp touches."""

    def __init__(self, cuda: CountedCuda, values: np.ndarray, shape: tuple[int, ...]) -> None:
        self.cuda, self.values, self.shape = cuda, values, shape
        self.accesses: defaultdict[Access, set[int]] = defaultdict(set)
        self.turns: defaultdict[tuple[int, int], int] = defaultdict(int)

    def place(self, index: Any) -> int:
        indices = index if isinstance(index, tuple) else (index,)
        place = 0
        for one, size in zip(indices, self.shape, strict=True):
            place = place * size + int(one)
        thread, line = self.cuda.thread, sys._getframe(2).f_lineno
        self.turns[thread, line] += 1
        self.accesses[thread // WARP, line, self.turns[thread, line]].add(place)
        return place

    def __getitem__(self, index: Any) -> Any:
        return self.values[self.place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[self.place(index)] = value


@dataclass
class Line:
    """What all warps do with an array in a line of the source."""

    line: int
    array: str
    accesses: int = 0
    sectors: int = 0  #: of global memory
    turns: int = 0  #: of the banks of shared memory, beyond one an access: a bank gives its words one after another

    def __str__(self) -> str:
        cost = f"{self.turns:>8,} further turns" if self.array.startswith("shared") else f"{self.sectors:>8,} sectors"
        return f"line {self.line:>3}  {self.array:<15} {self.accesses:>8,} accesses {cost}"


def add(lines: dict[tuple[int, str], Line], name: str, array: CountedArray, shared: bool) -> None:
    for (_, line, _), places in array.accesses.items():
        one = lines.setdefault((line, name), Line(line, name))
        one.accesses += 1
        if shared:
            banks = Counter(place % BANKS for place in places)
            one.turns += max(banks.values()) - 1
        else:
            one.sectors += len({place * WORD // SECTOR for place in places})


class CountedCuda:
    """What `cuda` is in the kernel: where the running thread is, and its block's shared arrays."""

    def __init__(self, kernel: Kernel, grid: tuple[int, int], block: int) -> None:
        self.blockDim, self.gridDim = axes(*kernel.block), axes(*grid, 1)
        self.blockIdx, self.threadIdx = axes(block % grid[0], block // grid[0], 0), axes(0, 0, 0)
        self.arrays: dict[int, CountedArray] = {}
        self.made: defaultdict[int, int] = defaultdict(int)  #: thread → shared arrays that it has named so far
        self.shared = self

    @property
    def thread(self) -> int:
        """The number of the running thread."""
        number: int = self.threadIdx.y * self.blockDim.x + self.threadIdx.x
        return number

    def grid(self, dimensions: int) -> Any:
        x = self.blockIdx.x * self.blockDim.x + self.threadIdx.x
        y = self.blockIdx.y * self.blockDim.y + self.threadIdx.y
        return (x, y) if dimensions == 2 else x

    def array(self, shape: int | tuple[int, ...], dtype: Any) -> CountedArray:
        """`cuda.shared.array`: the threads of a block have the first one together, and the second."""
        sizes = shape if isinstance(shape, tuple) else (shape,)
        made = CountedArray(self, np.zeros(prod(sizes), dtype), sizes)
        self.made[self.thread] += 1
        return self.arrays.setdefault(self.made[self.thread], made)


def axes(x: int, y: int, z: int) -> SimpleNamespace:
    return SimpleNamespace(x=x, y=y, z=z)


class Barriers(ast.NodeTransformer):
    """A barrier becomes the end of a thread's turn."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.parse("yield").body[0] if ast.unparse(node) == "cuda.syncthreads()" else node


def in_turns(kernel: Kernel) -> Callable[[CountedCuda], Callable[..., Iterator[None]]]:
    """The kernel as a generator of one thread, for the `cuda` that it is given."""
    source, first = inspect.getsourcelines(kernel.function)
    tree = ast.increment_lineno(Barriers().visit(ast.parse(dedent("".join(source)))), first - 1)
    function = tree.body[0]
    function.decorator_list, function.returns = [], None
    for argument in function.args.args:
        argument.annotation = None
    function.body += ast.parse("if False:\n    yield").body  # a generator, even without a barrier
    code = compile(ast.fix_missing_locations(tree), kernel.name, "exec", dont_inherit=True)

    def given(cuda: CountedCuda) -> Callable[..., Iterator[None]]:
        names = {**kernel.function.__globals__, "cuda": cuda}
        exec(code, names)
        return names[function.name]  # type: ignore[no-any-return]

    return given


def counted(
    kernel: Kernel, grid: tuple[int, int], arrays: Mapping[str, np.ndarray], numbers: Sequence[int]
) -> list[Line]:
    """Run a kernel: what its lines touch."""
    made, lines = in_turns(kernel), dict[tuple[int, str], Line]()
    for block in range(prod(grid)):
        cuda = CountedCuda(kernel, grid, block)
        given = {name: CountedArray(cuda, values, (values.size,)) for name, values in arrays.items()}
        thread = made(cuda)
        waiting = [
            (axes(x, y, 0), thread(*given.values(), *numbers))
            for y in range(kernel.block[1])
            for x in range(kernel.block[0])
        ]
        while waiting:
            running, waiting = waiting, []
            for cuda.threadIdx, one in running:
                if next(one, waiting) is not waiting:
                    waiting.append((cuda.threadIdx, one))
        for name, array in given.items():
            add(lines, name, array, shared=False)
        for number, array in cuda.arrays.items():
            add(lines, f"shared array {number}", array, shared=True)
    return sorted(lines.values(), key=lambda one: (one.line, one.array))


def main(path: str, size: str) -> None:
    from tutorials.labs.test_a0 import LAB, Shape

    shape = Shape.of(size)
    print(*LAB.touched(LAB.modules(Path(path))["tiled"], shape), sep="\n")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RefimplError, OSError, TypeError, ValueError) as error:
        sys.exit(f"{error}; give a file and a shape, as in mine.py 44x2x24")
