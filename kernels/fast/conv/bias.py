"""The bias of a convolution, for every algorithm: adding it to the output, and its gradient.

    add_bias:   y[n, k, p, q] += b[k]      (implicit_gemm adds it itself, without a pass of its own)
    gradient:   db[k] = sum over n, p, q of dy[n, k, p, q]

add_bias: one thread an output; n·k·p·q additions; reads and writes y once: 8 bytes an output.
gradient: one block of 1024 threads a filter; n·p·q additions a filter; reads dy once: 4 bytes an output.  Thread t
    sums elements t, t + 1024, t + 2048, … of its filter, four running sums side by side so that four reads are under
    way at a time; then the block adds the threads' sums in a tree.  The order is always the same, and so is every bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

THREADS = 1024
ZERO = np.float32(0)


@kernel(block=256)
def conv_add_bias(bias: Floats, y: Floats, total: int, filters: int, by_filters: int, by_area: int) -> None:
    """y = y + the bias of its filter, one thread an element."""
    i = cuda.grid(1)
    if i < total:
        plane = divide(i, by_area)  # number of the map: filter k of some image
        k = plane - divide(plane, by_filters) * filters
        y[np.uint32(i)] += bias[np.uint32(k)]


@kernel(block=THREADS)
def conv_bias_gradient(dy: Floats, db: Floats, images: int, filters: int, area: int, by_area: int) -> None:
    """One block a filter: dy over images and positions, first each thread's share, then the shares in a tree."""
    sums = cuda.shared.array(THREADS, np.float32)
    part = cuda.local.array(4, np.float32)
    value = cuda.local.array(4, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    k = np.int64(cuda.blockIdx.x)
    count = images * area  # elements of this filter; element e belongs to image e // area
    for i in range(4):
        part[i] = ZERO
    first = np.int64(t)
    while first < count:
        for i in range(4):
            e = first + i * THREADS
            value[i] = ZERO
            if e < count:
                value[i] = dy[np.uint32((divide(e, by_area) * (filters - 1) + k) * area + e)]
        for i in range(4):  # only now: an addition among the reads would wait for each of them
            part[i] += value[i]
        first += 4 * THREADS
    sums[t] = (part[0] + part[1]) + (part[2] + part[3])
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[t] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        db[np.uint32(k)] = sums[0]


def add_bias(b: Any, y: Any, stream: Any) -> None:
    """y[n, k, :, :] += b[k] in place."""
    images, filters, height, width = y.shape
    area, total = height * width, images * filters * height * width
    by = reciprocal(filters), reciprocal(area)
    launch(conv_add_bias, ceil_div(total, 256), b, y, total, filters, *by, stream=stream)


def gradient(dy: Any, db: Any, stream: Any) -> None:
    """db[k] = the sum of dy[:, k, :, :]."""
    images, filters, height, width = dy.shape
    area = height * width
    launch(conv_bias_gradient, filters, dy, db, images, filters, area, reciprocal(area), stream=stream)
