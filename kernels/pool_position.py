"""Max pooling by position: forward keeps which element of its window each output is; backward needs that and dy alone.

    y[n, c, p, q] = the largest x[n, c, h, w] of window (p, q); position: (h - top)·columns of a window + w - left
    dx[n, c, h, w] = the sum of dy[n, c, p, q] over the windows that have their position there, in the order of `pool`

A position is a byte: `NONE` where the largest value is NaN, whose gradient reaches no element, and where it is 0 of an
x that is `rectified`: the ReLU before would stop the gradient there.  Four bytes are a whole number, the first the
lowest; a map begins with a new one: positions[n, c, k] has those of outputs 4k to 4k + 3.

Rungs:
    kernels.fast.pool_position    for a processor, a map a thread
"""

import numpy as np
from numba import cuda

from kernels.index import larger, smaller, unravel
from kernels.run import run, size

LOWEST = np.float32(-np.inf)
NAN = np.float32(np.nan)
NONE = 127  #: so that four of them are no negative number; windows have at most as many elements


@cuda.jit
def pool_position_forward(x, y, positions, window, stride, pad, without):
    """One thread a whole number: the largest values of four windows, and where the first of each is.

    `without`: a value that has no position, beside NaN.
    """
    i = cuda.grid(1)
    if i < positions.size:
        numbers = positions.shape[2]
        n, c, k = i // (numbers * x.shape[1]), i // numbers % x.shape[1], i % numbers
        packed = 0
        for output in range(4 * k, smaller(4 * k + 4, y.shape[2] * y.shape[3])):
            p, q = output // y.shape[3], output % y.shape[3]
            top, left = p * stride[0] - pad[0], q * stride[1] - pad[1]
            largest, position = LOWEST, -1
            for h in range(larger(top, 0), smaller(top + window[0], x.shape[2])):
                for w in range(larger(left, 0), smaller(left + window[1], x.shape[3])):
                    value = x[n, c, h, w]
                    if position < 0 or value > largest or not value == value:  # NaN wins
                        largest = value
                        position = (h - top) * window[1] + w - left
            y[n, c, p, q] = largest
            if not largest == largest or largest == without:
                position = NONE
            packed += position << (8 * (output % 4))
        positions[n, c, k] = packed


@cuda.jit
def pool_position_backward(positions, dy, dx, window, stride, pad):
    """One thread an input: it gathers the dy of the windows over it that have their largest value there."""
    i = cuda.grid(1)
    if i < dx.size:
        n, c, row, column = unravel(i, dx.shape)
        h, w = row + pad[0], column + pad[1]  # in the map with its padding
        gradient = np.float32(0)
        for p in range(larger(h - window[0] + stride[0], 0) // stride[0], smaller(h // stride[0] + 1, dy.shape[2])):
            for q in range(larger(w - window[1] + stride[1], 0) // stride[1], smaller(w // stride[1] + 1, dy.shape[3])):
                output = p * dy.shape[3] + q
                position = positions[n, c, output // 4] >> (8 * (output % 4)) & 255
                if position == (h - p * stride[0]) * window[1] + w - q * stride[1]:
                    gradient += dy[n, c, p, q]
        dx[n, c, row, column] = gradient


# --- Launching them --------------------------------------------------------------------------------------------------


def positions_shape(y_shape):
    """The shape of the positions of outputs of this shape."""
    return (*y_shape[:2], -(-y_shape[2] * y_shape[3] // 4))


def forward(x, y, positions, *, window, stride, pad=(0, 0), ceil=False, rectified=False, stream=None):
    without = 0.0 if rectified else NAN
    run(pool_position_forward, size(positions), x, y, positions, window, stride, pad[:2], without, stream=stream)


def backward(positions, dy, dx, *, window, stride, pad=(0, 0), ceil=False, stream=None):
    run(pool_position_backward, size(dx), positions, dy, dx, window, stride, pad[:2], stream=stream)
