"""Softmax over the channels of every pixel, with a label a pixel: segmentation.  x is (N, C, H, W).

A token is a pixel of a map one column wide: x is (N, C, T, 1), and its channels are the words of a vocabulary.

    softmax:         y[n, c, p] = exp(x[n, c, p] - largest of pixel p) / (the sum of these over the channels)
    cross-entropy:   losses[n] = (the sum of -log(y[n, labels[n, p], p]) over the pixels that count) · N / counted
    backward:        dx[n, c, p] = (y[n, c, p] - (1 if c is labels[n, p] else 0)) / counted, and 0 for a pixel that
                     does not count

A pixel whose label is `ignore_index` does not count.  `counted` is the number of those that do, in the whole batch: so
the mean of the losses is the mean over the pixels that count, as in PyTorch.  It is computed on the device.  If no
pixel counts, the losses are NaN.  As in `kernels.fast.softmax`, any other label outside of 0 … C - 1 is a loss of NaN.

softmax             a block takes 32 neighbouring pixels, with eight threads each, or 256 where there are few channels;
                    the threads' maxima and sums meet in a tree.  Neighbours read neighbours, four numbers each
                    between two barriers: a CPU takes them 16 at a time.
backward            in place: a block takes 256 neighbouring pixels, and 32 channels.
cross-entropy       one block of 256 threads for 4096 pixels of an image: their sum and their number, each in a tree;
                    then one block adds up the parts, image by image, in ascending order.

Forward moves 16 bytes a number (x three times, from the cache where channels are few), backward 8.  The parts' sums
are in the workspace, 8 bytes for every 4096 pixels.  y may be x, and dx y: logits, shares and gradient in one buffer.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast import elementwise
from kernels.fast.activation import start
from kernels.fast.elementwise import size
from kernels.fast.functions import exp
from kernels.targets.launch import Floats, Ints, Kernel, ceil_div, kernel, launch
from kernels.targets.shim import cuda

THREADS = 256
FEW, MANY = 256, 32  #: pixels of a block, forward: where there are few channels, and where there are many
EACH = 4  #: values of a thread between two barriers
CHANNELS = 32  #: of a block, backward
PART = 4096  #: pixels of an image whose losses a block adds up
ZERO, ONE = np.float32(0), np.float32(1)


def forward_kernel(lanes: int) -> Kernel:
    """For `lanes` neighbouring pixels a block; the threads of one column share a pixel's channels."""
    deep = THREADS // lanes
    together = EACH * deep

    @kernel(block=(lanes, deep), name=f"pixel_softmax_forward_{lanes}")
    def pixel_softmax_forward(x: Floats, y: Floats, channels: int, area: int, blocks: int) -> None:
        """`blocks` an image: the pixels' maxima, their sums of exponentials, then the shares."""
        largest = cuda.shared.array((deep, lanes), np.float32)
        sums = cuda.shared.array((deep, lanes), np.float32)
        grown = cuda.shared.array((together, lanes), np.float32)
        p = np.int64(cuda.threadIdx.x)
        row = np.int64(cuda.threadIdx.y)
        image = np.int64(cuda.blockIdx.x) // blocks
        first = (np.int64(cuda.blockIdx.x) - image * blocks) * lanes
        start = image * channels * area + first
        there = min(area - first, np.int64(lanes))

        inside = min(row, channels - 1) * area + min(p, there - 1)
        largest[np.uint32(row), np.uint32(p)] = x[np.uint32(start + inside)]
        sums[np.uint32(row), np.uint32(p)] = ZERO
        cuda.syncthreads()
        for k in range(0, channels, together):
            for u in range(EACH):
                at = k + u * deep + row
                if at < channels and p < there:
                    value = x[np.uint32(start + at * area + p)]
                    largest[np.uint32(row), np.uint32(p)] = max(largest[np.uint32(row), np.uint32(p)], value)
            cuda.syncthreads()
        half = deep // 2
        while half > 0:
            if row < half:
                value = largest[np.uint32(row + half), np.uint32(p)]
                largest[np.uint32(row), np.uint32(p)] = max(largest[np.uint32(row), np.uint32(p)], value)
            cuda.syncthreads()
            half //= 2

        for k in range(0, channels, together):
            for u in range(EACH):
                at = k + u * deep + row
                if at < channels and p < there:
                    share = exp(x[np.uint32(start + at * area + p)] - largest[0, np.uint32(p)])
                    sums[np.uint32(row), np.uint32(p)] += share
            cuda.syncthreads()
        half = deep // 2
        while half > 0:
            if row < half:
                sums[np.uint32(row), np.uint32(p)] += sums[np.uint32(row + half), np.uint32(p)]
            cuda.syncthreads()
            half //= 2
        if row == 0:
            sums[np.uint32(row), np.uint32(p)] = ONE / sums[np.uint32(row), np.uint32(p)]
        cuda.syncthreads()

        for k in range(0, channels, together):
            for u in range(EACH):
                at = k + u * deep + row
                if at < channels and p < there:
                    share = exp(x[np.uint32(start + at * area + p)] - largest[0, np.uint32(p)])
                    grown[np.uint32(u * deep + row), np.uint32(p)] = share * sums[0, np.uint32(p)]
            cuda.syncthreads()  # y may be x: a CPU reads all of these numbers before it writes one
            for u in range(EACH):
                at = k + u * deep + row
                if at < channels and p < there:
                    y[np.uint32(start + at * area + p)] = grown[np.uint32(u * deep + row), np.uint32(p)]
            cuda.syncthreads()

    return pixel_softmax_forward


#: Pixels of a block → kernel: of few channels, and of many.
FORWARD = {lanes: forward_kernel(lanes) for lanes in (FEW, MANY)}


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
    dx: Floats, labels: Ints, counted: Floats, channels: int, area: int, blocks: int, ignored: int, weight: float
) -> None:
    """Block (i, j): 256 pixels of image i // blocks and 32 channels; in place on the shares."""
    t = np.int64(cuda.threadIdx.x)
    image = np.int64(cuda.blockIdx.x) // blocks
    pixel = (np.int64(cuda.blockIdx.x) - image * blocks) * THREADS + t
    first = np.int64(cuda.blockIdx.y) * CHANNELS
    for c in range(first, min(first + CHANNELS, channels)):
        if pixel < area:
            label = np.int64(labels[np.uint32(image * area + pixel)])
            e = np.uint32((image * channels + c) * area + pixel)
            right = ONE if c == label else ZERO
            share = ZERO if label == ignored else weight / counted[0]
            dx[e] = (dx[e] - right) * share
        cuda.syncthreads()  # a CPU takes the pixels of a channel together


def workspace_bytes(shape: tuple[int, ...]) -> int:
    """Of `cross_entropy`, for a y of this shape."""
    return 8 * shape[0] * ceil_div(math.prod(shape[2:]), PART)


def forward(x: Any, y: Any, *, stream: Any = None) -> None:
    """Fill y with the softmax over the channels of every pixel of x.  y may be x."""
    check("pixel_softmax.forward", x=x, y=y)
    _check_labels("pixel_softmax.forward", "x", x)
    check_shape("pixel_softmax.forward", "y", y, x.shape)
    images, channels, area = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    lanes = FEW if channels < MANY <= area // 8 else MANY
    blocks = ceil_div(area, lanes)
    launch(FORWARD[lanes], images * blocks, x, y, channels, area, blocks, stream=stream)


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
    if start(dx) != start(y):
        elementwise.copy(y, dx, stream=stream)
    blocks = ceil_div(area, THREADS)
    grid, sizes = (images * blocks, ceil_div(channels, CHANNELS)), (channels, area, blocks, ignore_index, weight)
    launch(pixel_softmax_backward, grid, dx, labels, counted, *sizes, stream=stream)


def _check_labels(where: str, name: str, array: Any, labels: Any = None) -> None:
    """`array` is (N, C, H, W), and `labels` (if any) is an int32 array with one label a pixel."""
    if len(array.shape) != 4:
        raise KernelError(f"{where}: {name} has shape {tuple(array.shape)}; give (images, channels, height, width)")
    check(where, dtype=np.int32, labels=labels)
    check_shape(where, "labels", labels, (array.shape[0], *array.shape[2:]))
