"""Softmax over the classes, the cross-entropy of its result, and the gradient of both together.

    softmax:         y[r, c] = exp(x[r, c] - largest of row r) / (the sum of these over the row)
    cross-entropy:   losses[r] = -log(y[r, labels[r]])
    backward:        dx[r, c] = (y[r, c] - (1 if c is labels[r] else 0)) / rows,   the gradient of the *mean* loss

Subtracting the largest value changes nothing but that no exponential overflows.  A probability too small for float32 is
0, and as a label's it is an infinite loss; its gradient is right all the same.

Maps are read as rows too: all numbers of an image are its classes.

softmax:         one block of 128 threads a row; thread t takes classes t, t + 128, … and the threads' results are
                 combined in a tree, so the order is fixed.  5 operations a value, an exponential counting as one.
                 8 bytes a value: x is read twice and y written twice, but rows are short and meet in the cache.
cross-entropy:   one thread a row; one operation and 12 bytes a row.
backward:        one thread a value; 2 operations and 8 bytes a value.

A label outside of 0 … classes - 1 cannot be refused, since looking at it would mean waiting for the device.  No class
is taken to be right then: the row's loss is NaN, and its gradient is y / rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.division import divide, reciprocal
from kernels.fast.functions import exp
from kernels.targets.launch import Floats, Ints, ceil_div, kernel, launch
from kernels.targets.shim import cuda

THREADS = 128
ZERO = np.float32(0)
ONE = np.float32(1)


@kernel(block=THREADS)
def softmax_forward(x: Floats, y: Floats, classes: int) -> None:
    """One block a row: its maximum, its sum of exponentials, then their shares.

    Between barriers neighbours read neighbours.
    """
    shared = cuda.shared.array(THREADS, np.float32)
    grown = cuda.shared.array(THREADS, np.float32)
    whole = cuda.shared.array(1, np.float32)
    t = np.int64(cuda.threadIdx.x)
    row = np.int64(cuda.blockIdx.x) * classes
    shared[np.uint32(t)] = x[np.uint32(row + min(t, classes - 1))]
    cuda.syncthreads()
    for first in range(THREADS, classes, THREADS):
        if t < classes - first:
            shared[np.uint32(t)] = max(shared[np.uint32(t)], x[np.uint32(row + first + t)])
        cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            shared[np.uint32(t)] = max(shared[np.uint32(t)], shared[np.uint32(t + half)])
        cuda.syncthreads()
        half //= 2
    if t == 0:
        whole[0] = shared[0]
    shared[np.uint32(t)] = ZERO
    cuda.syncthreads()
    for first in range(0, classes, THREADS):
        if t < classes - first:
            grown[np.uint32(t)] = exp(x[np.uint32(row + first + t)] - whole[0])
        cuda.syncthreads()  # y may be x: a CPU reads all of these numbers before it writes one
        if t < classes - first:
            y[np.uint32(row + first + t)] = grown[np.uint32(t)]
            shared[np.uint32(t)] += grown[np.uint32(t)]
        cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            shared[np.uint32(t)] += shared[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        whole[0] = ONE / shared[0]
    cuda.syncthreads()
    for first in range(0, classes, THREADS):
        if t < classes - first:
            y[np.uint32(row + first + t)] *= whole[0]
        cuda.syncthreads()


@kernel(block=256)
def softmax_cross_entropy(y: Floats, labels: Ints, losses: Floats, rows: int, classes: int) -> None:
    """One thread a row: minus the logarithm of the probability of its label."""
    row = np.uint32(cuda.grid(1))
    if row < rows:
        label = labels[row]
        if label >= 0 and label < classes:
            losses[row] = -math.log(y[np.uint32(row * classes + label)])
        else:
            losses[row] = ZERO / ZERO  # NaN


@kernel(block=256)
def softmax_backward(
    y: Floats, labels: Ints, dx: Floats, total: int, classes: int, by_classes: int, share: float
) -> None:
    """`share` is the loss's weight / rows."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row = divide(i, by_classes)
        right = ONE if np.int32(i - row * classes) == labels[np.uint32(row)] else ZERO
        dx[i] = (y[i] - right) * share


def check_rows(where: str, name: str, array: Any, labels: Any = None) -> None:
    """`array` has rows and classes, and `labels` (if any) is an int32 array with one label a row."""
    if len(array.shape) < 2:
        raise KernelError(f"{where}: {name} has shape {tuple(array.shape)}; give rows and classes")
    check(where, dtype=np.int32, labels=labels)
    check_shape(where, "labels", labels, (array.shape[0],))


def rows_and_classes(array: Any) -> tuple[int, int]:
    """Of a matrix, or of maps: an image is a row."""
    return array.shape[0], math.prod(array.shape[1:])


def forward(x: Any, y: Any, *, stream: Any = None) -> None:
    """Fill y with the softmax of every row of x.  y may be x."""
    check("softmax.forward", x=x, y=y)
    check_rows("softmax.forward", "x", x)
    rows, classes = rows_and_classes(x)
    if rows_and_classes(y) != (rows, classes):
        check_shape("softmax.forward", "y", y, x.shape)
    launch(softmax_forward, rows, x, y, classes, stream=stream)


def cross_entropy(y: Any, labels: Any, losses: Any, *, stream: Any = None) -> None:
    """Fill losses, one a row, from the softmax y and the labels (int32)."""
    check("softmax.cross_entropy", y=y, losses=losses)
    check_rows("softmax.cross_entropy", "y", y, labels)
    rows, classes = rows_and_classes(y)
    check_shape("softmax.cross_entropy", "losses", losses, (rows,))
    launch(softmax_cross_entropy, ceil_div(rows, 256), y, labels, losses, rows, classes, stream=stream)


def backward(y: Any, labels: Any, dx: Any, *, weight: float = 1.0, stream: Any = None) -> None:
    """Fill dx, the gradient of the mean loss, times `weight`, with respect to the softmax's input.  dx may be y."""
    check("softmax.backward", y=y, dx=dx)
    check_rows("softmax.backward", "y", y, labels)
    check_shape("softmax.backward", "dx", dx, y.shape)
    rows, classes = rows_and_classes(y)
    total = rows * classes
    sizes = total, classes, reciprocal(classes), weight / rows
    launch(softmax_backward, ceil_div(total, 256), y, labels, dx, *sizes, stream=stream)
