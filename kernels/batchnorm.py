"""Batch normalisation: every channel to mean 0 and variance 1, then scaled and shifted; x is (images, channels, area).

    y = gamma · n + beta,   n = (x - mean) · inverse_std,   inverse_std = 1 / sqrt(variance + epsilon)
    dbeta = Σ dy,   dgamma = Σ dy · n,   dx = gamma · inverse_std · (dy - (dbeta + n · dgamma) / count)

Sums go over the `count` values of a channel: all images, all positions.

Rungs:
    kernels.fast.batchnorm    sums in pieces, many threads a channel, then one sum of the pieces
"""

import math

import numpy as np
from numba import cuda

from kernels.index import larger
from kernels.run import maps, run, size


@cuda.jit
def batchnorm_statistics(x, mean, inverse_std, epsilon):
    """One thread a channel: its mean, then its variance."""
    c = cuda.grid(1)
    if c < x.shape[1]:
        count = np.float32(x.shape[0] * x.shape[2])
        total = np.float32(0)
        for n in range(x.shape[0]):
            for i in range(x.shape[2]):
                total += x[n, c, i]
        mean[c] = total / count
        squares = np.float32(0)
        for n in range(x.shape[0]):
            for i in range(x.shape[2]):
                squares += (x[n, c, i] - mean[c]) * (x[n, c, i] - mean[c])
        inverse_std[c] = np.float32(1) / math.sqrt(squares / count + epsilon)


@cuda.jit
def batchnorm_apply(x, gamma, beta, mean, inverse_std, y):
    """One thread a value."""
    i, c, n = cuda.grid(3)
    if n < x.shape[0] and c < x.shape[1] and i < x.shape[2]:
        y[n, c, i] = gamma[c] * ((x[n, c, i] - mean[c]) * inverse_std[c]) + beta[c]


@cuda.jit
def batchnorm_update_running(mean, inverse_std, running_mean, running_variance, momentum, epsilon, unbiased):
    """One thread a channel; `unbiased` is count / (count - 1)."""
    c = cuda.grid(1)
    if c < mean.size:
        variance = larger(np.float32(1) / (inverse_std[c] * inverse_std[c]) - epsilon, np.float32(0)) * unbiased
        running_mean[c] += momentum * (mean[c] - running_mean[c])
        running_variance[c] += momentum * (variance - running_variance[c])


@cuda.jit
def batchnorm_inference(x, gamma, beta, mean, variance, y, epsilon):
    """One thread a value, from the running statistics."""
    i, c, n = cuda.grid(3)
    if n < x.shape[0] and c < x.shape[1] and i < x.shape[2]:
        y[n, c, i] = gamma[c] * ((x[n, c, i] - mean[c]) / math.sqrt(variance[c] + epsilon)) + beta[c]


@cuda.jit
def batchnorm_backward_weights(x, mean, inverse_std, dy, dgamma, dbeta):
    """One thread a channel: the gradients of gamma and beta."""
    c = cuda.grid(1)
    if c < x.shape[1]:
        total = np.float32(0)
        products = np.float32(0)
        for n in range(x.shape[0]):
            for i in range(x.shape[2]):
                total += dy[n, c, i]
                products += dy[n, c, i] * (x[n, c, i] - mean[c])
        dbeta[c] = total
        dgamma[c] = products * inverse_std[c]


@cuda.jit
def batchnorm_backward_data(x, gamma, mean, inverse_std, dy, dgamma, dbeta, dx, share):
    """One thread a value; share is 1 / count."""
    i, c, n = cuda.grid(3)
    if n < x.shape[0] and c < x.shape[1] and i < x.shape[2]:
        normal = (x[n, c, i] - mean[c]) * inverse_std[c]
        dx[n, c, i] = gamma[c] * inverse_std[c] * (dy[n, c, i] - share * (dbeta[c] + normal * dgamma[c]))


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, gamma, beta, y, mean, inverse_std, *, epsilon=1e-5, workspace=None, stream=None):
    x, y = maps(x), maps(y)
    run(batchnorm_statistics, x.shape[1], x, mean, inverse_std, epsilon, stream=stream)
    run(batchnorm_apply, x.shape[::-1], x, gamma, beta, mean, inverse_std, y, stream=stream)


def update_running(
    mean, inverse_std, running_mean, running_variance, *, count, momentum=0.1, epsilon=1e-5, stream=None
):
    numbers = momentum, epsilon, count / max(count - 1, 1)
    run(
        batchnorm_update_running, size(mean), mean, inverse_std, running_mean, running_variance, *numbers, stream=stream
    )


def inference(x, gamma, beta, running_mean, running_variance, y, *, epsilon=1e-5, stream=None):
    x, y = maps(x), maps(y)
    run(batchnorm_inference, x.shape[::-1], x, gamma, beta, running_mean, running_variance, y, epsilon, stream=stream)


def backward(x, gamma, mean, inverse_std, dy, dx, dgamma, dbeta, *, workspace=None, stream=None):
    x, dy, dx = maps(x), maps(dy), maps(dx)
    share = 1 / (x.shape[0] * x.shape[2])
    run(batchnorm_backward_weights, x.shape[1], x, mean, inverse_std, dy, dgamma, dbeta, stream=stream)
    run(
        batchnorm_backward_data, x.shape[::-1], x, gamma, mean, inverse_std, dy, dgamma, dbeta, dx, share, stream=stream
    )
