"""Layer and group normalisation: *sets* of an image's values to mean 0 and variance 1, then scaled and shifted.

    y = gamma · n + beta,   n = (x - mean) · inverse_std,   inverse_std = 1 / sqrt(variance + epsilon)
    dbeta = Σ dy,   dgamma = Σ dy · n,   g = dy · gamma,   dx = inverse_std · (g - mean of g - n · mean of g · n)

A layer's set has the channels of one position, a group's set all positions of some neighbouring channels.  So that one
kernel does for both, x has five axes, x[n, g, c, q, p]: a set (n, g, p) has the values of all c and q.  They are

    layer   (images, 1, channels, 1, positions)       group   (images, groups, channels of a group, positions, 1)

Rungs:
    kernels.fast.layernorm    several threads a set of values, whose sums meet in a tree
"""

import math

import numpy as np
from numba import cuda

from kernels.elementwise import copy
from kernels.run import maps, run, shaped, size
from kernels.scale import scale_forward

ZERO, ONE = np.float32(0), np.float32(1)


@cuda.jit
def layernorm_forward(x, y, mean, inverse_std, epsilon):
    """One thread a set: its mean, its variance, and its values normalised."""
    p, n, g = cuda.grid(3)
    if n < x.shape[0] and g < x.shape[1] and p < x.shape[4]:
        count = np.float32(x.shape[2] * x.shape[3])
        total, squares = ZERO, ZERO
        for c in range(x.shape[2]):
            for q in range(x.shape[3]):
                total += x[n, g, c, q, p]
        mean[n, g, p] = total / count
        for c in range(x.shape[2]):
            for q in range(x.shape[3]):
                squares += (x[n, g, c, q, p] - mean[n, g, p]) * (x[n, g, c, q, p] - mean[n, g, p])
        inverse_std[n, g, p] = ONE / math.sqrt(squares / count + epsilon)
        for c in range(x.shape[2]):
            for q in range(x.shape[3]):
                y[n, g, c, q, p] = (x[n, g, c, q, p] - mean[n, g, p]) * inverse_std[n, g, p]


@cuda.jit
def layernorm_affine(gamma, beta, y):
    """One thread a value; y[n, c, i] has the usual axes."""
    i, c, n = cuda.grid(3)
    if n < y.shape[0] and c < y.shape[1] and i < y.shape[2]:
        y[n, c, i] = gamma[c] * y[n, c, i] + beta[c]


@cuda.jit
def layernorm_backward_weights(x, mean, inverse_std, dy, dgamma, dbeta):
    """One thread a channel: the gradients of gamma and beta."""
    channel = cuda.grid(1)
    if channel < dbeta.size:
        g, c = channel // x.shape[2], channel % x.shape[2]
        total, products = ZERO, ZERO
        for n in range(x.shape[0]):
            for q in range(x.shape[3]):
                for p in range(x.shape[4]):
                    total += dy[n, g, c, q, p]
                    products += dy[n, g, c, q, p] * ((x[n, g, c, q, p] - mean[n, g, p]) * inverse_std[n, g, p])
        dbeta[channel] = total
        dgamma[channel] = products


@cuda.jit
def layernorm_backward_data(x, mean, inverse_std, dx):
    """One thread a set; dx is g before, and the gradient of x after."""
    p, n, g = cuda.grid(3)
    if n < x.shape[0] and g < x.shape[1] and p < x.shape[4]:
        count = np.float32(x.shape[2] * x.shape[3])
        total, products = ZERO, ZERO
        for c in range(x.shape[2]):
            for q in range(x.shape[3]):
                total += dx[n, g, c, q, p]
                products += dx[n, g, c, q, p] * ((x[n, g, c, q, p] - mean[n, g, p]) * inverse_std[n, g, p])
        for c in range(x.shape[2]):
            for q in range(x.shape[3]):
                normal = (x[n, g, c, q, p] - mean[n, g, p]) * inverse_std[n, g, p]
                dx[n, g, c, q, p] = inverse_std[n, g, p] * (dx[n, g, c, q, p] - (total + normal * products) / count)


# --- Launching them --------------------------------------------------------------------------------------------------


def sets(x, groups):
    """x with five axes; mean and inverse_std have the first two and the last."""
    images, channels, area = maps(x).shape
    if groups is None:
        return shaped(x, (images, 1, channels, 1, area))
    return shaped(x, (images, groups, channels // groups, area, 1))


def forward(x, gamma, beta, y, mean, inverse_std, *, groups=None, epsilon=1e-5, stream=None):
    each = sets(x, groups)
    images, groups_, *_, wide = each.shape
    kept = (shaped(array, (images, groups_, wide)) for array in (mean, inverse_std))
    run(layernorm_forward, (wide, images, groups_), each, sets(y, groups), *kept, epsilon, stream=stream)
    if gamma is not None:
        run(layernorm_affine, maps(y).shape[::-1], gamma, beta, maps(y), stream=stream)


def backward(x, gamma, mean, inverse_std, dy, dx, dgamma=None, dbeta=None, *, groups=None, workspace=None, stream=None):
    each = sets(x, groups)
    images, groups_, *_, wide = each.shape
    kept = [shaped(array, (images, groups_, wide)) for array in (mean, inverse_std)]
    if gamma is None:
        copy(dy, dx, stream=stream)
    else:
        run(layernorm_backward_weights, size(dbeta), each, *kept, sets(dy, groups), dgamma, dbeta, stream=stream)
        run(scale_forward, maps(dy).shape[::-1], maps(dy), gamma, maps(dx), stream=stream)  # g; dx may be dy
    run(layernorm_backward_data, (wide, images, groups_), each, *kept, sets(dx, groups), stream=stream)
