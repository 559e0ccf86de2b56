"""ReLU: y = max(x, 0).

Rungs:
    kernels.fast.relu    four elements a thread
"""

import numpy as np
from numba import cuda

from kernels.run import flat, run, size

ZERO = np.float32(0)


@cuda.jit
def relu_forward(x, y):
    """y = x where x is above zero (or not a number), else 0."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = ZERO if x[i] <= ZERO else x[i]


@cuda.jit
def relu_backward(y, dy, dx):
    """dx = dy where y is above zero, else 0."""
    i = cuda.grid(1)
    if i < y.size:
        dx[i] = ZERO if y[i] <= ZERO else dy[i]


@cuda.jit
def relu_clipped_forward(x, y, limit):
    """y = x, at least 0 and at most the limit."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = limit if x[i] >= limit else ZERO if x[i] <= ZERO else x[i]


@cuda.jit
def relu_clipped_backward(y, dy, dx, limit):
    """dx = dy where y is above zero and below the limit, else 0."""
    i = cuda.grid(1)
    if i < y.size:
        dx[i] = ZERO if y[i] <= ZERO or y[i] >= limit else dy[i]


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, at_most=None, stream=None):
    if at_most is not None:
        return run(relu_clipped_forward, size(x), flat(x), flat(y), float(at_most), stream=stream)
    run(relu_forward, size(x), flat(x), flat(y), stream=stream)


def backward(y, dy, dx, *, at_most=None, stream=None):
    if at_most is not None:
        return run(relu_clipped_backward, size(y), flat(y), flat(dy), flat(dx), float(at_most), stream=stream)
    run(relu_backward, size(y), flat(y), flat(dy), flat(dx), stream=stream)
