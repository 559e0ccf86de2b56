"""Softmax over the channels of every pixel, with a label a pixel: segmentation.  x is (N, C, H, W).

    softmax:         y[n, c, p] = exp(x[n, c, p] - largest of pixel p) / (the sum of these over the channels)
    cross-entropy:   losses[n] = (the sum of -log(y[n, labels[n, p], p]) over the pixels that count) · N / counted
    backward:        dx[n, c, p] = (y[n, c, p] - (1 if c is labels[n, p] else 0)) / counted, and 0 for a pixel that
                     does not count

A pixel whose label is `ignore_index` does not count.  `counted` is the number of those that do, in the whole batch: so
the mean of the losses is the mean over the pixels that count, as in PyTorch.  It is computed on the device.  If no
pixel counts, the losses are NaN.  As in `kernels.softmax`, any other label outside of 0 … C - 1 is a loss of NaN.

softmax, backward   one thread a pixel goes through its channels, so that neighbours read neighbours.
cross-entropy       one block of 256 threads for 4096 pixels of an image: their sum and their number, each in a tree;
                    then one block adds up the parts, image by image, in ascending order.

Forward moves 16 bytes a number (x twice, y three times, in the cache where channels are few), backward 8.  The parts'
sums are in the workspace, 8 bytes for every 4096 pixels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.arguments import KernelError, check, check_shape
from kernels.division import divide, reciprocal
from kernels.elementwise import size
from kernels.launch import Floats, Ints, ceil_div, kernel, launch
from kernels.shim import cuda

THREADS = 256
PART = 4096  #: pixels of an image whose losses a block adds up
ZERO, ONE = np.float32(0), np.float32(1)


@kernel(block=THREADS)
def pixel_softmax_forward(x: Floats, y: Floats, pixels: int, channels: int, area: int, by_area: int) -> None:
    """One thread a pixel: its maximum, its sum of exponentials, then their shares."""
    i = np.uint32(cuda.grid(1))
    if i < pixels:
        image = divide(i, by_area)
        first = np.int64(i) + np.int64(image) * (channels - 1) * area
        largest = x[np.uint32(first)]
        for c in range(1, channels):
            largest = max(largest, x[np.uint32(first + c * area)])
        sum_ = ZERO
        for c in range(channels):
            e = np.uint32(first + c * area)
            grown = math.exp(x[e] - largest)
            y[e] = grown
            sum_ += grown
        share = ONE / sum_
        for c in range(channels):
            y[np.uint32(first + c * area)] *= share


@kernel(block=THREADS)
def pixel_softmax_parts(
    y: Floats, labels: Ints, partial: Floats, blocks: int, channels: int, area: int, parts: int, ignored: int
) -> None:
    """Block b: the sum of the losses of part b % parts of image b // parts, and the number of pixels that count."""
    sums = cuda.shared.array(THREADS, np.float32)
    counts = cuda.shared.array(THREADS, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    image = np.int64(cuda.blockIdx.x) // parts
    first = (np.int64(cuda.blockIdx.x) - image * parts) * PART
    end = min(first + PART, area)
    sum_ = ZERO
    count = ZERO
    p = first + np.int64(t)
    while p < end:
        label = np.int64(labels[np.uint32(image * area + p)])
        if label != ignored:
            count += ONE
            if label >= 0 and label < channels:
                sum_ -= math.log(y[np.uint32((image * channels + label) * area + p)])
            else:
                sum_ = ZERO / ZERO  # NaN
        p += THREADS
    sums[t] = sum_
    counts[t] = count
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[t] += sums[np.uint32(t + half)]
            counts[t] += counts[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        partial[np.uint32(cuda.blockIdx.x)] = sums[0]
        partial[np.uint32(cuda.blockIdx.x + blocks)] = counts[0]


@kernel(block=THREADS)
def pixel_softmax_losses(
    partial: Floats, losses: Floats, counted: Floats, blocks: int, images: int, parts: int
) -> None:
    """One block: the number of pixels that count, then the losses, image t, t + 256, … by thread t."""
    counts = cuda.shared.array(THREADS, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    count = ZERO
    b = np.int64(t)
    while b < blocks:
        count += partial[np.uint32(blocks + b)]
        b += THREADS
    counts[t] = count
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            counts[t] += counts[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    share = np.float32(images) / counts[0]
    if t == 0:
        counted[0] = counts[0]
    image = np.int64(t)
    while image < images:
        sum_ = ZERO
        for part in range(parts):
            sum_ += partial[np.uint32(image * parts + part)]
        losses[np.uint32(image)] = sum_ * share
        image += THREADS


@kernel(block=THREADS)
def pixel_softmax_backward(
    y: Floats,
    labels: Ints,
    counted: Floats,
    dx: Floats,
    pixels: int,
    channels: int,
    area: int,
    by_area: int,
    ignored: int,
    weight: float,
) -> None:
    """One thread a pixel."""
    i = np.uint32(cuda.grid(1))
    if i < pixels:
        image = divide(i, by_area)
        first = np.int64(i) + np.int64(image) * (channels - 1) * area
        label = np.int64(labels[i])
        share = weight / counted[0]
        if label == ignored:
            share = ZERO
        for c in range(channels):
            e = np.uint32(first + c * area)
            right = ONE if c == label else ZERO
            dx[e] = (y[e] - right) * share


def workspace_bytes(shape: tuple[int, ...]) -> int:
    """Of `cross_entropy`, for a y of this shape."""
    return 8 * shape[0] * ceil_div(math.prod(shape[2:]), PART)


def forward(x: Any, y: Any, *, stream: Any = None) -> None:
    """Fill y with the softmax over the channels of every pixel of x.  y may be x."""
    check("pixel_softmax.forward", x=x, y=y)
    _check_labels("pixel_softmax.forward", "x", x)
    check_shape("pixel_softmax.forward", "y", y, x.shape)
    images, channels, area = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    sizes = images * area, channels, area, reciprocal(area)
    launch(pixel_softmax_forward, ceil_div(images * area, THREADS), x, y, *sizes, stream=stream)


def cross_entropy(
    y: Any, labels: Any, losses: Any, counted: Any, *, ignore_index: int = -100, workspace: Any, stream: Any = None
) -> None:
    """Fill losses, one an image, and `counted`, one number, from the softmax y and the labels (int32)."""
    where = "pixel_softmax.cross_entropy"
    check(where, y=y, losses=losses, counted=counted, workspace=workspace)
    _check_labels(where, "y", y, labels)
    check_shape(where, "losses", losses, y.shape[:1])
    check_shape(where, "counted", counted, (1,))
    images, channels, area = y.shape[0], y.shape[1], math.prod(y.shape[2:])
    parts = ceil_div(area, PART)
    blocks = images * parts
    if size(workspace) < 2 * blocks:
        raise KernelError(f"{where}: workspace has {4 * size(workspace)} bytes; give {8 * blocks}")
    sizes = blocks, channels, area, parts, ignore_index
    launch(pixel_softmax_parts, blocks, y, labels, workspace, *sizes, stream=stream)
    launch(pixel_softmax_losses, 1, workspace, losses, counted, blocks, images, parts, stream=stream)


def backward(
    y: Any, labels: Any, counted: Any, dx: Any, *, ignore_index: int = -100, weight: float = 1.0, stream: Any = None
) -> None:
    """Fill dx, the gradient of the mean loss times `weight`, by what `cross_entropy` counted.  dx may be y."""
    where = "pixel_softmax.backward"
    check(where, y=y, counted=counted, dx=dx)
    _check_labels(where, "y", y, labels)
    check_shape(where, "dx", dx, y.shape)
    check_shape(where, "counted", counted, (1,))
    images, channels, area = y.shape[0], y.shape[1], math.prod(y.shape[2:])
    sizes = images * area, channels, area, reciprocal(area), ignore_index, weight
    launch(
        pixel_softmax_backward, ceil_div(images * area, THREADS), y, labels, counted, dx, *sizes, stream=stream
    )  # fmt: skip


def _check_labels(where: str, name: str, array: Any, labels: Any = None) -> None:
    """`array` is (N, C, H, W), and `labels` (if any) is an int32 array with one label a pixel."""
    if len(array.shape) != 4:
        raise KernelError(f"{where}: {name} has shape {tuple(array.shape)}; give (images, channels, height, width)")
    check(where, dtype=np.int32, labels=labels)
    check_shape(where, "labels", labels, (array.shape[0], *array.shape[2:]))
