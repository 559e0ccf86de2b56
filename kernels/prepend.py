"""A learnt token before an image's own: y[n, c, 0] = w[c], y[n, c, 1 + t] = x[n, c, t].

The gradient of w[c] is the sum of dy[n, c, 0] over the images.
"""

import numpy as np
from numba import cuda

from kernels.run import flat, maps, run, size


@cuda.jit
def prepend_forward(x, w, y):
    """One thread an output."""
    t, c, n = cuda.grid(3)
    if n < y.shape[0] and c < y.shape[1] and t < y.shape[2]:
        y[n, c, t] = w[c] if t == 0 else x[n, c, t - 1]


@cuda.jit
def prepend_backward_data(dy, dx):
    """One thread an input."""
    t, c, n = cuda.grid(3)
    if n < dx.shape[0] and c < dx.shape[1] and t < dx.shape[2]:
        dx[n, c, t] = dy[n, c, t + 1]


@cuda.jit
def prepend_backward_weights(dy, dw):
    """One thread a channel."""
    c = cuda.grid(1)
    if c < dw.size:
        total = np.float32(0)
        for n in range(dy.shape[0]):
            total += dy[n, c, 0]
        dw[c] = total


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, w, y, *, stream=None):
    run(prepend_forward, maps(y).shape[::-1], maps(x), flat(w), maps(y), stream=stream)


def backward(dy, dx, dw, *, stream=None):
    if dx is not None:
        run(prepend_backward_data, maps(dx).shape[::-1], maps(dy), maps(dx), stream=stream)
    run(prepend_backward_weights, size(dw), maps(dy), flat(dw), stream=stream)
