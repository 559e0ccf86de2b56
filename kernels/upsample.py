"""Larger maps (or smaller ones) by repeating values, "nearest", or by weighing neighbours, "bilinear".

Output p of P has the position (a·p + b) / c in an axis of H values:

    nearest                     p·H / P                          y = the value at or before it
    bilinear                    ((p + 1/2)·H / P) - 1/2          y = the two values around it, weighed by their distance
    bilinear, align_corners     p·(H - 1) / (P - 1)              likewise; the first and the last values stay

A position before the first value counts as the first.
"""

import numpy as np
from numba import cuda

from kernels.index import larger, smaller, unravel
from kernels.run import run, size

ONE = np.float32(1)


@cuda.jit
def upsample_nearest_forward(x, y):
    """One thread an output."""
    i = cuda.grid(1)
    if i < y.size:
        n, c, p, q = unravel(i, y.shape)
        y[n, c, p, q] = x[n, c, p * x.shape[2] // y.shape[2], q * x.shape[3] // y.shape[3]]


@cuda.jit
def upsample_nearest_backward(dy, dx):
    """One thread a map: the dy of each output is added to the value that it is a copy of."""
    i = cuda.grid(1)
    if i < dx.shape[0] * dx.shape[1]:
        n, c = i // dx.shape[1], i % dx.shape[1]
        for h in range(dx.shape[2]):
            for w in range(dx.shape[3]):
                dx[n, c, h, w] = 0
        for p in range(dy.shape[2]):
            for q in range(dy.shape[3]):
                dx[n, c, p * dx.shape[2] // dy.shape[2], q * dx.shape[3] // dy.shape[3]] += dy[n, c, p, q]


@cuda.jit(device=True)
def around(p, walk, count):
    """The two of `count` values around output p's position, and the weight of the second; walk: a, b, c."""
    a, b, c = walk
    position = larger(a * p + b, 0)
    first = position // c
    return first, smaller(first + 1, count - 1), np.float32(position - first * c) / np.float32(c)


@cuda.jit
def upsample_bilinear_forward(x, y, down, across):
    """One thread an output; `down` and `across` are a, b and c of the rows and of the columns."""
    i = cuda.grid(1)
    if i < y.size:
        n, c, p, q = unravel(i, y.shape)
        top, bottom, below = around(p, down, x.shape[2])
        left, right, beside = around(q, across, x.shape[3])
        above = (ONE - beside) * x[n, c, top, left] + beside * x[n, c, top, right]
        under = (ONE - beside) * x[n, c, bottom, left] + beside * x[n, c, bottom, right]
        y[n, c, p, q] = (ONE - below) * above + below * under


@cuda.jit
def upsample_bilinear_backward(dy, dx, down, across):
    """One thread a map: the dy of each output is shared out to the four values that it was made of."""
    i = cuda.grid(1)
    if i < dx.shape[0] * dx.shape[1]:
        n, c = i // dx.shape[1], i % dx.shape[1]
        for h in range(dx.shape[2]):
            for w in range(dx.shape[3]):
                dx[n, c, h, w] = 0
        for p in range(dy.shape[2]):
            for q in range(dy.shape[3]):
                top, bottom, below = around(p, down, dx.shape[2])
                left, right, beside = around(q, across, dx.shape[3])
                dx[n, c, top, left] += (ONE - below) * (ONE - beside) * dy[n, c, p, q]
                dx[n, c, top, right] += (ONE - below) * beside * dy[n, c, p, q]
                dx[n, c, bottom, left] += below * (ONE - beside) * dy[n, c, p, q]
                dx[n, c, bottom, right] += below * beside * dy[n, c, p, q]


# --- Launching them --------------------------------------------------------------------------------------------------


def places(count, outputs, align_corners):
    """a, b and c of an axis."""
    return (count - 1, 0, max(outputs - 1, 1)) if align_corners else (2 * count, count - outputs, 2 * outputs)


def forward(x, y, *, mode="nearest", align_corners=False, stream=None):
    if mode == "nearest":
        return run(upsample_nearest_forward, size(y), x, y, stream=stream)
    walks = (places(*axis, align_corners) for axis in zip(x.shape[2:], y.shape[2:], strict=True))
    run(upsample_bilinear_forward, size(y), x, y, *walks, stream=stream)


def backward(dy, dx, *, mode="nearest", align_corners=False, stream=None):
    maps = dx.shape[0] * dx.shape[1]
    if mode == "nearest":
        return run(upsample_nearest_backward, maps, dy, dx, stream=stream)
    walks = (places(*axis, align_corners) for axis in zip(dx.shape[2:], dy.shape[2:], strict=True))
    run(upsample_bilinear_backward, maps, dy, dx, *walks, stream=stream)
