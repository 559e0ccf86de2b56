"""A part of the channels or of the rows of every image; the gradient of the others is zero.

y = x[:, start : start + count]   along axis 1,   y = x[:, :, start : start + count]   along axis 2
"""

import numpy as np
from numba import cuda

from kernels.index import unravel
from kernels.run import run, shaped, size


@cuda.jit
def take_forward(x, y, first):
    """One thread an output; `first` is the channel and the row that y begins with."""
    i = cuda.grid(1)
    if i < y.size:
        n, c, h, w = unravel(i, y.shape)
        y[n, c, h, w] = x[n, first[0] + c, first[1] + h, w]


@cuda.jit
def take_backward(dy, dx, first):
    """One thread an input."""
    i = cuda.grid(1)
    if i < dx.size:
        n, channel, row, w = unravel(i, dx.shape)
        c, h = channel - first[0], row - first[1]
        dx[n, channel, row, w] = np.float32(0)
        if 0 <= c < dy.shape[1] and 0 <= h < dy.shape[2]:
            dx[n, channel, row, w] = dy[n, c, h, w]


# --- Launching them --------------------------------------------------------------------------------------------------


def rows(x):
    """x as (images, channels, rows, columns), also with fewer axes or more."""
    return shaped(x, (*(*x.shape, 1)[:3], -1))


def forward(x, y, *, axis=1, start=0, stream=None):
    run(take_forward, size(y), rows(x), rows(y), (start, 0) if axis == 1 else (0, start), stream=stream)


def backward(dy, dx, *, axis=1, start=0, stream=None):
    run(take_backward, size(dx), rows(dy), rows(dx), (start, 0) if axis == 1 else (0, start), stream=stream)
