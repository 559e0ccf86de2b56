"""Batch normalisation: every channel to mean 0 and variance 1, then scaled and shifted; x is (N, C), (N, C, H, W), …

    forward:    y = gamma·n + beta,   n = (x - mean) · inverse_std,   inverse_std = 1 / sqrt(variance + epsilon)
    backward:   dbeta = Σ dy,   dgamma = Σ dy·n,   dx = gamma · inverse_std · (dy - dbeta/count - n·dgamma/count)

A channel has `count` = N·H·W values; its variance is the biased one (divided by count).  The gradients need x, mean and
inverse_std, never y.  Forward changes no running statistics: `update_running` does, so that y can be recomputed without
moving them again.

How the sums are made: a channel's values, image after image, are cut into chunks of 4096.
    chunk    one block of 256 threads a chunk and channel, 16 values a thread (1 or 4 where a channel has no more than
             256 or 1024), then the threads' results in a tree.
             Statistics: the chunk's mean, then the sum of squares M2 around it.  Both are computed from differences to
             the channel's first value, so a mean far larger than the spread costs no precision.
    merge    one thread a channel takes the chunks' results in ascending order; means and M2 by Chan, Golub and LeVeque
             ("Updating formulae and a pairwise algorithm for computing sample variances", 1979).
The chunks' results are in the workspace, two numbers a chunk and channel: at least 2 MiB for every 4 GiB of x.  The
order of every sum follows from the shape.
    apply    one thread an element.
On a CPU chunk, apply and inference are other kernels, image by image and map by map, with the same sums: `by_image`.

Operations an element: statistics 5, y 4; gradient sums 4, dx 8.
Bytes an element: forward 12 (x twice, y once); backward 20 (x and dy twice, dx once); inference 8.
With H·W = 1 neighbouring threads of a chunk read C values apart: correct, but an eighth of the bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.checks.arguments import place as place_of
from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, Kernel, ceil_div, device, kernel, launch
from kernels.targets.shim import cuda

THREADS = 256
EACH = (1, 4, 16)  # values a thread: the fewest that hold a channel, and with the most it has several chunks
CHUNK = THREADS * EACH[-1]
MERGE_BLOCK = 64  # few threads have much to do: spread them over many multiprocessors
LEAST_AREA = 16  # of a map that a CPU takes by itself
ZERO = np.float32(0)
ONE = np.float32(1)


@device
def place(j: int, start: int, gap: int, by_area: int) -> int:
    """Index of value j of a channel: it begins at `start`, and a `gap` of other channels follows every image."""
    return np.uint32(np.int32(start + j) + np.int32(divide(j, by_area) * np.int32(gap)))


@device
def channel_of(i: int, channels: int, by_channels: int, by_area: int) -> int:
    """The channel of element i."""
    plane = divide(i, by_area)
    return np.uint32(plane - divide(plane, by_channels) * channels)


def chunk_statistics(each: int) -> Kernel:
    """The kernel for chunks of which a thread takes `each` values."""

    @kernel(block=THREADS, name=f"batchnorm_chunk_statistics_{each}")
    def batchnorm_chunk_statistics(
        x: Floats,
        partial: Floats,
        chunks: int,
        count: int,
        channels: int,
        by_channels: int,
        area: int,
        by_area: int,
        gap: int,
    ) -> None:
        """Block b takes chunk b // channels of channel b % channels: mean to partial[b], M2 after all the means.

        The mean is what remains after taking off the channel's first value.
        """
        sums = cuda.shared.array(THREADS, np.float32)
        differences = cuda.local.array(each, np.float32)
        t = np.uint32(cuda.threadIdx.x)
        b = np.uint32(cuda.blockIdx.x)
        chunk = divide(b, by_channels)
        start = np.int32((b - chunk * channels) * area)
        first = np.int32(chunk * CHUNK)
        size = np.int32(min(count - first, CHUNK))
        origin = x[np.uint32(start)]

        sum_ = ZERO
        for u in range(each):  # past the end the last value is read again: without a condition all reads go out at once
            j = min(np.int32(t + u * THREADS), np.int32(size - 1))
            differences[u] = x[place(np.int32(first + j), start, gap, by_area)] - origin
        for u in range(each):
            if np.int32(t + u * THREADS) < size:
                sum_ += differences[u]
        sums[t] = sum_
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if t < half:
                sums[t] += sums[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2
        mean = sums[0] / np.float32(size)
        cuda.syncthreads()

        sum_ = ZERO
        for u in range(each):
            if np.int32(t + u * THREADS) < size:
                sum_ += (differences[u] - mean) * (differences[u] - mean)
        sums[t] = sum_
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if t < half:
                sums[t] += sums[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            partial[b] = mean
            partial[np.uint32(b + chunks * channels)] = sums[0]

    return batchnorm_chunk_statistics


BATCHNORM_CHUNK_STATISTICS = {each: chunk_statistics(each) for each in EACH}


@kernel(block=THREADS)
def batchnorm_chunk_statistics_by_image(
    x: Floats, partial: Floats, chunks: int, count: int, channels: int, area: int, gap: int
) -> None:
    """As `batchnorm_chunk_statistics`, image after image: between barriers neighbours read neighbours."""
    sums = cuda.shared.array(THREADS, np.float32)
    origin = cuda.shared.array(1, np.float32)
    average = cuda.shared.array(1, np.float32)
    t = np.int64(cuda.threadIdx.x)
    chunk = np.int64(cuda.blockIdx.x) // channels
    channel = np.int64(cuda.blockIdx.x) - chunk * channels
    first = chunk * CHUNK
    end = min(first + CHUNK, count)
    sums[np.uint32(t)] = ZERO
    if t == 0:
        origin[0] = x[np.uint32(channel * area)]
    cuda.syncthreads()
    for image in range(first // area, (end - 1) // area + 1):
        begin = max(first, image * area)
        stop = min(end, (image + 1) * area)
        start = channel * area + image * gap
        while begin < stop:
            slot = (begin - first) % THREADS
            size = min(stop - begin, THREADS - slot)
            if t < size:
                sums[np.uint32(slot + t)] += x[np.uint32(start + begin + t)] - origin[0]
            cuda.syncthreads()
            begin += size
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[np.uint32(t)] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        average[0] = sums[0] / np.float32(end - first)
    cuda.syncthreads()
    sums[np.uint32(t)] = ZERO
    cuda.syncthreads()
    for image in range(first // area, (end - 1) // area + 1):
        begin = max(first, image * area)
        stop = min(end, (image + 1) * area)
        start = channel * area + image * gap
        while begin < stop:
            slot = (begin - first) % THREADS
            size = min(stop - begin, THREADS - slot)
            if t < size:
                difference = x[np.uint32(start + begin + t)] - origin[0]
                sums[np.uint32(slot + t)] += (difference - average[0]) * (difference - average[0])
            cuda.syncthreads()
            begin += size
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[np.uint32(t)] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        partial[np.uint32(cuda.blockIdx.x)] = average[0]
        partial[np.uint32(cuda.blockIdx.x + chunks * channels)] = sums[0]


@kernel(block=MERGE_BLOCK)
def batchnorm_merge_statistics(
    x: Floats,
    partial: Floats,
    mean: Floats,
    inverse_std: Floats,
    chunks: int,
    count: int,
    channels: int,
    area: int,
    epsilon: float,
) -> None:
    """One thread a channel: its chunks' means and M2 merged in ascending order."""
    channel = np.uint32(cuda.grid(1))
    if channel < channels:
        average = partial[channel]
        squares = partial[np.uint32(channel + chunks * channels)]
        merged = np.float32(min(count, CHUNK))
        for chunk in range(1, chunks):
            size = np.float32(min(count - chunk * CHUNK, CHUNK))
            share = size / (merged + size)
            difference = partial[np.uint32(channel + chunk * channels)] - average
            average += difference * share
            squares += partial[np.uint32(channel + (chunks + chunk) * channels)]
            squares += difference * difference * merged * share
            merged += size
        mean[channel] = x[np.uint32(channel * area)] + average
        inverse_std[channel] = ONE / math.sqrt(squares / np.float32(count) + epsilon)


@kernel(block=256)
def batchnorm_apply(
    x: Floats,
    gamma: Floats,
    beta: Floats,
    mean: Floats,
    inverse_std: Floats,
    y: Floats,
    total: int,
    channels: int,
    by_channels: int,
    by_area: int,
) -> None:
    """One thread an element: y from the batch's statistics."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        c = channel_of(i, channels, by_channels, by_area)
        y[i] = gamma[c] * ((x[i] - mean[c]) * inverse_std[c]) + beta[c]


@kernel(block=256)
def batchnorm_apply_by_map(
    x: Floats, gamma: Floats, beta: Floats, mean: Floats, inverse_std: Floats, y: Floats, channels: int, area: int
) -> None:
    """As `batchnorm_apply`, one block a map."""
    normal = cuda.shared.array(256, np.float32)
    t = np.int64(cuda.threadIdx.x)
    start = np.int64(cuda.blockIdx.x) * area
    c = np.uint32(np.int64(cuda.blockIdx.x) % channels)
    for first in range(0, area, 256):
        if t < area - first:
            normal[np.uint32(t)] = gamma[c] * ((x[np.uint32(start + first + t)] - mean[c]) * inverse_std[c]) + beta[c]
        cuda.syncthreads()
        if t < area - first:
            y[np.uint32(start + first + t)] = normal[np.uint32(t)]
        cuda.syncthreads()


@kernel(block=256)
def batchnorm_inference(
    x: Floats,
    gamma: Floats,
    beta: Floats,
    running_mean: Floats,
    running_variance: Floats,
    y: Floats,
    total: int,
    channels: int,
    by_channels: int,
    by_area: int,
    epsilon: float,
) -> None:
    """One thread an element: y from the running statistics."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        c = channel_of(i, channels, by_channels, by_area)
        y[i] = gamma[c] * ((x[i] - running_mean[c]) / math.sqrt(running_variance[c] + epsilon)) + beta[c]


@kernel(block=256)
def batchnorm_inference_by_map(
    x: Floats,
    gamma: Floats,
    beta: Floats,
    running_mean: Floats,
    running_variance: Floats,
    y: Floats,
    channels: int,
    area: int,
    epsilon: float,
) -> None:
    """As `batchnorm_inference`, one block a map."""
    normal = cuda.shared.array(256, np.float32)
    deviation = cuda.shared.array(1, np.float32)
    t = np.int64(cuda.threadIdx.x)
    start = np.int64(cuda.blockIdx.x) * area
    c = np.uint32(np.int64(cuda.blockIdx.x) % channels)
    if t == 0:
        deviation[0] = math.sqrt(running_variance[c] + epsilon)
    cuda.syncthreads()
    for first in range(0, area, 256):
        if t < area - first:
            difference = x[np.uint32(start + first + t)] - running_mean[c]
            normal[np.uint32(t)] = gamma[c] * (difference / deviation[0]) + beta[c]
        cuda.syncthreads()
        if t < area - first:
            y[np.uint32(start + first + t)] = normal[np.uint32(t)]
        cuda.syncthreads()


@kernel(block=MERGE_BLOCK)
def batchnorm_update_running(
    mean: Floats,
    inverse_std: Floats,
    running_mean: Floats,
    running_variance: Floats,
    channels: int,
    momentum: float,
    epsilon: float,
    unbiased: float,
) -> None:
    """One thread a channel: the running statistics moved by `momentum` towards the batch's."""
    c = np.uint32(cuda.grid(1))
    if c < channels:
        variance = max(ONE / (inverse_std[c] * inverse_std[c]) - epsilon, ZERO) * unbiased
        running_mean[c] += momentum * (mean[c] - running_mean[c])
        running_variance[c] += momentum * (variance - running_variance[c])


def chunk_gradients(each: int) -> Kernel:
    """The kernel for chunks of which a thread takes `each` values."""

    @kernel(block=THREADS, name=f"batchnorm_chunk_gradients_{each}")
    def batchnorm_chunk_gradients(
        x: Floats,
        mean: Floats,
        dy: Floats,
        partial: Floats,
        chunks: int,
        count: int,
        channels: int,
        by_channels: int,
        area: int,
        by_area: int,
        gap: int,
    ) -> None:
        """Block b takes chunk b // channels of channel b % channels: Σ dy, and after all of these Σ dy·(x - mean)."""
        sums = cuda.shared.array(THREADS, np.float32)
        products = cuda.shared.array(THREADS, np.float32)
        t = np.uint32(cuda.threadIdx.x)
        b = np.uint32(cuda.blockIdx.x)
        chunk = divide(b, by_channels)
        channel = np.uint32(b - chunk * channels)
        start = np.int32(channel * area)
        first = np.int32(chunk * CHUNK)
        size = np.int32(min(count - first, CHUNK))
        average = mean[channel]
        sum_ = ZERO
        product = ZERO
        for u in range(each):
            j = min(np.int32(t + u * THREADS), np.int32(size - 1))
            i = place(np.int32(first + j), start, gap, by_area)
            given = dy[i]
            difference = x[i] - average
            if np.int32(t + u * THREADS) < size:
                sum_ += given
                product += given * difference
        sums[t] = sum_
        products[t] = product
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if t < half:
                sums[t] += sums[np.uint32(t + half)]
                products[t] += products[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            partial[b] = sums[0]
            partial[np.uint32(b + chunks * channels)] = products[0]

    return batchnorm_chunk_gradients


BATCHNORM_CHUNK_GRADIENTS = {each: chunk_gradients(each) for each in EACH}


@kernel(block=THREADS)
def batchnorm_chunk_gradients_by_image(
    x: Floats, mean: Floats, dy: Floats, partial: Floats, chunks: int, count: int, channels: int, area: int, gap: int
) -> None:
    """As `batchnorm_chunk_gradients`, image after image: between barriers neighbours read neighbours."""
    sums = cuda.shared.array(THREADS, np.float32)
    products = cuda.shared.array(THREADS, np.float32)
    average = cuda.shared.array(1, np.float32)
    t = np.int64(cuda.threadIdx.x)
    chunk = np.int64(cuda.blockIdx.x) // channels
    channel = np.int64(cuda.blockIdx.x) - chunk * channels
    first = chunk * CHUNK
    end = min(first + CHUNK, count)
    sums[np.uint32(t)] = ZERO
    products[np.uint32(t)] = ZERO
    if t == 0:
        average[0] = mean[np.uint32(channel)]
    cuda.syncthreads()
    for image in range(first // area, (end - 1) // area + 1):
        begin = max(first, image * area)
        stop = min(end, (image + 1) * area)
        start = channel * area + image * gap
        while begin < stop:
            slot = (begin - first) % THREADS
            size = min(stop - begin, THREADS - slot)
            if t < size:
                given = dy[np.uint32(start + begin + t)]
                sums[np.uint32(slot + t)] += given
                products[np.uint32(slot + t)] += given * (x[np.uint32(start + begin + t)] - average[0])
            cuda.syncthreads()
            begin += size
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[np.uint32(t)] += sums[np.uint32(t + half)]
            products[np.uint32(t)] += products[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        partial[np.uint32(cuda.blockIdx.x)] = sums[0]
        partial[np.uint32(cuda.blockIdx.x + chunks * channels)] = products[0]


@kernel(block=MERGE_BLOCK)
def batchnorm_merge_gradients(
    partial: Floats, inverse_std: Floats, dgamma: Floats, dbeta: Floats, chunks: int, channels: int
) -> None:
    """One thread a channel: its chunks' sums added in ascending order give dbeta and dgamma."""
    channel = np.uint32(cuda.grid(1))
    if channel < channels:
        sum_ = ZERO
        product = ZERO
        for chunk in range(chunks):
            sum_ += partial[np.uint32(channel + chunk * channels)]
            product += partial[np.uint32(channel + (chunks + chunk) * channels)]
        dbeta[channel] = sum_
        dgamma[channel] = product * inverse_std[channel]


@kernel(block=256)
def batchnorm_apply_gradients(
    x: Floats,
    gamma: Floats,
    mean: Floats,
    inverse_std: Floats,
    dy: Floats,
    dgamma: Floats,
    dbeta: Floats,
    dx: Floats,
    total: int,
    channels: int,
    by_channels: int,
    by_area: int,
    share: float,
) -> None:
    """`share` is 1 / count."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        c = channel_of(i, channels, by_channels, by_area)
        normal = (x[i] - mean[c]) * inverse_std[c]
        dx[i] = gamma[c] * inverse_std[c] * (dy[i] - share * (dbeta[c] + normal * dgamma[c]))


@kernel(block=256)
def batchnorm_apply_gradients_by_map(
    x: Floats, gamma: Floats, mean: Floats, inverse_std: Floats, dy: Floats, dgamma: Floats, dbeta: Floats, dx: Floats,
    channels: int, area: int, share: float,
) -> None:  # fmt: skip
    """As `batchnorm_apply_gradients`, one block a map."""
    gradient = cuda.shared.array(256, np.float32)
    t = np.int64(cuda.threadIdx.x)
    start = np.int64(cuda.blockIdx.x) * area
    c = np.uint32(np.int64(cuda.blockIdx.x) % channels)
    for first in range(0, area, 256):
        if t < area - first:
            i = np.uint32(start + first + t)
            normal = (x[i] - mean[c]) * inverse_std[c]
            gradient[np.uint32(t)] = gamma[c] * inverse_std[c] * (dy[i] - share * (dbeta[c] + normal * dgamma[c]))
        cuda.syncthreads()
        if t < area - first:
            dx[np.uint32(start + first + t)] = gradient[np.uint32(t)]
        cuda.syncthreads()


def values_a_thread(count: int) -> int:
    """The least of EACH with which a chunk holds a channel's values: slots past the last value cost time."""
    return next((each for each in EACH if count <= each * THREADS), EACH[-1])


def by_image(where: str, area: int) -> bool:
    """Whether the sums of a channel go image by image: "cpu" or "gpu" is where the arrays are.

    The order of every sum is the same, so the choice changes no bit.  A CPU reads neighbours 16 at a time, and finding
    a value's place by a division hides them; a GPU wants all of a thread's reads under way at once.
    """
    return where == "cpu" and area >= LEAST_AREA


def layout(where: str, x_shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Channels, positions of a map, values and chunks of a channel."""
    if len(x_shape) < 2:
        raise KernelError(f"{where}: x has shape {tuple(x_shape)}; give images, channels and any further axes")
    channels, area = int(x_shape[1]), math.prod(x_shape[2:])
    count = int(x_shape[0]) * area
    return channels, area, count, ceil_div(count, CHUNK)


def workspace_bytes(x_shape: Sequence[int]) -> int:
    """Bytes of workspace that `forward` and `backward` need."""
    channels, _, _, chunks = layout("batchnorm.workspace_bytes", x_shape)
    return 2 * chunks * channels * 4


def check_all(where: str, x: Any, workspace: Any, like_x: dict[str, Any], per_channel: dict[str, Any]) -> None:
    check(where, x=x, **like_x, **per_channel, workspace=workspace)
    channels, _, _, _ = layout(where, x.shape)
    for name, array in like_x.items():
        check_shape(where, name, array, x.shape)
    for name, array in per_channel.items():
        check_shape(where, name, array, (channels,))


def check_workspace(where: str, x_shape: Sequence[int], workspace: Any) -> None:
    needed, given = workspace_bytes(x_shape), 0 if workspace is None else 4 * math.prod(workspace.shape)
    if given < needed:
        raise KernelError(f"{where}: the workspace has {given} bytes, x of shape {tuple(x_shape)} needs {needed}")


def forward(
    x: Any,
    gamma: Any,
    beta: Any,
    y: Any,
    mean: Any,
    inverse_std: Any,
    *,
    epsilon: float = 1e-5,
    workspace: Any,
    stream: Any = None,
) -> None:
    """Fill y, and mean and inverse_std of every channel, which the gradients will need."""
    where = "batchnorm.forward"
    check_all(where, x, workspace, {"y": y}, {"gamma": gamma, "beta": beta, "mean": mean, "inverse_std": inverse_std})
    check_workspace(where, x.shape, workspace)
    channels, area, count, chunks = layout(where, x.shape)
    total, by_channels, by_area = channels * count, reciprocal(channels), reciprocal(area)
    gap = (channels - 1) * area
    if by_image(place_of(x), area):
        own = chunks, count, channels, area, gap
        launch(batchnorm_chunk_statistics_by_image, chunks * channels, x, workspace, *own, stream=stream)
    else:
        chunk_kernel = BATCHNORM_CHUNK_STATISTICS[values_a_thread(count)]
        sizes = chunks, count, channels, by_channels, area, by_area, gap
        launch(chunk_kernel, chunks * channels, x, workspace, *sizes, stream=stream)
    statistics = mean, inverse_std, chunks, count, channels, area, epsilon
    launch(batchnorm_merge_statistics, ceil_div(channels, MERGE_BLOCK), x, workspace, *statistics, stream=stream)
    arrays = x, gamma, beta, mean, inverse_std, y
    if by_image(place_of(x), area):
        launch(batchnorm_apply_by_map, total // area, *arrays, channels, area, stream=stream)
    else:
        launch(batchnorm_apply, ceil_div(total, 256), *arrays, total, channels, by_channels, by_area, stream=stream)


def update_running(
    mean: Any,
    inverse_std: Any,
    running_mean: Any,
    running_variance: Any,
    *,
    count: int,
    momentum: float = 0.1,
    epsilon: float = 1e-5,
    stream: Any = None,
) -> None:
    """Move the running statistics by `momentum` towards a batch's, in place; `count` values a channel had in it.

    The running variance is an estimate (unbiased, divided by count - 1); of a single value it is taken to be zero.
    """
    where, channels = "batchnorm.update_running", math.prod(getattr(mean, "shape", ()))
    arrays = {"inverse_std": inverse_std, "running_mean": running_mean, "running_variance": running_variance}
    check(where, mean=mean, **arrays)
    for name, array in {"mean": mean, **arrays}.items():
        check_shape(where, name, array, (channels,))
    if count < 1:
        raise KernelError(f"{where}: count is {count}; give the number of values a channel had in the batch")
    options = channels, momentum, epsilon, count / max(count - 1, 1)
    grid = ceil_div(channels, MERGE_BLOCK)
    launch(batchnorm_update_running, grid, mean, *arrays.values(), *options, stream=stream)


def inference(
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any,
    running_variance: Any,
    y: Any,
    *,
    epsilon: float = 1e-5,
    stream: Any = None,
) -> None:
    """Fill y from the running statistics.  y may be x."""
    where = "batchnorm.inference"
    running = {"running_mean": running_mean, "running_variance": running_variance}
    check_all(where, x, None, {"y": y}, {"gamma": gamma, "beta": beta, **running})
    channels, area, count, _ = layout(where, x.shape)
    total = channels * count
    arrays = x, gamma, beta, running_mean, running_variance, y
    if by_image(place_of(x), area):
        launch(batchnorm_inference_by_map, total // area, *arrays, channels, area, epsilon, stream=stream)
    else:
        sizes = total, channels, reciprocal(channels), reciprocal(area)
        launch(batchnorm_inference, ceil_div(total, 256), *arrays, *sizes, epsilon, stream=stream)


def backward(
    x: Any,
    gamma: Any,
    mean: Any,
    inverse_std: Any,
    dy: Any,
    dx: Any,
    dgamma: Any,
    dbeta: Any,
    *,
    workspace: Any,
    stream: Any = None,
) -> None:
    """Fill dx, dgamma and dbeta; mean and inverse_std are those that `forward` gave.  dx may be dy."""
    where = "batchnorm.backward"
    per_channel = {"gamma": gamma, "mean": mean, "inverse_std": inverse_std, "dgamma": dgamma, "dbeta": dbeta}
    check_all(where, x, workspace, {"dy": dy, "dx": dx}, per_channel)
    check_workspace(where, x.shape, workspace)
    channels, area, count, chunks = layout(where, x.shape)
    total, by_channels, by_area = channels * count, reciprocal(channels), reciprocal(area)
    gap, read = (channels - 1) * area, (x, mean, dy, workspace)
    if by_image(place_of(x), area):
        own = chunks, count, channels, area, gap
        launch(batchnorm_chunk_gradients_by_image, chunks * channels, *read, *own, stream=stream)
    else:
        chunk_kernel = BATCHNORM_CHUNK_GRADIENTS[values_a_thread(count)]
        sizes = chunks, count, channels, by_channels, area, by_area, gap
        launch(chunk_kernel, chunks * channels, *read, *sizes, stream=stream)
    gradients = workspace, inverse_std, dgamma, dbeta, chunks, channels
    launch(batchnorm_merge_gradients, ceil_div(channels, MERGE_BLOCK), *gradients, stream=stream)
    arrays = x, gamma, mean, inverse_std, dy, dgamma, dbeta, dx
    if by_image(place_of(x), area):
        launch(batchnorm_apply_gradients_by_map, total // area, *arrays, channels, area, 1 / count, stream=stream)
    else:
        options = total, channels, by_channels, by_area, 1 / count
        launch(batchnorm_apply_gradients, ceil_div(total, 256), *arrays, *options, stream=stream)
