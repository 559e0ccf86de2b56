"""Attention: every token's mean of the values, weighted by how well its query fits the keys, head by head.

    s[i, j] = q[i] · k[j] / √channels       p = softmax of every row of s       y[i] = Σ over j of p[i, j] · v[j]
    dp[i, j] = dy[i] · v[j]                 ds = p · (dp - Σ over the row of p · dp) / √channels
    dv[j] = Σ over i of p[i, j] · dy[i]     dq[i] = Σ over j of ds[i, j] · k[j]     dk[j] = Σ over i of ds[i, j] · q[i]

for query q[i], key k[j] and value v[j], each of some channels.  Nothing of s and p is kept: each is computed where it
is needed (`scores` and `mix` keep them).  `causal`: token i sees tokens 0 … i alone.  A group of queries may share a
key and a value, so that all arrays have five axes: q[n, g, m, c, i] is channel c of member m of group g.  Where
queries, keys and values are one map, a group has its queries first, then its key, then its value; `kv` is the members
that are the key and the value.

Rungs:
    kernels.fast.attention    products by `kernels.fast.gemm`, and many threads a row of probabilities, in a workspace
"""

import math

import numpy as np
from numba import cuda

from kernels.index import larger
from kernels.run import run, shaped

ZERO, ONE = np.float32(0), np.float32(1)


@cuda.jit(device=True)
def dot(a, b, n, g, m, other, i, j):
    """Token i of a's member m times token j of b's member `other`: the sum over a head's channels."""
    total = ZERO
    for c in range(a.shape[3]):
        total += a[n, g, m, c, i] * b[n, g, other, c, j]
    return total


@cuda.jit
def attention_forward(q, k, v, y, kv, causal):
    """One thread a query: its largest product, then the values times exponentials, then both by the sum of those."""
    i, h = cuda.grid(2)
    if i < y.shape[4] and h < y.shape[0] * y.shape[1] * y.shape[2]:
        n, g, m = h // (y.shape[1] * y.shape[2]), h // y.shape[2] % y.shape[1], h % y.shape[2]
        seen, scale = i + 1 if causal else k.shape[4], ONE / math.sqrt(np.float32(q.shape[3]))
        largest, total = scale * dot(q, k, n, g, m, kv[0], i, 0), ZERO
        for j in range(seen):
            largest = larger(largest, scale * dot(q, k, n, g, m, kv[0], i, j))
        for c in range(y.shape[3]):
            y[n, g, m, c, i] = ZERO
        for j in range(seen):
            grown = math.exp(scale * dot(q, k, n, g, m, kv[0], i, j) - largest)
            total += grown
            for c in range(y.shape[3]):
                y[n, g, m, c, i] += grown * v[n, g, kv[1], c, j]
        for c in range(y.shape[3]):
            y[n, g, m, c, i] /= total


@cuda.jit(device=True)
def row(q, k, v, dy, n, g, m, kv, i, seen):
    """Of query i: its largest product, the sum of the exponentials, and Σ p · dp."""
    (key, value), scale = kv, ONE / math.sqrt(np.float32(q.shape[3]))
    largest, total, products = scale * dot(q, k, n, g, m, key, i, 0), ZERO, ZERO
    for j in range(seen):
        largest = larger(largest, scale * dot(q, k, n, g, m, key, i, j))
    for j in range(seen):
        grown = math.exp(scale * dot(q, k, n, g, m, key, i, j) - largest)
        total += grown
        products += grown * dot(dy, v, n, g, m, value, i, j)
    return largest, total, products / total


@cuda.jit
def attention_backward(q, k, v, dy, dq, dk, dv, kv, causal):
    """One thread a group, query after query: each of them adds to the gradients of the keys and values that it sees."""
    h = cuda.grid(1)
    if h < dy.shape[0] * dy.shape[1]:
        n, g, scale = h // dy.shape[1], h % dy.shape[1], ONE / math.sqrt(np.float32(q.shape[3]))
        for c in range(q.shape[3]):
            for j in range(k.shape[4]):
                dk[n, g, kv[0], c, j] = dv[n, g, kv[1], c, j] = ZERO
        for m in range(dy.shape[2]):
            for i in range(dy.shape[4]):
                seen = i + 1 if causal else k.shape[4]
                largest, total, products = row(q, k, v, dy, n, g, m, kv, i, seen)
                for c in range(q.shape[3]):
                    dq[n, g, m, c, i] = ZERO
                for j in range(seen):
                    p = math.exp(scale * dot(q, k, n, g, m, kv[0], i, j) - largest) / total
                    ds = scale * p * (dot(dy, v, n, g, m, kv[1], i, j) - products)
                    for c in range(q.shape[3]):
                        dv[n, g, kv[1], c, j] += p * dy[n, g, m, c, i]
                        dq[n, g, m, c, i] += ds * k[n, g, kv[0], c, j]
                        dk[n, g, kv[0], c, j] += ds * q[n, g, m, c, i]


# --- Launching them --------------------------------------------------------------------------------------------------


def groups(maps, heads, kv_heads):
    """One map or three as queries, keys and values with five axes, and the members that keys and values are."""
    each = kv_heads or heads
    packed = len(maps) == 1
    width = maps[0].shape[1] // (heads + 2 * each if packed else heads)
    views = [shaped(x, (x.shape[0], each, x.shape[1] // each // width, width, math.prod(x.shape[2:]))) for x in maps]
    return (views * 3, (heads // each, heads // each + 1)) if packed else (views, (0, 0))


def forward(inputs, y, *, heads, kv_heads=None, causal=False, algorithm=None, workspace=None, stream=None):
    arrays, kv = groups(inputs, heads, kv_heads)
    y = shaped(y, (y.shape[0], kv_heads or heads, heads // (kv_heads or heads), arrays[0].shape[3], -1))
    threads = y.shape[4], math.prod(y.shape[:3])
    run(attention_forward, threads, *arrays, y, kv, int(causal), stream=stream)


def backward(inputs, dy, dxs, *, heads, kv_heads=None, causal=False, algorithm=None, workspace=None, stream=None):
    (arrays, kv), (slopes, _) = groups(inputs, heads, kv_heads), groups(dxs, heads, kv_heads)
    dy = shaped(dy, (dy.shape[0], kv_heads or heads, heads // (kv_heads or heads), arrays[0].shape[3], -1))
    run(attention_backward, dy.shape[0] * dy.shape[1], *arrays, dy, *slopes, kv, int(causal), stream=stream)
