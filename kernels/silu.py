"""SiLU, also called Swish: y = x · s with the sigmoid s = 1 / (1 + exp(-x)), and dx = dy · s · (1 + x · (1 - s)).

Rungs:
    kernels.fast.silu    four elements a thread
"""

import math

import numpy as np
from numba import cuda

from kernels.run import flat, run, size

ONE = np.float32(1)


@cuda.jit
def silu_forward(x, y):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] / (ONE + math.exp(-x[i]))


@cuda.jit
def silu_backward(x, dy, dx):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        s = ONE / (ONE + math.exp(-x[i]))
        dx[i] = dy[i] * (s * (ONE + x[i] * (ONE - s)))


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, stream=None):
    run(silu_forward, size(x), flat(x), flat(y), stream=stream)


def backward(x, dy, dx, *, stream=None):
    run(silu_backward, size(x), flat(x), flat(dy), flat(dx), stream=stream)
