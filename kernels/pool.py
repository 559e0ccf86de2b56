"""Pooling: the largest value, or the mean, of every window of every map.

Window (p, q) has the rows from top = p·stride - pad to top + window - 1, and columns likewise; positions outside of the
map are not read.  `pool_to` pools to a given size.

Rungs:
    kernels.fast.pool    backward asks each input which windows have it; for a processor, a map a thread
"""

from importlib import import_module

import numpy as np
from numba import cuda

from kernels.index import larger, smaller, unravel
from kernels.run import run, size

LOWEST = np.float32(-np.inf)


@cuda.jit
def pool_max_forward(x, y, window, stride, pad):
    """One thread an output: y[n, c, p, q] = the largest x[n, c, h, w] of its window."""
    i = cuda.grid(1)
    if i < y.size:
        n, c, p, q = unravel(i, y.shape)
        top, left = p * stride[0] - pad[0], q * stride[1] - pad[1]
        largest = LOWEST
        for h in range(larger(top, 0), smaller(top + window[0], x.shape[2])):
            for w in range(larger(left, 0), smaller(left + window[1], x.shape[3])):
                value = x[n, c, h, w]
                if value > largest or not value == value:  # NaN wins, although nothing compares with it
                    largest = value
        y[n, c, p, q] = largest


@cuda.jit
def pool_max_backward(x, y, dy, dx, window, stride, pad):
    """One thread a map, as windows overlap: the dy of each goes to the first of its elements that is the largest."""
    i = cuda.grid(1)
    if i < dx.shape[0] * dx.shape[1]:
        n, c = i // dx.shape[1], i % dx.shape[1]
        for h in range(dx.shape[2]):
            for w in range(dx.shape[3]):
                dx[n, c, h, w] = 0
        for p in range(y.shape[2]):
            for q in range(y.shape[3]):
                top, left = p * stride[0] - pad[0], q * stride[1] - pad[1]
                found = False
                for h in range(larger(top, 0), smaller(top + window[0], x.shape[2])):
                    for w in range(larger(left, 0), smaller(left + window[1], x.shape[3])):
                        if x[n, c, h, w] == y[n, c, p, q] and not found:
                            dx[n, c, h, w] += dy[n, c, p, q]
                            found = True


@cuda.jit(device=True)
def counted(first, window, size, before, after):
    """Rows of a window that an average divides by: those in the map and in the padding that counts."""
    return smaller(first + window, size + after) - larger(first, -before)


@cuda.jit
def pool_average_forward(x, y, window, stride, pad, border):
    """One thread an output: its window's sum / size.  `border`: the padding that counts, top, left, bottom, right."""
    i = cuda.grid(1)
    if i < y.size:
        n, c, p, q = unravel(i, y.shape)
        top, left = p * stride[0] - pad[0], q * stride[1] - pad[1]
        total = np.float32(0)
        for h in range(larger(top, 0), smaller(top + window[0], x.shape[2])):
            for w in range(larger(left, 0), smaller(left + window[1], x.shape[3])):
                total += x[n, c, h, w]
        rows = counted(top, window[0], x.shape[2], border[0], border[2])
        columns = counted(left, window[1], x.shape[3], border[1], border[3])
        y[n, c, p, q] = total / np.float32(rows * columns)


@cuda.jit
def pool_average_backward(dy, dx, window, stride, pad, border):
    """One thread a map: the dy of each window, divided by its size, is added to all of its elements."""
    i = cuda.grid(1)
    if i < dx.shape[0] * dx.shape[1]:
        n, c = i // dx.shape[1], i % dx.shape[1]
        for h in range(dx.shape[2]):
            for w in range(dx.shape[3]):
                dx[n, c, h, w] = 0
        for p in range(dy.shape[2]):
            for q in range(dy.shape[3]):
                top, left = p * stride[0] - pad[0], q * stride[1] - pad[1]
                rows = counted(top, window[0], dx.shape[2], border[0], border[2])
                columns = counted(left, window[1], dx.shape[3], border[1], border[3])
                for h in range(larger(top, 0), smaller(top + window[0], dx.shape[2])):
                    for w in range(larger(left, 0), smaller(left + window[1], dx.shape[3])):
                        dx[n, c, h, w] += dy[n, c, p, q] / np.float32(rows * columns)


# --- Launching them --------------------------------------------------------------------------------------------------


def four_sides(pad):
    """Padding as (top, left, bottom, right)."""
    return (*pad, *pad) if len(pad) == 2 else tuple(pad)


def forward(x, y, *, window, stride, pad=(0, 0), mode="max", ceil=False, count_padding=True, stream=None):
    if mode == "max":
        run(pool_max_forward, size(y), x, y, window, stride, pad[:2], stream=stream)
    else:
        border = four_sides(pad) if count_padding else (0, 0, 0, 0)
        run(pool_average_forward, size(y), x, y, window, stride, pad[:2], border, stream=stream)


def backward(x, y, dy, dx, *, window, stride, pad=(0, 0), mode="max", ceil=False, count_padding=True, stream=None):
    maps = dx.shape[0] * dx.shape[1]
    if mode == "max":
        run(pool_max_backward, maps, x, y, dy, dx, window, stride, pad[:2], stream=stream)
    else:
        border = four_sides(pad) if count_padding else (0, 0, 0, 0)
        run(pool_average_backward, maps, dy, dx, window, stride, pad[:2], border, stream=stream)


def forward_to(x, y, *, out, mode="average", stream=None):
    import_module("kernels.pool_to").forward(x, y, mode, stream)


def backward_to(x, y, dy, dx, *, out, mode="average", stream=None):
    import_module("kernels.pool_to").backward(x, y, dy, dx, mode, stream)
