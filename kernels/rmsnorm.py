"""RMS normalisation: the channels of every position divided by the root of the mean of their squares, then scaled.

    y = gamma · n,   n = x · inverse_rms,   inverse_rms = 1 / sqrt(mean of x² + epsilon)
    dgamma = Σ dy · n,   g = dy · gamma,   dx = inverse_rms · (g - n · mean of g · n)

Means go over the channels, the sum of dgamma over images and positions.
"""

import math

import numpy as np
from numba import cuda

from kernels.elementwise import copy
from kernels.run import maps, run, shaped, size
from kernels.scale import scale_forward

ZERO, ONE = np.float32(0), np.float32(1)


@cuda.jit
def rmsnorm_forward(x, y, inverse_rms, epsilon):
    """One thread a position."""
    p, n = cuda.grid(2)
    if n < x.shape[0] and p < x.shape[2]:
        squares = ZERO
        for c in range(x.shape[1]):
            squares += x[n, c, p] * x[n, c, p]
        inverse_rms[n, p] = ONE / math.sqrt(squares / np.float32(x.shape[1]) + epsilon)
        for c in range(x.shape[1]):
            y[n, c, p] = x[n, c, p] * inverse_rms[n, p]


@cuda.jit
def rmsnorm_backward_weights(x, inverse_rms, dy, dgamma):
    """One thread a channel."""
    c = cuda.grid(1)
    if c < x.shape[1]:
        products = ZERO
        for n in range(x.shape[0]):
            for p in range(x.shape[2]):
                products += dy[n, c, p] * (x[n, c, p] * inverse_rms[n, p])
        dgamma[c] = products


@cuda.jit
def rmsnorm_backward_data(x, inverse_rms, dx):
    """One thread a position; dx is g before, and the gradient of x after."""
    p, n = cuda.grid(2)
    if n < x.shape[0] and p < x.shape[2]:
        products = ZERO
        for c in range(x.shape[1]):
            products += dx[n, c, p] * (x[n, c, p] * inverse_rms[n, p])
        for c in range(x.shape[1]):
            normal = x[n, c, p] * inverse_rms[n, p]
            dx[n, c, p] = inverse_rms[n, p] * (dx[n, c, p] - normal * products / np.float32(x.shape[1]))


# --- Launching them --------------------------------------------------------------------------------------------------


def positions(x, inverse_rms):
    """Positions of all images, and inverse_rms as (images, positions)."""
    images, _, area = maps(x).shape
    return (area, images), shaped(inverse_rms, (images, area))


def forward(x, gamma, y, inverse_rms, *, epsilon=1e-6, stream=None):
    threads, inverse_rms = positions(x, inverse_rms)
    run(rmsnorm_forward, threads, maps(x), maps(y), inverse_rms, epsilon, stream=stream)
    if gamma is not None:
        run(scale_forward, maps(y).shape[::-1], maps(y), gamma, maps(y), stream=stream)


def backward(x, gamma, inverse_rms, dy, dx, dgamma=None, *, workspace=None, stream=None):
    threads, inverse_rms = positions(x, inverse_rms)
    if gamma is None:
        copy(dy, dx, stream=stream)
    else:
        run(rmsnorm_backward_weights, size(dgamma), maps(x), inverse_rms, maps(dy), dgamma, stream=stream)
        run(scale_forward, maps(dy).shape[::-1], maps(dy), gamma, maps(dx), stream=stream)  # g; dx may be dy
    run(rmsnorm_backward_data, threads, maps(x), inverse_rms, maps(dx), stream=stream)
