"""Kernels that the tests of the CPU's compiler share."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.targets.launch import Floats, Kernel, device, kernel
from kernels.targets.shim import cuda

ORDERS: tuple[str | int, ...] = ("forward", "reverse", 11)  #: of the threads of a block, in checked mode


TILE = 8


@device
def scaled(value: Any, factor: Any) -> Any:
    return value * factor + np.float32(1)


@kernel(block=(TILE, 4))
def transpose_and_scale(x: Floats, y: Floats, rows: int, columns: int, factor: float) -> None:
    tile = cuda.shared.array((4, TILE), np.float32, 16)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    row = cuda.blockIdx.y * 4 + ty
    column = cuda.blockIdx.x * TILE + tx
    if row < rows and column < columns:
        tile[ty, tx] = scaled(x[row * columns + column], factor)
    cuda.syncthreads()
    if row < rows and column < columns:
        y[column * rows + row] = tile[ty, tx]


@kernel(block=64)
def block_sums(x: Floats, y: Floats, n: int) -> None:
    part = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    part[t] = x[i] if i < n else np.float32(0)
    cuda.syncthreads()
    half = 32
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        y[cuda.blockIdx.x] = part[0]


@kernel(block=32)
def diverging(x: Floats, n: int) -> None:
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if t < n:
        cuda.syncthreads()
        x[t] = s[31 - t]


@kernel(block=32)
def off_by(x: Floats, distance: int) -> None:
    i = cuda.grid(1)
    x[i] = x[i + distance]


def make_filler(value: float) -> Kernel:
    @kernel(block=32, name="filler")
    def fill(x: Floats) -> None:
        x[cuda.grid(1)] = np.float32(value)

    return fill
