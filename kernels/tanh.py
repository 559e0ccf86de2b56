"""The hyperbolic tangent: y = tanh(x), and dx = dy · (1 - y) · (1 + y), which is dy · (1 - y²)."""

import math

import numpy as np
from numba import cuda

from kernels.run import flat, run, size

ONE = np.float32(1)


@cuda.jit
def tanh_forward(x, y):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = math.tanh(x[i])


@cuda.jit
def tanh_backward(y, dy, dx):
    """One thread a value."""
    i = cuda.grid(1)
    if i < y.size:
        dx[i] = dy[i] * ((ONE - y[i]) * (ONE + y[i]))


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, stream=None):
    run(tanh_forward, size(x), flat(x), flat(y), stream=stream)


def backward(y, dy, dx, *, stream=None):
    run(tanh_backward, size(y), flat(y), flat(dy), flat(dx), stream=stream)
