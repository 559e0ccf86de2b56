"""Clipping gradients by the norm of all of them together:

    norm = √(the sum of the squares of all numbers of all gradients),   dw = dw · min(1, max_norm / (norm + 1e-6))

`square` fills a gradient's part of `squares`, a number for every 4096 of its own; `norm` adds up all of `squares`;
`apply` scales a gradient.
"""

import math

import numpy as np
from numba import cuda

from kernels.index import smaller
from kernels.run import flat, run, size

PART = 4096  #: numbers of a gradient for one of `squares`
ONE, SMALL = np.float32(1), np.float32(1e-6)


@cuda.jit
def clip_square(dw, squares, first, part):
    """One thread a part of the gradient: the sum of its squares."""
    p = cuda.grid(1)
    if p * part < dw.size:
        total = np.float32(0)
        for i in range(p * part, smaller((p + 1) * part, dw.size)):
            total += dw[i] * dw[i]
        squares[first + p] = total


@cuda.jit
def clip_norm(squares, norm):
    """One thread: the root of the sum of all squares."""
    if cuda.grid(1) == 0:
        total = np.float32(0)
        for p in range(squares.size):
            total += squares[p]
        norm[0] = math.sqrt(total)


@cuda.jit
def clip_apply(norm, dw, max_norm):
    """One thread a number; a norm that is NaN makes all numbers NaN."""
    i = cuda.grid(1)
    if i < dw.size:
        factor = max_norm / (norm[0] + SMALL)
        dw[i] *= ONE if factor > ONE else factor


# --- Launching them --------------------------------------------------------------------------------------------------


def square(dw, squares, *, place, stream=None):
    run(clip_square, -(-size(dw) // PART), flat(dw), flat(squares), place, PART, stream=stream)


def norm(squares, norm, *, stream=None):
    run(clip_norm, 1, flat(squares), norm, stream=stream)


def apply(norm, dw, *, max_norm, stream=None):
    run(clip_apply, size(dw), norm, flat(dw), float(max_norm), stream=stream)
