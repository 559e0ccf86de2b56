"""Attention's probabilities as a map: of every query, the softmax of its products with all keys, head by head.

    s[i, j] = q[i] · k[j] / √channels                      p = softmax of every row of s
    ds = p · (dp - Σ over the row of p · dp) / √channels   dq[i] = Σ over j of ds · k[j]   dk[j] = Σ over i of ds · q[i]

x[n, h, 0, c, i] is channel c of query i of head h, and x[n, h, 1, c, j] of key j.  `causal`: token i sees tokens 0 … i
alone, and the other probabilities are 0.  `mix` comes after it; `attention` does both and keeps no probabilities.
"""

import math

import numpy as np
from numba import cuda

from kernels.index import larger, unravel
from kernels.run import run, shaped, size

ZERO = np.float32(0)


@cuda.jit
def scores_forward(x, s, scale):
    """One thread a product of a query and a key."""
    e = cuda.grid(1)
    if e < s.size:
        n, h, i, j = unravel(e, s.shape)
        total = ZERO
        for c in range(x.shape[3]):
            total += x[n, h, 0, c, i] * x[n, h, 1, c, j]
        s[n, h, i, j] = scale * total


@cuda.jit
def scores_softmax(s, causal):
    """One thread a row, in place; s is (heads of all images, queries, keys)."""
    i, h = cuda.grid(2)
    if h < s.shape[0] and i < s.shape[1]:
        seen = i + 1 if causal else s.shape[2]
        largest, total = s[h, i, 0], ZERO
        for j in range(seen):
            largest = larger(largest, s[h, i, j])
        for j in range(seen):
            s[h, i, j] = math.exp(s[h, i, j] - largest)
            total += s[h, i, j]
        for j in range(s.shape[2]):
            s[h, i, j] = s[h, i, j] / total if j < seen else ZERO


@cuda.jit
def scores_softmax_backward(p, dp, causal):
    """One thread a row: dp becomes ds, which is 0 where p is."""
    i, h = cuda.grid(2)
    if h < p.shape[0] and i < p.shape[1]:
        seen = i + 1 if causal else p.shape[2]
        total = ZERO
        for j in range(seen):
            total += p[h, i, j] * dp[h, i, j]
        for j in range(p.shape[2]):
            dp[h, i, j] = p[h, i, j] * (dp[h, i, j] - total) if j < seen else ZERO


@cuda.jit
def scores_backward(x, ds, dx, scale):
    """One thread a channel of a token: the gradients of its query and of its key."""
    e = cuda.grid(1)
    if e < dx.size // 2:
        n, h, c, t = unravel(e, (x.shape[0], x.shape[1], x.shape[3], x.shape[4]))
        query, key = ZERO, ZERO
        for other in range(x.shape[4]):
            query += x[n, h, 1, c, other] * ds[n, h, t, other]
            key += x[n, h, 0, c, other] * ds[n, h, other, t]
        dx[n, h, 0, c, t] = scale * query
        dx[n, h, 1, c, t] = scale * key


# --- Launching them --------------------------------------------------------------------------------------------------


def pairs(x, heads):
    """x as (images, heads, 2, channels, tokens), and 1 / √channels."""
    width = x.shape[1] // (2 * heads)
    return shaped(x, (x.shape[0], heads, 2, width, -1)), width**-0.5


def rows(y):
    return shaped(y, (y.shape[0] * y.shape[1], *y.shape[2:]))


def forward(x, y, *, heads, causal=False, stream=None):
    each, scale = pairs(x, heads)
    run(scores_forward, size(y), each, y, scale, stream=stream)


def softmax(y, *, causal=False, stream=None):
    run(scores_softmax, (y.shape[2], y.shape[0] * y.shape[1]), rows(y), int(causal), stream=stream)


def softmax_backward(y, dy, *, causal=False, stream=None):
    run(scores_softmax_backward, (y.shape[2], y.shape[0] * y.shape[1]), rows(y), rows(dy), int(causal), stream=stream)


def backward(x, dy, dx, *, heads, causal=False, stream=None):
    (each, scale), (slopes, _) = pairs(x, heads), pairs(dx, heads)
    run(scores_backward, size(x) // 2, each, dy, slopes, scale, stream=stream)
