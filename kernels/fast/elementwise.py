"""Element by element: fill, copy and axpy (y += alpha·x), and the launch shape that all such kernels share.

Launch: one dimension, 256 threads a block, four elements a thread.  A thread's elements are 256 apart, so that
neighbouring threads touch neighbouring elements (coalesced); a full tile of 1024 elements is read before any of it is
written, so that each thread has four loads under way when it begins to wait: an element-wise kernel does next to
nothing but wait for memory.  The last, ragged tile has a branch of its own, which keeps the comparisons out of the
other tiles. The loops over the four are unrolled, and their local arrays live in registers.

| n elements | floating-point operations | bytes moved |
|---|---|---|
| fill | 0 | 4 n |
| copy | 0 | 8 n |
| axpy | 2 n | 12 n |
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import check, check_shape
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

BLOCK = 256  #: threads a block
PER_THREAD = 4  #: elements a thread, BLOCK apart
TILE = BLOCK * PER_THREAD  #: elements a block


def size(array: Any) -> int:
    """Elements of a NumPy or device array."""
    return math.prod(array.shape)


def tiles(n: int) -> int:
    """The grid of an element-wise kernel over n elements."""
    return ceil_div(n, TILE)


@kernel(block=BLOCK)
def elementwise_fill(value: float, x: Floats, n: int) -> None:
    """x = value, four elements a thread."""
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            x[np.uint32(i + j * BLOCK)] = value
    else:
        for j in range(PER_THREAD):
            if i + j * BLOCK < n:
                x[np.uint32(i + j * BLOCK)] = value


@kernel(block=BLOCK)
def elementwise_copy(x: Floats, y: Floats, n: int) -> None:
    """y = x, four elements a thread."""
    value = cuda.local.array(PER_THREAD, np.float32)
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            value[j] = x[np.uint32(i + j * BLOCK)]
        for j in range(PER_THREAD):
            y[np.uint32(i + j * BLOCK)] = value[j]
    else:
        for j in range(PER_THREAD):
            if i + j * BLOCK < n:
                y[np.uint32(i + j * BLOCK)] = x[np.uint32(i + j * BLOCK)]


@kernel(block=BLOCK)
def elementwise_axpy(alpha: float, x: Floats, y: Floats, n: int) -> None:
    """y = alpha·x + y, four elements a thread."""
    value = cuda.local.array(PER_THREAD, np.float32)
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            value[j] = alpha * x[e] + y[e]
        for j in range(PER_THREAD):
            y[np.uint32(i + j * BLOCK)] = value[j]
    else:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            if i + j * BLOCK < n:
                y[e] += alpha * x[e]


def fill(x: Any, value: float, *, stream: Any = None) -> None:
    """Set every element of x."""
    check("elementwise.fill", x=x)
    launch(elementwise_fill, tiles(size(x)), value, x, size(x), stream=stream)


def copy(x: Any, y: Any, *, stream: Any = None) -> None:
    """y = x, on one device."""
    check("elementwise.copy", x=x, y=y)
    check_shape("elementwise.copy", "y", y, x.shape)
    launch(elementwise_copy, tiles(size(x)), x, y, size(x), stream=stream)


def axpy(alpha: float, x: Any, y: Any, *, stream: Any = None) -> None:
    """y += alpha·x."""
    check("elementwise.axpy", x=x, y=y)
    check_shape("elementwise.axpy", "y", y, x.shape)
    launch(elementwise_axpy, tiles(size(x)), alpha, x, y, size(x), stream=stream)
