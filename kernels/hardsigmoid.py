"""The hard sigmoid: y = x / 6 + 1/2, at least 0 and at most 1, and dx = dy / 6 where 0 < y < 1, else 0."""

import numpy as np
from numba import cuda

from kernels.run import flat, run, size

ZERO, HALF, ONE, THREE, SIXTH = np.float32(0), np.float32(0.5), np.float32(1), np.float32(3), np.float32(1 / 6)


@cuda.jit
def hardsigmoid_forward(x, y):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = ZERO if x[i] <= -THREE else ONE if x[i] >= THREE else x[i] * SIXTH + HALF


@cuda.jit
def hardsigmoid_backward(y, dy, dx):
    """One thread a value."""
    i = cuda.grid(1)
    if i < y.size:
        dx[i] = dy[i] * (ZERO if y[i] <= ZERO or y[i] >= ONE else SIXTH)


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, stream=None):
    run(hardsigmoid_forward, size(x), flat(x), flat(y), stream=stream)


def backward(y, dy, dx, *, stream=None):
    run(hardsigmoid_backward, size(y), flat(y), flat(dy), flat(dx), stream=stream)
