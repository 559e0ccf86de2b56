"""RMS normalisation: the channels of every position (a token) divided by the root of the mean of their squares.

    forward:    y = gamma·n,   n = x · inverse_rms,   inverse_rms = 1 / sqrt(mean of x² + epsilon)
    backward:   dgamma = Σ dy·n,   g = dy·gamma,   dx = inverse_rms · (g - n · mean of g·n), the mean over the channels

It is layer normalisation without the mean and without beta.  x is (N, C, …); gamma has a number a channel, or is None:
1.  The gradients need x, and inverse_rms of every position, never y.  dx may be dy.

Launch: as `kernels.fast.layernorm`, whose sets of values these are: a block takes 32 neighbouring positions with eight
threads each, or one position where an image has no more.  The order of every sum follows from the shape.

Operations an element: forward 4; backward 9.
Bytes an element: forward 8 (x is read twice, from a cache the second time), backward 20 (x and dy twice).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast import layernorm
from kernels.fast.conv.implicit_gemm import conv_sum_partials
from kernels.fast.layernorm import EACH, SIDE_BY_SIDE, THREADS, Sets, chunk_images
from kernels.targets.launch import Floats, Kernel, ceil_div, kernel, launch
from kernels.targets.shim import cuda

ZERO, ONE = np.float32(0), np.float32(1)


def forward_kernel(lanes: int) -> Kernel:
    """For `lanes` positions a block, neighbours in memory; of one position the channels are."""
    deep = THREADS // lanes
    together = EACH * deep

    @kernel(block=THREADS, name=f"rmsnorm_forward_{lanes}")
    def rmsnorm_forward(
        x: Floats, gamma: Floats, y: Floats, inverse_rms: Floats, affine: int, count: int, wide: int, blocks: int,
        share: float, epsilon: float,
    ) -> None:  # fmt: skip
        """`blocks` of an image of `count` channels and `wide` positions; share = 1 / count."""
        sums = cuda.shared.array(THREADS, np.float32)
        t = np.int64(cuda.threadIdx.x)
        row = np.int64(cuda.blockIdx.x) // blocks
        first = (np.int64(cuda.blockIdx.x) - row * blocks) * lanes
        start = row * count * wide + first
        there = min(wide - first, np.int64(lanes))

        sums[np.uint32(t)] = ZERO
        cuda.syncthreads()
        for k in range(0, count, together):
            for u in range(EACH):
                at = k + u * deep + t // lanes
                if at < count and t % lanes < there:
                    value = x[np.uint32(start + at * (wide if lanes > 1 else 1) + t % lanes)]
                    sums[np.uint32(t)] += value * value
            cuda.syncthreads()
        half = THREADS // 2
        while half >= lanes:
            if t < half:
                sums[np.uint32(t)] += sums[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2
        if t < there:
            inverse_rms[np.uint32(row * wide + first + t)] = ONE / math.sqrt(sums[np.uint32(t)] * share + epsilon)
        cuda.syncthreads()

        for k in range(0, count, together):
            for u in range(EACH):
                at = k + u * deep + t // lanes
                if at < count and t % lanes < there:
                    e = np.uint32(start + at * (wide if lanes > 1 else 1) + t % lanes)
                    normal = x[e] * inverse_rms[np.uint32(row * wide + first + t % lanes)]
                    y[e] = gamma[np.uint32(at)] * normal if affine != 0 else normal
            cuda.syncthreads()

    return rmsnorm_forward


def backward_kernel(lanes: int) -> Kernel:
    """For `lanes` positions a block, as `forward_kernel`."""
    deep = THREADS // lanes
    together = EACH * deep

    @kernel(block=THREADS, name=f"rmsnorm_backward_{lanes}")
    def rmsnorm_backward(
        x: Floats, gamma: Floats, inverse_rms: Floats, dy: Floats, dx: Floats, affine: int, count: int, wide: int,
        blocks: int, share: float,
    ) -> None:  # fmt: skip
        """dx of the positions of a block."""
        products = cuda.shared.array(THREADS, np.float32)
        t = np.int64(cuda.threadIdx.x)
        row = np.int64(cuda.blockIdx.x) // blocks
        first = (np.int64(cuda.blockIdx.x) - row * blocks) * lanes
        start = row * count * wide + first
        there = min(wide - first, np.int64(lanes))

        products[np.uint32(t)] = ZERO
        cuda.syncthreads()
        for k in range(0, count, together):
            for u in range(EACH):
                at = k + u * deep + t // lanes
                if at < count and t % lanes < there:
                    e = np.uint32(start + at * (wide if lanes > 1 else 1) + t % lanes)
                    g = gamma[np.uint32(at)] * dy[e] if affine != 0 else dy[e]
                    products[np.uint32(t)] += g * (x[e] * inverse_rms[np.uint32(row * wide + first + t % lanes)])
            cuda.syncthreads()
        half = THREADS // 2
        while half >= lanes:
            if t < half:
                products[np.uint32(t)] += products[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2

        for k in range(0, count, together):
            for u in range(EACH):
                at = k + u * deep + t // lanes
                if at < count and t % lanes < there:
                    e = np.uint32(start + at * (wide if lanes > 1 else 1) + t % lanes)
                    s = np.uint32(row * wide + first + t % lanes)
                    g = gamma[np.uint32(at)] * dy[e] if affine != 0 else dy[e]
                    normal = x[e] * inverse_rms[s]
                    dx[e] = inverse_rms[s] * (g - share * (normal * products[np.uint32(t % lanes)]))
            cuda.syncthreads()

    return rmsnorm_backward


@kernel(block=THREADS)
def rmsnorm_chunk_gradients(
    x: Floats, inverse_rms: Floats, dy: Floats, partial: Floats, images: int, channels: int, area: int,
    chunk_images: int,
) -> None:  # fmt: skip
    """Block b takes chunk b // channels of channel b % channels: Σ dy·n over some images."""
    products = cuda.shared.array(THREADS, np.float32)
    t = np.int64(cuda.threadIdx.x)
    chunk = np.int64(cuda.blockIdx.x) // channels
    channel = np.int64(cuda.blockIdx.x) - chunk * channels
    products[np.uint32(t)] = ZERO
    cuda.syncthreads()
    for image in range(chunk * chunk_images, min((chunk + 1) * chunk_images, images)):
        start = (image * channels + channel) * area
        for j in range(0, area, EACH * THREADS):
            for u in range(EACH):
                at = j + u * THREADS + t
                if at < area:
                    e = np.uint32(start + at)
                    products[np.uint32(t)] += dy[e] * (x[e] * inverse_rms[np.uint32(image * area + at)])
            cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            products[np.uint32(t)] += products[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        partial[np.uint32(cuda.blockIdx.x)] = products[0]


#: Positions of a block → kernel.
FORWARD, BACKWARD = ({lanes: made(lanes) for lanes in SIDE_BY_SIDE} for made in (forward_kernel, backward_kernel))


def workspace_bytes(x_shape: Sequence[int]) -> int:
    """Bytes of workspace that `backward` needs: a number for every chunk of every channel."""
    return layernorm.workspace_bytes(x_shape) // 2


def forward(x: Any, gamma: Any, y: Any, inverse_rms: Any, *, epsilon: float = 1e-6, stream: Any = None) -> None:
    """Fill y, and inverse_rms of every position, which the gradients need."""
    sets = _checked("rmsnorm.forward", x, {"y": y}, {"gamma": gamma}, inverse_rms)
    launch(
        FORWARD[sets.side_by_side], sets.blocks, x, x if gamma is None else gamma, y, inverse_rms,
        int(gamma is not None), *_sizes(sets), 1 / sets.values, epsilon, stream=stream,
    )  # fmt: skip


def backward(
    x: Any, gamma: Any, inverse_rms: Any, dy: Any, dx: Any, dgamma: Any = None, *, workspace: Any = None,
    stream: Any = None,
) -> None:  # fmt: skip
    """Fill dx, and with gamma dgamma; inverse_rms is that which `forward` gave.  dx may be dy."""
    where = "rmsnorm.backward"
    sets = _checked(where, x, {"dy": dy, "dx": dx}, {"gamma": gamma, "dgamma": dgamma}, inverse_rms)
    if gamma is not None:
        check(where, workspace=workspace)
        needed, given = workspace_bytes(x.shape), 0 if workspace is None else 4 * math.prod(workspace.shape)
        if given < needed:
            raise KernelError(f"{where}: the workspace has {given} bytes, x of shape {tuple(x.shape)} needs {needed}")
        (images, channels), each = x.shape[:2], chunk_images(sets.area)
        chunks = ceil_div(images, each)
        sizes = images, channels, sets.area, each
        launch(rmsnorm_chunk_gradients, chunks * channels, x, inverse_rms, dy, workspace, *sizes, stream=stream)
        merged = workspace, dgamma, channels, chunks
        launch(conv_sum_partials, ceil_div(channels, THREADS), *merged, stream=stream)
    launch(  # last: dx may overwrite dy
        BACKWARD[sets.side_by_side], sets.blocks, x, x if gamma is None else gamma, inverse_rms, dy, dx,
        int(gamma is not None), *_sizes(sets), 1 / sets.values, stream=stream,
    )  # fmt: skip


def _sizes(sets: Sets) -> tuple[int, int, int]:
    return sets.values, sets.wide, sets.blocks // sets.rows


def _checked(where: str, x: Any, like_x: dict[str, Any], per_channel: dict[str, Any], inverse_rms: Any) -> Sets:
    check(where, x=x, **like_x, **per_channel, inverse_rms=inverse_rms)
    sets = Sets.of(where, x.shape, None)
    if len({array is None for array in per_channel.values()}) > 1:
        raise KernelError(f"{where}: give {', '.join(per_channel)}, or none of them")
    for name, array in like_x.items():
        check_shape(where, name, array, x.shape)
    for name, array in per_channel.items():
        check_shape(where, name, array, (x.shape[1],))
    check_shape(where, "inverse_rms", inverse_rms, sets.kept)
    return sets
