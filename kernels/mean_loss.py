"""Losses that are a mean over all numbers of an image, and their gradients; σ(x) = 1 / (1 + exp(-x)) is a probability.

    squared:   losses[n] = mean of (x - target)²,                                  dx = 2 · (x - target) · share
    binary:    losses[n] = mean of max(x, 0) - x · target + log(1 + exp(-|x|)),    dx = (σ(x) - target) · share

`binary` is the cross-entropy of σ(x), computed from x so that nothing overflows.  share is 1 / numbers of the batch.
"""

import math

import numpy as np
from numba import cuda

from kernels import sigmoid as probability
from kernels.index import larger
from kernels.run import flat, run, shaped, size

ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)


@cuda.jit
def mean_loss_squared_forward(x, target, losses):
    """One thread an image."""
    n = cuda.grid(1)
    if n < x.shape[0]:
        total = ZERO
        for i in range(x.shape[1]):
            total += (x[n, i] - target[n, i]) * (x[n, i] - target[n, i])
        losses[n] = total / np.float32(x.shape[1])


@cuda.jit
def mean_loss_squared_backward(x, target, dx, share):
    """One thread a value; dx may be x."""
    i = cuda.grid(1)
    if i < x.size:
        dx[i] = TWO * (x[i] - target[i]) * share


@cuda.jit
def mean_loss_binary_forward(x, target, losses):
    """One thread an image."""
    n = cuda.grid(1)
    if n < x.shape[0]:
        total = ZERO
        for i in range(x.shape[1]):
            total += larger(x[n, i], ZERO) - x[n, i] * target[n, i] + math.log1p(math.exp(-abs(x[n, i])))
        losses[n] = total / np.float32(x.shape[1])


@cuda.jit
def mean_loss_binary_backward(x, target, dx, share):
    """One thread a value; dx may be x."""
    i = cuda.grid(1)
    if i < x.size:
        dx[i] = (ONE / (ONE + math.exp(-x[i])) - target[i]) * share


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, targets, losses, *, error, workspace=None, stream=None):
    kernel = mean_loss_squared_forward if error == "squared" else mean_loss_binary_forward
    numbers = shaped(x, (x.shape[0], -1)), shaped(targets, (x.shape[0], -1))
    run(kernel, x.shape[0], *numbers, losses, stream=stream)


def backward(x, targets, dx, *, error, weight=1.0, stream=None):
    kernel = mean_loss_squared_backward if error == "squared" else mean_loss_binary_backward
    run(kernel, size(x), flat(x), flat(targets), flat(dx), weight / size(x), stream=stream)


def sigmoid(x, y, *, stream=None):
    probability.forward(x, y, stream=stream)
