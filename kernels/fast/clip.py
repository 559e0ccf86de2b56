"""Clipping gradients by their global norm, as PyTorch's `clip_grad_norm_` does:

    norm = √(the sum of the squares of all numbers of all gradients),   dw = dw · min(1, max_norm / (norm + 1e-6))

`square` is called for every gradient and fills its part of `squares`; `norm` adds those up; `apply` is called for every
gradient.  Nothing of that is looked at by the host.

square    one block of 256 threads for 4096 numbers, 16 a thread, then the threads' sums in a tree: one of `squares`.
norm      one block: thread t takes squares t, t + 256, …, and the threads' sums meet in a tree.
apply     as in `kernels.fast.elementwise`, four elements a thread; 8 bytes a number.

So the order of every sum follows from the shapes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

THREADS = 256
PART = 4096  #: numbers that a block adds up
ZERO, ONE, SMALL = np.float32(0), np.float32(1), np.float32(1e-6)


@kernel(block=THREADS)
def clip_parts(dw: Floats, squares: Floats, n: int, place: int) -> None:
    """Block b: the sum of the squares of part b."""
    sums = cuda.shared.array(THREADS, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    first = np.int64(cuda.blockIdx.x) * PART
    end = min(first + PART, n)
    sum_ = ZERO
    i = first + np.int64(t)
    while i < end:
        e = np.uint32(i)
        sum_ += dw[e] * dw[e]
        i += THREADS
    sums[t] = sum_
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[t] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        squares[np.uint32(place + cuda.blockIdx.x)] = sums[0]


@kernel(block=THREADS)
def clip_norm(squares: Floats, norm: Floats, count: int) -> None:
    """One block: the root of the sum of all squares."""
    sums = cuda.shared.array(THREADS, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    sum_ = ZERO
    i = np.int64(t)
    while i < count:
        sum_ += squares[np.uint32(i)]
        i += THREADS
    sums[t] = sum_
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[t] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        norm[0] = math.sqrt(sums[0])


@kernel(block=BLOCK)
def clip_apply(norm: Floats, dw: Floats, n: int, max_norm: float) -> None:
    """dw times what makes the norm at most `max_norm`, four elements a thread."""
    value = cuda.local.array(PER_THREAD, np.float32)
    factor = max_norm / (norm[0] + SMALL)
    if factor > ONE:  # not of NaN, which stays
        factor = ONE
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            value[j] = dw[np.uint32(i + j * BLOCK)]
        for j in range(PER_THREAD):
            dw[np.uint32(i + j * BLOCK)] = value[j] * factor
    else:
        for j in range(PER_THREAD):
            if i + j * BLOCK < n:
                dw[np.uint32(i + j * BLOCK)] *= factor


def parts(numbers: int) -> int:
    """How many of `squares` a gradient of this size has."""
    return ceil_div(numbers, PART)


def square(dw: Any, squares: Any, *, place: int, stream: Any = None) -> None:
    """Fill squares[place], … with the sums of the squares of dw's parts."""
    check("clip.square", dw=dw, squares=squares)
    count = parts(size(dw))
    if not 0 <= place <= size(squares) - count:
        raise KernelError(
            f"clip.square: dw has {count} parts from place {place} on, and squares {size(squares)} in all"
        )
    launch(clip_parts, count, dw, squares, size(dw), place, stream=stream)


def norm(squares: Any, norm: Any, *, stream: Any = None) -> None:
    """Fill norm, one number, from all squares."""
    check("clip.norm", squares=squares, norm=norm)
    check_shape("clip.norm", "norm", norm, (1,))
    launch(clip_norm, 1, squares, norm, size(squares), stream=stream)


def apply(norm: Any, dw: Any, *, max_norm: float, stream: Any = None) -> None:
    """Scale dw in place, if the norm is larger than `max_norm`."""
    check("clip.apply", norm=norm, dw=dw)
    check_shape("clip.apply", "norm", norm, (1,))
    launch(clip_apply, tiles(size(dw)), norm, dw, size(dw), max_norm, stream=stream)
