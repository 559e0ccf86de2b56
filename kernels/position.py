"""A learnt number added to each number of an image: y[n, c, t] = x[n, c, t] + w[c, t], the positions of tokens.

The gradient of w is the sum of dy over the images.  w may also have one number a channel, w[c, 0], for all positions.
"""

import numpy as np
from numba import cuda

from kernels.run import maps, run, shaped


@cuda.jit
def position_forward(x, w, y):
    """One thread a value."""
    t, c, n = cuda.grid(3)
    if n < x.shape[0] and c < x.shape[1] and t < x.shape[2]:
        y[n, c, t] = x[n, c, t] + w[c, t % w.shape[1]]


@cuda.jit
def position_backward(dy, dw):
    """One thread a number of dw."""
    first, c = cuda.grid(2)
    if c < dw.shape[0] and first < dw.shape[1]:
        total = np.float32(0)
        for n in range(dy.shape[0]):
            for t in range(first, dy.shape[2], dw.shape[1]):
                total += dy[n, c, t]
        dw[c, first] = total


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, w, y, *, stream=None):
    run(position_forward, maps(x).shape[::-1], maps(x), shaped(w, (x.shape[1], -1)), maps(y), stream=stream)


def backward(dy, dw, *, stream=None):
    dw = shaped(dw, (dy.shape[1], -1))
    run(position_backward, dw.shape[::-1], maps(dy), dw, stream=stream)
