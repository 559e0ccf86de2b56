"""The hard Swish: y = x · h(x), h(x) = x / 6 + 1/2, at least 0 and at most 1 (the hard sigmoid).

dx = 0 where x < -3,   dy where x > 3,   dy · (x / 3 + 1/2) between

Rungs:
    kernels.fast.hardswish    four elements a thread
"""

import numpy as np
from numba import cuda

from kernels.run import flat, run, size

ZERO, HALF, ONE, THREE = np.float32(0), np.float32(0.5), np.float32(1), np.float32(3)
SIXTH, THIRD = np.float32(1 / 6), np.float32(1 / 3)


@cuda.jit
def hardswish_forward(x, y):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] * (ZERO if x[i] <= -THREE else ONE if x[i] >= THREE else x[i] * SIXTH + HALF)


@cuda.jit
def hardswish_backward(x, dy, dx):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        dx[i] = dy[i] * (ZERO if x[i] < -THREE else ONE if x[i] > THREE else x[i] * THIRD + HALF)


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, stream=None):
    run(hardswish_forward, size(x), flat(x), flat(y), stream=stream)


def backward(x, dy, dx, *, stream=None):
    run(hardswish_backward, size(x), flat(x), flat(dy), flat(dx), stream=stream)
