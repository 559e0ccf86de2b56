"""The sigmoid: y = 1 / (1 + exp(-x)), and dx = dy · y · (1 - y).

Rungs:
    kernels.fast.sigmoid    four elements a thread
"""

import math

import numpy as np
from numba import cuda

from kernels.run import flat, run, size

ONE = np.float32(1)


@cuda.jit
def sigmoid_forward(x, y):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = ONE / (ONE + math.exp(-x[i]))


@cuda.jit
def sigmoid_backward(y, dy, dx):
    """One thread a value."""
    i = cuda.grid(1)
    if i < y.size:
        dx[i] = dy[i] * (y[i] * (ONE - y[i]))


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, stream=None):
    run(sigmoid_forward, size(x), flat(x), flat(y), stream=stream)


def backward(y, dy, dx, *, stream=None):
    run(sigmoid_backward, size(y), flat(y), flat(dy), flat(dx), stream=stream)
