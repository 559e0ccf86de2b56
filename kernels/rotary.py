"""Rotary position: pairs of channels of every query and key are turned by an angle that grows with the token's place.

    (y[a], y[b]) = (x[a] · cos - x[b] · sin, x[b] · cos + x[a] · sin)     by the angle  t · base^(-2i / rotated)

of token t and pair i.  `rotated` channels of a head are pairs: i and i + rotated / 2, or the neighbours 2i and 2i + 1.
A packed map has groups of heads, each of some queries, a key and a value; values are not turned.  The gradient is
turned back by the same angles.
"""

import math

import numpy as np
from numba import cuda

from kernels.elementwise import copy
from kernels.run import run, shaped

TURN = 2 * math.pi


@cuda.jit
def rotary_turn(y, heads, pairs, neighbours, base, direction):
    """One thread a pair of a token, in place.

    y is (groups, heads of a group, channels, tokens); the first `heads` of a group are turned.
    """
    t, i, h = cuda.grid(3)
    if t < y.shape[3] and i < pairs and h < y.shape[0] * heads:
        g, m = h // heads, h % heads
        a, b = (2 * i, 2 * i + 1) if neighbours else (i, i + pairs)
        turns = t * np.float64(base) ** (-i / pairs) / TURN
        angle = np.float32(TURN * (turns - math.floor(turns)))  # whole turns change nothing, and would cost digits
        cosine, sine = math.cos(angle), direction * math.sin(angle)
        across, along = y[g, m, a, t], y[g, m, b, t]
        y[g, m, a, t] = across * cosine - along * sine
        y[g, m, b, t] = along * cosine + across * sine


# --- Launching it ----------------------------------------------------------------------------------------------------


def forward(
    x, y, *, heads, kv_heads=None, packed=True, rotated=None, neighbours=False, base=10000.0, direction=1.0, stream=None
):
    groups = (kv_heads or heads) if packed else heads
    turned = heads // groups + 1 if packed else 1  # heads of a group
    width = x.shape[1] // (groups * (heads // groups + 2) if packed else heads)
    copy(x, y, stream=stream)
    y = shaped(y, (x.shape[0] * groups, -1, width, math.prod(x.shape[2:])))
    pairs = (rotated or width) // 2
    threads = y.shape[3], pairs, y.shape[0] * turned
    run(rotary_turn, threads, y, turned, pairs, int(neighbours), float(base), direction, stream=stream)


def backward(dy, dx, *, heads, kv_heads=None, packed=True, rotated=None, neighbours=False, base=10000.0, stream=None):
    how = {"heads": heads, "kv_heads": kv_heads, "packed": packed, "rotated": rotated, "neighbours": neighbours}
    forward(dy, dx, **how, base=base, direction=-1.0, stream=stream)
