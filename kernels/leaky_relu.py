"""The leaky ReLU: y = x where x > 0, else slope · x, and dx = dy where y > 0, else slope · dy; the slope is above 0."""

import numpy as np
from numba import cuda

from kernels.run import flat, run, size

ZERO = np.float32(0)


@cuda.jit
def leaky_relu_forward(x, y, slope):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] if x[i] > ZERO else slope * x[i]


@cuda.jit
def leaky_relu_backward(y, dy, dx, slope):
    """One thread a value; the sign of y is that of x."""
    i = cuda.grid(1)
    if i < y.size:
        dx[i] = dy[i] if y[i] > ZERO else slope * dy[i]


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, negative_slope, stream=None):
    run(leaky_relu_forward, size(x), flat(x), flat(y), float(negative_slope), stream=stream)


def backward(y, dy, dx, *, negative_slope, stream=None):
    run(leaky_relu_backward, size(y), flat(y), flat(dy), flat(dx), float(negative_slope), stream=stream)
