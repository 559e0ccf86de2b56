"""Values mixed by probabilities that are a map (`scores`): of every query, the mean of the values that its row weighs.

    y[n, h, c, i] = Σ over j of x[n, h, c, j] · p[n, h, i, j]
    dx[n, h, c, j] = Σ over i of dy[n, h, c, i] · p[n, h, i, j]       dp[n, h, i, j] = Σ over c of dy[c, i] · x[c, j]

for head h of image n, channel c of it, query i and key j.
"""

import numpy as np
from numba import cuda

from kernels.index import unravel
from kernels.run import run, shaped, size

ZERO = np.float32(0)


@cuda.jit
def mix_forward(p, x, y):
    """One thread a channel of a query."""
    e = cuda.grid(1)
    if e < y.size:
        n, h, c, i = unravel(e, y.shape)
        total = ZERO
        for j in range(x.shape[3]):
            total += x[n, h, c, j] * p[n, h, i, j]
        y[n, h, c, i] = total


@cuda.jit
def mix_backward_values(p, dy, dx):
    """One thread a channel of a key."""
    e = cuda.grid(1)
    if e < dx.size:
        n, h, c, j = unravel(e, dx.shape)
        total = ZERO
        for i in range(dy.shape[3]):
            total += dy[n, h, c, i] * p[n, h, i, j]
        dx[n, h, c, j] = total


@cuda.jit
def mix_backward_probabilities(x, dy, dp):
    """One thread a query and a key."""
    e = cuda.grid(1)
    if e < dp.size:
        n, h, i, j = unravel(e, dp.shape)
        total = ZERO
        for c in range(x.shape[2]):
            total += dy[n, h, c, i] * x[n, h, c, j]
        dp[n, h, i, j] = total


# --- Launching them --------------------------------------------------------------------------------------------------


def heads(x, p):
    """x as (images, heads, channels of a head, tokens)."""
    return shaped(x, (*p.shape[:2], x.shape[1] // p.shape[1], -1))


def forward(p, x, y, *, causal=False, stream=None):
    run(mix_forward, size(y), p, heads(x, p), heads(y, p), stream=stream)


def backward(p, x, dy, dp, dx, *, causal=False, stream=None):
    run(mix_backward_values, size(dx), p, heads(dy, p), heads(dx, p), stream=stream)
    run(mix_backward_probabilities, size(dp), heads(x, p), heads(dy, p), dp, stream=stream)
