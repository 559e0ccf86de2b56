"""Every channel times a learnt number: y[n, c] = x[n, c] · w[c].

dx = dy · w,   dw[c] = Σ dy · x over images and positions
"""

import numpy as np
from numba import cuda

from kernels.run import maps, run, size


@cuda.jit
def scale_forward(x, w, y):
    """One thread a value."""
    i, c, n = cuda.grid(3)
    if n < x.shape[0] and c < x.shape[1] and i < x.shape[2]:
        y[n, c, i] = x[n, c, i] * w[c]


@cuda.jit
def scale_backward_weights(x, dy, dw):
    """One thread a channel."""
    c = cuda.grid(1)
    if c < x.shape[1]:
        total = np.float32(0)
        for n in range(x.shape[0]):
            for i in range(x.shape[2]):
                total += dy[n, c, i] * x[n, c, i]
        dw[c] = total


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, w, y, *, stream=None):
    run(scale_forward, maps(x).shape[::-1], maps(x), w, maps(y), stream=stream)


def backward(x, w, dy, dx, dw, *, workspace=None, stream=None):
    run(scale_backward_weights, size(dw), maps(x), maps(dy), dw, stream=stream)
    forward(dy, w, dx, stream=stream)  # last: dx may be dy
