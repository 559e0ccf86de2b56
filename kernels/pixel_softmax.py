"""Softmax over the channels of every pixel, with a label a pixel, and its gradient; a token is a pixel, too.

    y[n, c, p]  = exp(x[n, c, p] - largest of pixel p) / (the sum of these over the channels)
    losses[n]   = the sum of -log(y[n, labels[n, p], p]) over the pixels that count · images / counted
    dx[n, c, p] = (y[n, c, p] - (1 if c is labels[n, p] else 0)) / counted, or 0 for a pixel that does not count

A pixel whose label is `ignored` does not count; `counted` is the number of those that do, in the whole batch.

Rungs:
    kernels.fast.pixel_softmax    several threads a pixel, whose maxima and sums meet in a tree
"""

import math

import numpy as np
from numba import cuda

from kernels.index import larger
from kernels.run import maps, run, shaped, size

ZERO, NAN = np.float32(0), np.float32(np.nan)


@cuda.jit
def pixel_softmax_forward(x, y):
    """One thread a pixel; y may be x."""
    p, n = cuda.grid(2)
    if n < x.shape[0] and p < x.shape[2]:
        largest = x[n, 0, p]
        for c in range(x.shape[1]):
            largest = larger(largest, x[n, c, p])
        total = ZERO
        for c in range(x.shape[1]):
            y[n, c, p] = math.exp(x[n, c, p] - largest)
            total += y[n, c, p]
        for c in range(x.shape[1]):
            y[n, c, p] /= total


@cuda.jit
def pixel_softmax_count(labels, counted, ignored):
    """One thread: the number of pixels that count."""
    if cuda.grid(1) == 0:
        count = 0
        for n in range(labels.shape[0]):
            for p in range(labels.shape[1]):
                if labels[n, p] != ignored:
                    count += 1
        counted[0] = count


@cuda.jit
def pixel_softmax_cross_entropy(y, labels, losses, counted, ignored):
    """One thread an image; a label that is no class makes the loss NaN."""
    n = cuda.grid(1)
    if n < y.shape[0]:
        total = ZERO
        for p in range(y.shape[2]):
            if labels[n, p] != ignored:
                if 0 <= labels[n, p] < y.shape[1]:
                    total -= math.log(y[n, labels[n, p], p])
                else:
                    total = NAN
        losses[n] = total * np.float32(y.shape[0]) / counted[0]


@cuda.jit
def pixel_softmax_backward(y, labels, counted, dx, ignored, weight):
    """One thread a value; dx may be y."""
    p, c, n = cuda.grid(3)
    if n < y.shape[0] and c < y.shape[1] and p < y.shape[2]:
        right = np.float32(1 if c == labels[n, p] else 0)
        dx[n, c, p] = (y[n, c, p] - right) * (ZERO if labels[n, p] == ignored else weight / counted[0])


# --- Launching them --------------------------------------------------------------------------------------------------


def pixels(labels):
    return shaped(labels, (labels.shape[0], -1))


def forward(x, y, *, stream=None):
    run(pixel_softmax_forward, (maps(x).shape[2], x.shape[0]), maps(x), maps(y), stream=stream)


def cross_entropy(y, labels, losses, counted, *, ignore_index=-100, workspace=None, stream=None):
    run(pixel_softmax_count, 1, pixels(labels), counted, ignore_index, stream=stream)
    arrays = maps(y), pixels(labels), losses, counted
    run(pixel_softmax_cross_entropy, size(losses), *arrays, ignore_index, stream=stream)


def backward(y, labels, counted, dx, *, ignore_index=-100, weight=1.0, stream=None):
    arrays = maps(y), pixels(labels), counted, maps(dx)
    run(pixel_softmax_backward, maps(y).shape[::-1], *arrays, ignore_index, float(weight), stream=stream)
