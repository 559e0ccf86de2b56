"""Joins and forks of branches: join adds tensors, fork hands one tensor to several readers.

    join  forward   y = x0 + x1 + …, in this order       backward  every dx = dy
    fork  forward   every y = x                          backward  dx = dy0 + dy1 + …, in this order

A sum of many is made by launches that add up to four tensors each; the next launch goes on with the sum so far, so the
order of the additions is always that of the inputs.  The output may be the first input.  One input is a copy.

Launch: as in `kernels.fast.elementwise`, 256 threads a block, four elements a thread.  The sum of k tensors of n
elements takes (k - 1) n floating-point operations and moves 4 (k + 1) n bytes for k up to 4, and 8 n more for each
further launch; a copy moves 8 n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast import elementwise
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, kernel, launch
from kernels.targets.shim import cuda

AT_ONCE = 4  #: tensors that one launch adds


@kernel(block=BLOCK)
def join_sum(x0: Floats, x1: Floats, x2: Floats, x3: Floats, y: Floats, n: int, count: int) -> None:
    """The first `count` of x0 to x3; the others are not read."""
    total = cuda.local.array(PER_THREAD, np.float32)
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            total[j] = x0[np.uint32(i + j * BLOCK)] + x1[np.uint32(i + j * BLOCK)]
        if count > 2:
            for j in range(PER_THREAD):
                total[j] += x2[np.uint32(i + j * BLOCK)]
        if count > 3:
            for j in range(PER_THREAD):
                total[j] += x3[np.uint32(i + j * BLOCK)]
        for j in range(PER_THREAD):
            y[np.uint32(i + j * BLOCK)] = total[j]
    else:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            if i + j * BLOCK < n:
                total[j] = x0[e] + x1[e]
                if count > 2:
                    total[j] += x2[e]
                if count > 3:
                    total[j] += x3[e]
                y[e] = total[j]


def forward(inputs: Sequence[Any], y: Any, *, stream: Any = None) -> None:
    """y = the sum of the inputs, in order; y may be the first of them."""
    _sum("join.forward", "inputs", inputs, "y", y, stream)


def backward(dy: Any, dxs: Sequence[Any], *, stream: Any = None) -> None:
    """Every dx = dy."""
    _copies("join.backward", "dy", dy, "dxs", dxs, stream)


def fork_forward(x: Any, ys: Sequence[Any], *, stream: Any = None) -> None:
    """Every y = x."""
    _copies("join.fork_forward", "x", x, "ys", ys, stream)


def fork_backward(dys: Sequence[Any], dx: Any, *, stream: Any = None) -> None:
    """dx = the sum of the dys, in order; dx may be the first of them."""
    _sum("join.fork_backward", "dys", dys, "dx", dx, stream)


def _sum(where: str, names: str, inputs: Sequence[Any], name: str, output: Any, stream: Any) -> None:
    _check(where, names, inputs, name, output)
    if any(output is x for x in inputs[1:]):
        raise KernelError(f"{where}: {name} may be {names}[0], but none of the later ones")
    if len(inputs) == 1:
        elementwise.copy(inputs[0], output, stream=stream)
        return
    so_far, rest = inputs[0], list(inputs[1:])
    while rest:
        group, rest = [so_far, *rest[: AT_ONCE - 1]], rest[AT_ONCE - 1 :]
        unread = [so_far] * (AT_ONCE - len(group))
        launch(join_sum, tiles(size(output)), *group, *unread, output, size(output), len(group), stream=stream)
        so_far = output


def _copies(where: str, name: str, source: Any, names: str, outputs: Sequence[Any], stream: Any) -> None:
    _check(where, names, outputs, name, source)
    for output in outputs:
        elementwise.copy(source, output, stream=stream)


def _check(where: str, names: str, many: Sequence[Any], name: str, one: Any) -> None:
    if len(many) == 0:
        raise KernelError(f"{where}: {names} is empty; give at least one array")
    check(where, **{name: one}, **{f"{names}[{i}]": array for i, array in enumerate(many)})
    for i, array in enumerate(many):
        check_shape(where, f"{names}[{i}]", array, one.shape)
