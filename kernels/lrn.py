"""Local response normalisation: each value is divided by a sum over its channel's neighbours, at its place.

    s[c] = k + scale · Σ x[j]²              over the `size` channels j from c + ahead - size + 1 to c + ahead
    y[c] = x[c] · s[c]^-beta
    dx[c] = dy[c] · s[c]^-beta - 2·scale·beta · x[c] · Σ dy[j]·x[j]·s[j]^(-beta-1)     over the j whose sum has c

x is (images, channels, area).

Rungs:
    kernels.fast.lrn    a walk over the channels, with the last 16 values in shared memory
"""

import numpy as np
from numba import cuda

from kernels.index import larger, smaller
from kernels.run import maps, run

MOST = 16  #: the largest size


@cuda.jit(device=True)
def scaling(x, n, c, i, size, ahead, scale, k):
    """s[c] of one place."""
    squares = np.float32(0)
    for j in range(larger(c + ahead - size + 1, 0), smaller(c + ahead + 1, x.shape[1])):
        squares += x[n, j, i] * x[n, j, i]
    return k + scale * squares


@cuda.jit
def lrn_forward(x, y, size, ahead, scale, beta, k):
    """One thread a value."""
    i, c, n = cuda.grid(3)
    if n < x.shape[0] and c < x.shape[1] and i < x.shape[2]:
        y[n, c, i] = x[n, c, i] * scaling(x, n, c, i, size, ahead, scale, k) ** -beta


@cuda.jit
def lrn_backward(x, dy, dx, size, ahead, scale, beta, k):
    """One thread a place of an image, channel after channel: dx may be dy, so it keeps what it overwrites."""
    i, n = cuda.grid(2)
    if n < x.shape[0] and i < x.shape[2]:
        given = cuda.local.array(MOST, np.float32)
        for c in range(x.shape[1]):
            total = np.float32(0)
            given[c % MOST] = dy[n, c, i]
            for j in range(larger(c - ahead, 0), smaller(c - ahead + size, x.shape[1])):
                dy_j = given[j % MOST] if j <= c else dy[n, j, i]
                total += dy_j * x[n, j, i] * scaling(x, n, j, i, size, ahead, scale, k) ** (-beta - np.float32(1))
            own = given[c % MOST] * scaling(x, n, c, i, size, ahead, scale, k) ** -beta
            dx[n, c, i] = own - np.float32(2) * scale * beta * x[n, c, i] * total


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, size=5, alpha=1e-4, beta=0.75, k=1.0, ahead=None, stream=None):
    x, y, ahead = maps(x), maps(y), (size - 1) // 2 if ahead is None else ahead
    run(lrn_forward, x.shape[::-1], x, y, size, ahead, alpha / size, beta, k, stream=stream)


def backward(x, y, dy, dx, *, size=5, alpha=1e-4, beta=0.75, k=1.0, ahead=None, stream=None):
    x, dy, dx, ahead = maps(x), maps(dy), maps(dx), (size - 1) // 2 if ahead is None else ahead
    run(lrn_backward, (x.shape[2], x.shape[0]), x, dy, dx, size, ahead, alpha / size, beta, k, stream=stream)
