"""Embedding: a token's row of a learnt table w, as channels: y[n, c, t] = w[tokens[n, t], c].

The gradient dw[v, c] is the sum of dy[n, c, t] over all places (n, t) of token v.  A token that is no row of the table
makes y NaN and has no gradient; the token `padding` has a row and no gradient.
"""

import numpy as np
from numba import cuda

from kernels.elementwise import fill
from kernels.run import maps, run, shaped


@cuda.jit
def embedding_forward(tokens, w, y):
    """One thread a value."""
    t, c, n = cuda.grid(3)
    if n < y.shape[0] and c < y.shape[1] and t < y.shape[2]:
        y[n, c, t] = np.nan
        if 0 <= tokens[n, t] < w.shape[0]:
            y[n, c, t] = w[tokens[n, t], c]


@cuda.jit
def embedding_backward(tokens, dy, dw, padding):
    """One thread a channel, place after place, added to what dw has."""
    c = cuda.grid(1)
    if c < dw.shape[1]:
        for n in range(tokens.shape[0]):
            for t in range(tokens.shape[1]):
                v = tokens[n, t]
                if 0 <= v < dw.shape[0] and v != padding:
                    dw[v, c] += dy[n, c, t]


# --- Launching them --------------------------------------------------------------------------------------------------


def rows(x):
    return shaped(x, (x.shape[0], -1))


def forward(tokens, w, y, *, stream=None):
    run(embedding_forward, maps(y).shape[::-1], rows(tokens), rows(w), maps(y), stream=stream)


def backward(tokens, dy, dw, *, added=False, padding=None, workspace=None, stream=None):
    """`added`: dw has a gradient already, which is added to."""
    if not added:
        fill(dw, 0.0, stream=stream)
    unmoved = -1 if padding is None else padding
    run(embedding_backward, dw.shape[1], rows(tokens), maps(dy), rows(dw), unmoved, stream=stream)
