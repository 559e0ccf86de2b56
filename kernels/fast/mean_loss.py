"""Losses that are a mean over all numbers of an image, and their gradients.

    squared:   losses[n] = mean of (x - target)²,                                     dx = 2 (x - target) / numbers
    binary:    losses[n] = mean of max(x, 0) - x · target + log(1 + exp(-|x|)),      dx = (σ(x) - target) / numbers

`squared` is the mean squared error.  `binary` is the binary cross-entropy of the probability σ(x) = 1 / (1 + exp(-x)),
computed from x itself, so that nothing overflows; log(1 + e) is 2 artanh(e / (2 + e)), a short series, since a CPU
computes sixteen of those at a time and calls its library's logarithm one by one.  The gradient is that of the mean
over the whole batch, of which `numbers` is the size.

parts     one block of 256 threads for 4096 numbers of an image, 16 a thread, then the threads' sums in a tree.
means     one thread an image adds up its parts' sums in ascending order.  So every order follows from the shape.
backward  as in `kernels.fast.elementwise`, four elements a thread.

The parts' sums are in the workspace, 4 bytes for every 4096 numbers.  Forward moves 8 bytes a number and backward 12.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, Kernel, ceil_div, device, kernel, launch
from kernels.targets.shim import cuda

THREADS = 256
PART = 4096  #: numbers of an image that a block adds up
MEANS_BLOCK = 64
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
S1, S2, S3, S4, S5, S6, S7 = (np.float32(1 / (2 * k + 1)) for k in range(1, 8))


@device
def squared(x: float, target: float) -> float:
    return (x - target) * (x - target)


@device
def squared_slope(x: float, target: float) -> float:
    return TWO * (x - target)


@device
def log_one_plus(e: float) -> float:
    """log(1 + e) for 0 <= e <= 1."""
    z = e / (TWO + e)
    s = z * z
    return TWO * z * (ONE + s * (S1 + s * (S2 + s * (S3 + s * (S4 + s * (S5 + s * (S6 + s * S7)))))))


@device
def binary(x: float, target: float) -> float:
    return max(x, ZERO) - x * target + log_one_plus(math.exp(-abs(x)))


@device
def binary_slope(x: float, target: float) -> float:
    e = math.exp(-abs(x))
    return (ONE if x >= ZERO else e) / (ONE + e) - target


def parts_kernel(name: str, loss_of: Any) -> Kernel:
    @kernel(block=THREADS, name=name)
    def mean_loss_parts(x: Floats, targets: Floats, partial: Floats, numbers: int, parts: int) -> None:
        """Block b adds up part b % parts of image b // parts."""
        sums = cuda.shared.array(THREADS, np.float32)
        t = np.uint32(cuda.threadIdx.x)
        image = np.int64(cuda.blockIdx.x) // parts
        first = (np.int64(cuda.blockIdx.x) - image * parts) * PART
        end = min(first + PART, numbers)
        sum_ = ZERO
        i = first + np.int64(t)
        while i < end:
            e = np.uint32(image * numbers + i)
            sum_ += loss_of(x[e], targets[e])
            i += THREADS
        sums[t] = sum_
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if t < half:
                sums[t] += sums[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            partial[np.uint32(cuda.blockIdx.x)] = sums[0]

    return mean_loss_parts


@kernel(block=MEANS_BLOCK)
def mean_loss_means(partial: Floats, losses: Floats, images: int, parts: int, share: float) -> None:
    """One thread an image: the sum of its parts, times the `share` of one number."""
    image = cuda.grid(1)
    if image < images:
        sum_ = ZERO
        for part in range(parts):
            sum_ += partial[np.uint32(image * parts + part)]
        losses[np.uint32(image)] = sum_ * share


def backward_kernel(name: str, slope_of: Any) -> Kernel:
    @kernel(block=BLOCK, name=name)
    def mean_loss_backward(x: Floats, targets: Floats, dx: Floats, n: int, share: float) -> None:
        """dx = slope · share, four elements a thread."""
        value = cuda.local.array(PER_THREAD, np.float32)
        tile = cuda.blockIdx.x * TILE
        i = tile + cuda.threadIdx.x
        if tile + TILE <= n:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                value[j] = slope_of(x[e], targets[e])
            for j in range(PER_THREAD):
                dx[np.uint32(i + j * BLOCK)] = value[j] * share
        else:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                if i + j * BLOCK < n:
                    dx[e] = slope_of(x[e], targets[e]) * share

    return mean_loss_backward


@kernel(block=BLOCK)
def mean_loss_sigmoid(x: Floats, y: Floats, n: int) -> None:
    """y = σ(x), four elements a thread."""
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    for j in range(PER_THREAD):
        e = np.uint32(i + j * BLOCK)
        if i + j * BLOCK < n:
            y[e] = binary_slope(x[e], ZERO)


#: `error` → kernel.
PARTS = {
    error: parts_kernel(f"mean_loss_{error}_parts", of) for error, of in (("squared", squared), ("binary", binary))
}
BACKWARD = {
    error: backward_kernel(f"mean_loss_{error}_backward", of)
    for error, of in (("squared", squared_slope), ("binary", binary_slope))
}


def workspace_bytes(shape: tuple[int, ...]) -> int:
    """Of `forward`, for an x of this shape."""
    return 4 * shape[0] * ceil_div(math.prod(shape[1:]), PART)


def forward(x: Any, targets: Any, losses: Any, *, error: str, workspace: Any, stream: Any = None) -> None:
    """Fill losses, one an image."""
    _check("mean_loss.forward", error, x, targets)
    check("mean_loss.forward", x=x, losses=losses, workspace=workspace)
    check_shape("mean_loss.forward", "losses", losses, x.shape[:1])
    images, numbers = x.shape[0], math.prod(x.shape[1:])
    parts = ceil_div(numbers, PART)
    if size(workspace) < images * parts:
        raise KernelError(f"mean_loss.forward: workspace has {4 * size(workspace)} bytes; give {4 * images * parts}")
    launch(PARTS[error], images * parts, x, targets, workspace, numbers, parts, stream=stream)
    launch(mean_loss_means, ceil_div(images, MEANS_BLOCK), workspace, losses, images, parts, 1 / numbers, stream=stream)


def backward(x: Any, targets: Any, dx: Any, *, error: str, weight: float = 1.0, stream: Any = None) -> None:
    """Fill dx, the gradient of the mean of all losses, times `weight`.  dx may be x."""
    _check("mean_loss.backward", error, x, targets)
    check("mean_loss.backward", x=x, dx=dx)
    check_shape("mean_loss.backward", "dx", dx, x.shape)
    launch(BACKWARD[error], tiles(size(x)), x, targets, dx, size(x), weight / size(x), stream=stream)


def sigmoid(x: Any, y: Any, *, stream: Any = None) -> None:
    """y = σ(x), the probability whose cross-entropy `binary` is; y may be x."""
    check("mean_loss.sigmoid", x=x, y=y)
    check_shape("mean_loss.sigmoid", "y", y, x.shape)
    launch(mean_loss_sigmoid, tiles(size(x)), x, y, size(x), stream=stream)


def _check(where: str, error: str, x: Any, targets: Any) -> None:
    """There is such an error, and a target for every number."""
    if error not in PARTS:
        raise KernelError(f"{where}: error is {error!r}; give one of {', '.join(PARTS)}")
    check(where, x=x, targets=targets)
    check_shape(where, "targets", targets, x.shape)
