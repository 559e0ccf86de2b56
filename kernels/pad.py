"""Rows and columns of one number around maps; pad is top, left, bottom, right.  The gradient leaves them out."""

from numba import cuda

from kernels.index import unravel
from kernels.run import run, size


@cuda.jit
def pad_forward(x, y, pad, value):
    """One thread an output."""
    i = cuda.grid(1)
    if i < y.size:
        n, c, p, q = unravel(i, y.shape)
        h, w = p - pad[0], q - pad[1]
        y[n, c, p, q] = value
        if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
            y[n, c, p, q] = x[n, c, h, w]


@cuda.jit
def pad_backward(dy, dx, pad):
    """One thread an input."""
    i = cuda.grid(1)
    if i < dx.size:
        n, c, h, w = unravel(i, dx.shape)
        dx[n, c, h, w] = dy[n, c, h + pad[0], w + pad[1]]


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, pad, value=0.0, stream=None):
    run(pad_forward, size(y), x, y, tuple(pad), float(value), stream=stream)


def backward(dy, dx, *, pad, value=0.0, stream=None):
    run(pad_backward, size(dx), dy, dx, tuple(pad), stream=stream)
