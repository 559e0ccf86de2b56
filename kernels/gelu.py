"""The Gaussian error linear unit: y = x · Φ(x), Φ(x) = (1 + erf(x / √2)) / 2, and dx = dy · (Φ(x) + x · φ(x)).

φ(x) = exp(-x² / 2) / √(2π) is the slope of Φ.  With approximate="tanh" Φ(x) is (1 + tanh u) / 2 instead,
u = √(2/π) · (x + 0.044715 · x³).

Rungs:
    kernels.fast.gelu    four elements a thread
"""

import math

import numpy as np
from numba import cuda

from kernels.run import flat, run, size

HALF, ONE = np.float32(0.5), np.float32(1)
ROOT_HALF, DENSITY = np.float32(math.sqrt(0.5)), np.float32(1 / math.sqrt(2 * math.pi))
SLOPE, CUBIC, CUBIC_SLOPE = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715), np.float32(3 * 0.044715)


@cuda.jit
def gelu_forward(x, y):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = HALF * x[i] * (ONE + math.erf(x[i] * ROOT_HALF))


@cuda.jit
def gelu_backward(x, dy, dx):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        below = HALF * (ONE + math.erf(x[i] * ROOT_HALF))
        dx[i] = dy[i] * (below + x[i] * DENSITY * math.exp(-HALF * x[i] * x[i]))


@cuda.jit
def gelu_tanh_forward(x, y):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = HALF * x[i] * (ONE + math.tanh(SLOPE * (x[i] + CUBIC * x[i] * x[i] * x[i])))


@cuda.jit
def gelu_tanh_backward(x, dy, dx):
    """One thread a value; the slope of tanh u is (1 - tanh u) · (1 + tanh u)."""
    i = cuda.grid(1)
    if i < x.size:
        t = math.tanh(SLOPE * (x[i] + CUBIC * x[i] * x[i] * x[i]))
        du = SLOPE * (ONE + CUBIC_SLOPE * x[i] * x[i])
        dx[i] = dy[i] * (HALF * (ONE + t) + HALF * x[i] * (ONE - t) * (ONE + t) * du)


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, approximate="none", stream=None):
    run(gelu_tanh_forward if approximate == "tanh" else gelu_forward, size(x), flat(x), flat(y), stream=stream)


def backward(x, dy, dx, *, approximate="none", stream=None):
    kernel = gelu_tanh_backward if approximate == "tanh" else gelu_backward
    run(kernel, size(x), flat(x), flat(dy), flat(dx), stream=stream)
