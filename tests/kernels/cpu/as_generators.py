"""The slow, obvious twin of a compiled kernel: a thread is a Python generator, a barrier is a yield."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.targets.launch import Kernel

Indices = tuple[int, ...]  #: z, y and x


def cuda_of_one_thread(made: Kernel, grid: Indices, block: Indices, thread: Indices, shared: dict[int, Any]) -> Any:
    """What `cuda` means to one thread.  `shared` is the block's: the first thread makes it."""

    def dims(zyx: Sequence[int]) -> Any:
        return types.SimpleNamespace(x=zyx[2], y=zyx[1], z=zyx[0])

    numbers = itertools.count()
    return types.SimpleNamespace(
        threadIdx=dims(thread),
        blockIdx=dims(block),
        gridDim=dims(grid),
        blockDim=dims(made.block[::-1]),
        grid=lambda _: block[2] * made.block[0] + thread[2],
        shared=types.SimpleNamespace(
            array=lambda shape, dtype, alignment=0: shared.setdefault(next(numbers), np.zeros(shape, dtype))
        ),
        local=types.SimpleNamespace(array=lambda shape, dtype, alignment=0: np.zeros(shape, dtype)),
    )


class BarriersToYields(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        return ast.Expr(ast.Yield()) if ast.unparse(node) == "cuda.syncthreads()" else node


def run_as_generators(made: Kernel, grid: int | tuple[int, ...], *args: Any) -> None:
    """Run a kernel as CUDA describes it, thread by thread; every barrier is met by all threads of the block."""
    tree = BarriersToYields().visit(ast.parse(textwrap.dedent(inspect.getsource(made.function))).body[0])
    tree.decorator_list, tree.body = [], [*tree.body, ast.Expr(ast.Yield())]
    code = compile(ast.fix_missing_locations(ast.Module([tree], [])), "<twin>", "exec")
    # helpers run as plain functions
    outside = {name: getattr(value, "py_func", value) for name, value in made.function.__globals__.items()}
    grid = (*grid, 1, 1)[:3][::-1] if isinstance(grid, tuple) else (1, 1, grid)
    for block in itertools.product(*map(range, grid)):
        shared: dict[int, Any] = {}
        threads = []
        for thread in itertools.product(*map(range, made.block[::-1])):
            namespace = {**outside, "cuda": cuda_of_one_thread(made, grid, block, thread, shared)}
            exec(code, namespace)
            threads.append(namespace[made.function.__name__](*args))
        ended = False
        while not ended:
            met = [next(thread, "end") for thread in threads]
            assert len(set(met)) == 1, "threads wait at different barriers"
            ended = met[0] == "end"
