"""Softmax of every row of class scores, the cross-entropy of its result, and the gradient of both together.

    y[r, c]   = exp(x[r, c] - largest of row r) / (the sum of these over the row)
    losses[r] = -log(y[r, labels[r]])
    dx[r, c]  = (y[r, c] - (1 if c is labels[r] else 0)) · share

The largest is subtracted so that no exponential overflows; share is 1 / rows for the gradient of the mean loss.

Rungs:
    kernels.fast.softmax    a block a row: its maximum and its sum in a tree
"""

import math

import numpy as np
from numba import cuda

from kernels.run import run, shaped


@cuda.jit
def softmax_forward(x, y):
    """One thread a row."""
    r = cuda.grid(1)
    if r < x.shape[0]:
        largest = x[r, 0]
        for c in range(x.shape[1]):
            largest = x[r, c] if x[r, c] > largest else largest
        total = np.float32(0)
        for c in range(x.shape[1]):
            y[r, c] = math.exp(x[r, c] - largest)
            total += y[r, c]
        for c in range(x.shape[1]):
            y[r, c] /= total


@cuda.jit
def softmax_cross_entropy(y, labels, losses):
    """One thread a row; a label that is no class makes the loss NaN."""
    r = cuda.grid(1)
    if r < y.shape[0]:
        losses[r] = np.nan
        if 0 <= labels[r] < y.shape[1]:
            losses[r] = -math.log(y[r, labels[r]])


@cuda.jit
def softmax_backward(y, labels, dx, share):
    """One thread a value."""
    c, r = cuda.grid(2)
    if r < y.shape[0] and c < y.shape[1]:
        right = 1 if c == labels[r] else 0
        dx[r, c] = (y[r, c] - np.float32(right)) * share


# --- Launching them --------------------------------------------------------------------------------------------------


def rows(x):
    return shaped(x, (x.shape[0], -1))


def forward(x, y, *, stream=None):
    run(softmax_forward, x.shape[0], rows(x), rows(y), stream=stream)


def cross_entropy(y, labels, losses, *, stream=None):
    run(softmax_cross_entropy, y.shape[0], rows(y), labels, losses, stream=stream)


def backward(y, labels, dx, *, weight=1.0, stream=None):
    run(softmax_backward, rows(y).shape[::-1], rows(y), labels, rows(dx), weight / y.shape[0], stream=stream)
