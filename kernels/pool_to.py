"""Pooling of maps to a given size: P × Q outputs a map, whatever the map's size (PyTorch's adaptive pooling).

Window (p, q) has the rows from p·H // P to ((p + 1)·H - 1) // P of the map's H, and columns likewise; windows overlap.

Rungs:
    kernels.fast.pool    backward asks each input which windows have it
"""

import numpy as np
from numba import cuda

from kernels.index import unravel
from kernels.run import run, size

LOWEST = np.float32(-np.inf)


@cuda.jit(device=True)
def begin(p, count, size):
    """The first row of window p of `count` on `size` rows."""
    return p * size // count


@cuda.jit(device=True)
def end(p, count, size):
    """The row after the last of window p."""
    return ((p + 1) * size - 1) // count + 1


@cuda.jit
def pool_to_max_forward(x, y):
    """One thread an output: the largest value of its window."""
    i = cuda.grid(1)
    if i < y.size:
        n, c, p, q = unravel(i, y.shape)
        largest = LOWEST
        for h in range(begin(p, y.shape[2], x.shape[2]), end(p, y.shape[2], x.shape[2])):
            for w in range(begin(q, y.shape[3], x.shape[3]), end(q, y.shape[3], x.shape[3])):
                value = x[n, c, h, w]
                if value > largest or not value == value:  # NaN wins, although nothing compares with it
                    largest = value
        y[n, c, p, q] = largest


@cuda.jit
def pool_to_max_backward(x, y, dy, dx):
    """One thread a map, as windows overlap: the dy of each goes to the first of its elements that is the largest."""
    i = cuda.grid(1)
    if i < dx.shape[0] * dx.shape[1]:
        n, c = i // dx.shape[1], i % dx.shape[1]
        for h in range(dx.shape[2]):
            for w in range(dx.shape[3]):
                dx[n, c, h, w] = 0
        for p in range(y.shape[2]):
            for q in range(y.shape[3]):
                found = False
                for h in range(begin(p, y.shape[2], x.shape[2]), end(p, y.shape[2], x.shape[2])):
                    for w in range(begin(q, y.shape[3], x.shape[3]), end(q, y.shape[3], x.shape[3])):
                        if x[n, c, h, w] == y[n, c, p, q] and not found:
                            dx[n, c, h, w] += dy[n, c, p, q]
                            found = True


@cuda.jit
def pool_to_average_forward(x, y):
    """One thread an output: the mean of its window."""
    i = cuda.grid(1)
    if i < y.size:
        n, c, p, q = unravel(i, y.shape)
        top, bottom = begin(p, y.shape[2], x.shape[2]), end(p, y.shape[2], x.shape[2])
        left, right = begin(q, y.shape[3], x.shape[3]), end(q, y.shape[3], x.shape[3])
        total = np.float32(0)
        for h in range(top, bottom):
            for w in range(left, right):
                total += x[n, c, h, w]
        y[n, c, p, q] = total / np.float32((bottom - top) * (right - left))


@cuda.jit
def pool_to_average_backward(dy, dx):
    """One thread a map: the dy of each window, divided by its size, is added to all of its elements."""
    i = cuda.grid(1)
    if i < dx.shape[0] * dx.shape[1]:
        n, c = i // dx.shape[1], i % dx.shape[1]
        for h in range(dx.shape[2]):
            for w in range(dx.shape[3]):
                dx[n, c, h, w] = 0
        for p in range(dy.shape[2]):
            for q in range(dy.shape[3]):
                top, bottom = begin(p, dy.shape[2], dx.shape[2]), end(p, dy.shape[2], dx.shape[2])
                left, right = begin(q, dy.shape[3], dx.shape[3]), end(q, dy.shape[3], dx.shape[3])
                for h in range(top, bottom):
                    for w in range(left, right):
                        dx[n, c, h, w] += dy[n, c, p, q] / np.float32((bottom - top) * (right - left))


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, mode, stream=None):
    run(pool_to_max_forward if mode == "max" else pool_to_average_forward, size(y), x, y, stream=stream)


def backward(x, y, dy, dx, mode, stream=None):
    maps = dx.shape[0] * dx.shape[1]
    if mode == "max":
        run(pool_to_max_backward, maps, x, y, dy, dx, stream=stream)
    else:
        run(pool_to_average_backward, maps, dy, dx, stream=stream)
