"""Products of maps: y = x g, where the gate g has x's shape or one number a map, (images, channels, 1, 1).

    forward     y = x g
    backward    dx = dy g, in place, and dg = dy x: with one number a map its sum over the map

A gate of one number a map is what squeeze-and-excitation blocks learn (Hu, Shen, Sun, 2018).

| | launch | floating-point operations | bytes moved |
|---|---|---|---|
| x's shape, n elements | as in `elementwise`: 256 threads, four elements each | n, or 2 n | 12 n, or 20 n |
| one number a map, forward | one thread an element | n | 8 n |
| one number a map, backward | one block of 128 threads a map | 3 n | 12 n |

Thread t sums elements t, t + 128, … of its map; then the block adds the threads' sums in a tree.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast import elementwise
from kernels.fast.activation import start
from kernels.fast.division import divide, reciprocal
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

THREADS = 128  #: of a map
ZERO = np.float32(0)


@kernel(block=BLOCK)
def mul_forward(x: Floats, gate: Floats, y: Floats, n: int) -> None:
    """y = x gate, of one shape, four elements a thread."""
    value = cuda.local.array(PER_THREAD, np.float32)
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            value[j] = x[np.uint32(i + j * BLOCK)] * gate[np.uint32(i + j * BLOCK)]
        for j in range(PER_THREAD):
            y[np.uint32(i + j * BLOCK)] = value[j]
    else:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            if i + j * BLOCK < n:
                y[e] = x[e] * gate[e]


@kernel(block=BLOCK)
def mul_backward(x: Floats, gate: Floats, dx: Floats, dgate: Floats, n: int) -> None:
    """dgate = dx x and then dx = dx gate in place, of one shape, four elements a thread."""
    given = cuda.local.array(PER_THREAD, np.float32)
    passed = cuda.local.array(PER_THREAD, np.float32)
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            given[j] = dx[e] * x[e]
            passed[j] = dx[e] * gate[e]
        for j in range(PER_THREAD):
            dgate[np.uint32(i + j * BLOCK)] = given[j]
            dx[np.uint32(i + j * BLOCK)] = passed[j]
    else:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            if i + j * BLOCK < n:
                dgate[e] = dx[e] * x[e]
                dx[e] *= gate[e]


@kernel(block=256)
def mul_gate_forward(x: Floats, gate: Floats, y: Floats, total: int, gates: int, by_gates: int, by_area: int) -> None:
    """y = x times the gate of its map, one thread an element; map m has gate m % gates."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        number = divide(i, by_area)
        y[i] = x[i] * gate[np.uint32(number - divide(number, by_gates) * gates)]


@kernel(block=THREADS)
def mul_gate_backward(x: Floats, gate: Floats, dx: Floats, dgate: Floats, gates: int, area: int) -> None:
    """dgate, one number a map, is the sum of dx x; and then dx = dx gate in place.  One block a map."""
    sums = cuda.shared.array(THREADS, np.float32)
    factor = cuda.shared.array(1, np.float32)
    t = np.int64(cuda.threadIdx.x)
    first = np.int64(cuda.blockIdx.x) * area
    sums[np.uint32(t)] = ZERO
    if t == 0:
        factor[0] = gate[np.uint32(np.int64(cuda.blockIdx.x) % gates)]
    cuda.syncthreads()
    for done in range(0, area, THREADS):
        if t < area - done:
            i = np.uint32(first + done + t)
            given = dx[i]
            sums[np.uint32(t)] += given * x[i]
            dx[i] = given * factor[0]
        cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[np.uint32(t)] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        dgate[np.uint32(cuda.blockIdx.x)] = sums[0]


def forward(x: Any, gate: Any, y: Any, *, stream: Any = None) -> None:
    """y = x gate."""
    check("mul.forward", x=x, gate=gate, y=y)
    check_shape("mul.forward", "y", y, x.shape)
    if is_whole("mul.forward", x, gate):
        launch(mul_forward, tiles(size(x)), x, gate, y, size(x), stream=stream)
    else:
        gated(x, gate, y, size(gate), stream)


def backward(x: Any, gate: Any, dy: Any, dx: Any, dgate: Any, *, stream: Any = None) -> None:
    """dx = dy gate and dgate = dy x, over a map its sum if the gate has one number; dx may be dy."""
    check("mul.backward", x=x, gate=gate, dy=dy, dx=dx, dgate=dgate)
    check_shape("mul.backward", "dy", dy, x.shape)
    check_shape("mul.backward", "dx", dx, x.shape)
    check_shape("mul.backward", "dgate", dgate, gate.shape)
    whole = is_whole("mul.backward", x, gate)
    if start(dx) != start(dy):
        elementwise.copy(dy, dx, stream=stream)
    if whole:
        launch(mul_backward, tiles(size(x)), x, gate, dx, dgate, size(x), stream=stream)
    else:
        gradients(x, gate, dx, dgate, size(gate), stream)


def gated(x: Any, gate: Any, y: Any, gates: int, stream: Any) -> None:
    """Launch y = x times the gate of its map; map m has gate m % gates."""
    _, area = maps_and_area(x)
    sizes = size(x), gates, reciprocal(gates), reciprocal(area)
    launch(mul_gate_forward, ceil_div(size(x), 256), x, gate, y, *sizes, stream=stream)


def gradients(x: Any, gate: Any, dx: Any, dgates: Any, gates: int, stream: Any) -> None:
    """Launch what `mul_gate_backward` computes: `dgates` has one number a map."""
    maps, area = maps_and_area(x)
    launch(mul_gate_backward, maps, x, gate, dx, dgates, gates, area, stream=stream)


def maps_and_area(x: Any) -> tuple[int, int]:
    """How many maps there are in all, and the numbers of one."""
    return math.prod(x.shape[:2]), math.prod(x.shape[2:])


def is_whole(where: str, x: Any, gate: Any) -> bool:
    """Whether the gate has x's shape; if not it has one number a map."""
    if tuple(gate.shape) == tuple(x.shape):
        return True
    if len(x.shape) < 2 or tuple(gate.shape[:2]) != tuple(x.shape[:2]) or math.prod(gate.shape[2:]) != 1:
        one = (*x.shape[:2], *(1 for _ in x.shape[2:]))
        raise KernelError(f"{where}: gate has shape {tuple(gate.shape)}; give {tuple(x.shape)} or {one}")
    return False
