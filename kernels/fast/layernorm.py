"""Layer and group normalisation: *sets* of an image's values to mean 0 and variance 1, then scaled and shifted.

    layer   a set is the channels of one position (a pixel, a token): C values, H·W apart in memory
    group   a set is one of `groups` groups of neighbouring channels: C / groups · H·W values, side by side;
            with as many groups as channels it is instance normalisation

    forward:    y = gamma·n + beta,   n = (x - mean) · inverse_std,   inverse_std = 1 / sqrt(variance + epsilon)
    backward:   dbeta = Σ dy,   dgamma = Σ dy·n,   g = dy·gamma,
                dx = inverse_std · (g - mean of g - n · mean of g·n), both means over the set

x is (N, C, …); gamma and beta have a number a channel, or are None: 1 and 0.  The variance is the biased one.  The
gradients need x, and mean and inverse_std of every set, never y.  dx may be dy.

Launch: 256 threads a block.  Of layer normalisation a block takes 32 neighbouring positions of one image, with eight
threads each; of group normalisation one set, with all of its threads, as it does where a position is all that an image
has.  A thread takes every 8th (256th) value of its set, four at a time; then the threads' sums meet in a tree.  For
dgamma and dbeta a block takes some images of a channel, about 4096 values, into the workspace; one thread a channel
adds these up in ascending order.  So the order of every sum follows from the shape.  Between two barriers neighbouring
threads read neighbours, four reads each: a CPU takes them 16 at a time.  A CPU has kernels of its own for
group normalisation's forward pass and the gradients of gamma and beta, with the same sums: see `by_channel`.

Operations an element: forward 8; backward 14.
Bytes an element: forward 8 (x is read three times, from a cache after the first), backward 20 (x and dy twice).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape, flat, place
from kernels.fast.conv.implicit_gemm import conv_sum_partials
from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, Kernel, ceil_div, kernel, launch
from kernels.targets.shim import cuda

THREADS = 256
SIDE_BY_SIDE = (32, 1)  # sets of a block: of layer and of group normalisation
EACH = 4  # values of a thread between two barriers
CHUNK = 4096  # values of a channel in one block of its gradients
LEAST_AREA = 16  # of a map that a CPU takes by itself
ZERO, ONE = np.float32(0), np.float32(1)


class Sets(NamedTuple):
    """Where the sets of x are: value k of set p of row r has the index (r · values + k) · wide + p."""

    rows: int  #: images, or groups of all images
    values: int  #: of a set
    wide: int  #: sets side by side: positions of an image, or 1
    groups: int  #: rows of an image
    area: int  #: positions of an image

    @classmethod
    def of(cls, where: str, x_shape: Sequence[int], groups: int | None) -> Sets:
        if len(x_shape) < 2:
            raise KernelError(f"{where}: x has shape {tuple(x_shape)}; give images, channels and any further axes")
        images, channels, area = int(x_shape[0]), int(x_shape[1]), math.prod(x_shape[2:])
        if groups is None and area > 1:
            return cls(images, channels, area, 1, area)
        if groups is not None and (groups < 1 or channels % groups):
            raise KernelError(f"{where}: {channels} channels cannot be cut into {groups} groups")
        groups = groups or 1
        return cls(images * groups, channels // groups * area, 1, groups, area)

    @property
    def kept(self) -> tuple[int, int]:
        """The shape of mean and inverse_std: sets of every image."""
        return self.rows // self.groups, self.groups * self.wide

    @property
    def side_by_side(self) -> int:
        """Sets of a block."""
        return SIDE_BY_SIDE[self.wide == 1]

    @property
    def blocks(self) -> int:
        return self.rows * ceil_div(self.wide, self.side_by_side)


def forward_kernel(lanes: int) -> Kernel:
    """For `lanes` sets a block, neighbours in memory; of one set the values are."""
    deep = THREADS // lanes
    together = EACH * deep

    @kernel(block=THREADS, name=f"layernorm_forward_{lanes}")
    def layernorm_forward(
        x: Floats, gamma: Floats, beta: Floats, y: Floats, mean: Floats, inverse_std: Floats, affine: int,
        count: int, wide: int, blocks: int, groups: int, channel_values: int, by_channel_values: int,
        share: float, epsilon: float,
    ) -> None:  # fmt: skip
        """`blocks` of a row; a channel has `channel_values` in a set; share = 1 / count."""
        sums = cuda.shared.array(THREADS, np.float32)
        t = np.int64(cuda.threadIdx.x)
        row = np.int64(cuda.blockIdx.x) // blocks
        first = (np.int64(cuda.blockIdx.x) - row * blocks) * lanes
        start = row * count * wide + first
        channel = row % groups * (count // channel_values)
        there = min(wide - first, np.int64(lanes))

        sums[np.uint32(t)] = ZERO
        cuda.syncthreads()
        for k in range(0, count, together):
            for u in range(EACH):
                at = k + u * deep + t // lanes
                if at < count and t % lanes < there:
                    sums[np.uint32(t)] += x[np.uint32(start + at * (wide if lanes > 1 else 1) + t % lanes)]
            cuda.syncthreads()
        half = THREADS // 2
        while half >= lanes:
            if t < half:
                sums[np.uint32(t)] += sums[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2
        if t < there:
            mean[np.uint32(row * wide + first + t)] = sums[np.uint32(t)] * share
        cuda.syncthreads()

        sums[np.uint32(t)] = ZERO
        cuda.syncthreads()
        for k in range(0, count, together):
            for u in range(EACH):
                at = k + u * deep + t // lanes
                if at < count and t % lanes < there:
                    value = x[np.uint32(start + at * (wide if lanes > 1 else 1) + t % lanes)]
                    away = value - mean[np.uint32(row * wide + first + t % lanes)]
                    sums[np.uint32(t)] += away * away
            cuda.syncthreads()
        half = THREADS // 2
        while half >= lanes:
            if t < half:
                sums[np.uint32(t)] += sums[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2
        if t < there:
            inverse_std[np.uint32(row * wide + first + t)] = ONE / math.sqrt(sums[np.uint32(t)] * share + epsilon)
        cuda.syncthreads()

        for k in range(0, count, together):
            for u in range(EACH):
                at = k + u * deep + t // lanes
                if at < count and t % lanes < there:
                    e = np.uint32(start + at * (wide if lanes > 1 else 1) + t % lanes)
                    s = np.uint32(row * wide + first + t % lanes)
                    normal = (x[e] - mean[s]) * inverse_std[s]
                    if affine != 0:
                        c = np.uint32(channel + divide(at, by_channel_values))
                        normal = gamma[c] * normal + beta[c]
                    y[e] = normal
            cuda.syncthreads()

    return layernorm_forward


def backward_kernel(lanes: int) -> Kernel:
    """For `lanes` sets a block, as `forward_kernel`."""
    deep = THREADS // lanes
    together = EACH * deep

    @kernel(block=THREADS, name=f"layernorm_backward_{lanes}")
    def layernorm_backward(
        x: Floats, gamma: Floats, mean: Floats, inverse_std: Floats, dy: Floats, dx: Floats, affine: int,
        count: int, wide: int, blocks: int, groups: int, channel_values: int, by_channel_values: int, share: float,
    ) -> None:  # fmt: skip
        """dx of the sets of a block."""
        sums = cuda.shared.array(THREADS, np.float32)
        products = cuda.shared.array(THREADS, np.float32)
        t = np.int64(cuda.threadIdx.x)
        row = np.int64(cuda.blockIdx.x) // blocks
        first = (np.int64(cuda.blockIdx.x) - row * blocks) * lanes
        start = row * count * wide + first
        channel = row % groups * (count // channel_values)
        there = min(wide - first, np.int64(lanes))

        sums[np.uint32(t)] = ZERO
        products[np.uint32(t)] = ZERO
        cuda.syncthreads()
        for k in range(0, count, together):
            for u in range(EACH):
                at = k + u * deep + t // lanes
                if at < count and t % lanes < there:
                    e = np.uint32(start + at * (wide if lanes > 1 else 1) + t % lanes)
                    s = np.uint32(row * wide + first + t % lanes)
                    g = dy[e]
                    if affine != 0:
                        g *= gamma[np.uint32(channel + divide(at, by_channel_values))]
                    sums[np.uint32(t)] += g
                    products[np.uint32(t)] += g * ((x[e] - mean[s]) * inverse_std[s])
            cuda.syncthreads()
        half = THREADS // 2
        while half >= lanes:
            if t < half:
                sums[np.uint32(t)] += sums[np.uint32(t + half)]
                products[np.uint32(t)] += products[np.uint32(t + half)]
            cuda.syncthreads()
            half //= 2

        for k in range(0, count, together):
            for u in range(EACH):
                at = k + u * deep + t // lanes
                if at < count and t % lanes < there:
                    e = np.uint32(start + at * (wide if lanes > 1 else 1) + t % lanes)
                    s = np.uint32(row * wide + first + t % lanes)
                    g = dy[e]
                    if affine != 0:
                        g *= gamma[np.uint32(channel + divide(at, by_channel_values))]
                    normal = (x[e] - mean[s]) * inverse_std[s]
                    taken = sums[np.uint32(t % lanes)] + normal * products[np.uint32(t % lanes)]
                    dx[e] = inverse_std[s] * (g - share * taken)
            cuda.syncthreads()

    return layernorm_backward


def gradients_kernel(lanes: int) -> Kernel:
    """Of gamma and beta; `lanes` as of `forward_kernel`: with more than one, every position has a mean of its own."""

    @kernel(block=THREADS, name=f"layernorm_chunk_gradients_{lanes}")
    def layernorm_chunk_gradients(
        x: Floats, mean: Floats, inverse_std: Floats, dy: Floats, partial: Floats,
        images: int, channels: int, area: int, chunk_images: int, chunks: int, kept: int, group_channels: int,
    ) -> None:  # fmt: skip
        """Block b takes chunk b // channels of channel b % channels: Σ dy, and after all of these Σ dy·n.

        An image has `kept` means.
        """
        sums = cuda.shared.array(THREADS, np.float32)
        products = cuda.shared.array(THREADS, np.float32)
        t = np.int64(cuda.threadIdx.x)
        chunk = np.int64(cuda.blockIdx.x) // channels
        channel = np.int64(cuda.blockIdx.x) - chunk * channels
        sums[np.uint32(t)] = ZERO
        products[np.uint32(t)] = ZERO
        cuda.syncthreads()
        for image in range(chunk * chunk_images, min((chunk + 1) * chunk_images, images)):
            start = (image * channels + channel) * area
            set_ = image * kept + (0 if lanes > 1 else channel // group_channels)
            for j in range(0, area, EACH * THREADS):
                for u in range(EACH):
                    at = j + u * THREADS + t
                    if at < area:
                        e = np.uint32(start + at)
                        s = np.uint32(set_ + (at if lanes > 1 else 0))
                        sums[np.uint32(t)] += dy[e]
                        products[np.uint32(t)] += dy[e] * ((x[e] - mean[s]) * inverse_std[s])
                cuda.syncthreads()
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

    return layernorm_chunk_gradients


@kernel(block=THREADS)
def layernorm_forward_by_channel(
    x: Floats, gamma: Floats, beta: Floats, y: Floats, mean: Floats, inverse_std: Floats, affine: int,
    channels: int, area: int, groups: int, share: float, epsilon: float,
) -> None:  # fmt: skip
    """As `layernorm_forward_1`, for a CPU, with the same sums; a set has `channels` of `area` values.

    What has changed: pieces of four values a thread are whole, without a condition, and are added in a register; what
    is the same for a set or a channel is in shared memory, where no store to y can change it; and y is made channel
    by channel, so that no value has to find its own.
    """
    sums = cuda.shared.array(THREADS, np.float32)
    same = cuda.shared.array(4, np.float32)  # mean and inverse_std of the set, gamma and beta of the channel
    t = np.int64(cuda.threadIdx.x)
    row = np.int64(cuda.blockIdx.x)
    count = channels * area
    start = row * count
    whole = count - count % (EACH * THREADS)

    sums[np.uint32(t)] = ZERO
    cuda.syncthreads()
    for k in range(0, whole, EACH * THREADS):
        total = sums[np.uint32(t)]
        for u in range(EACH):
            total += x[np.uint32(start + k + u * THREADS + t)]
        sums[np.uint32(t)] = total
        cuda.syncthreads()
    for k in range(whole, count, THREADS):
        if t < count - k:
            sums[np.uint32(t)] += x[np.uint32(start + k + t)]
        cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[np.uint32(t)] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        same[0] = sums[0] * share
        same[2] = ONE  # where there is no gamma, a compiler may still read it
        same[3] = ZERO
        mean[np.uint32(row)] = same[0]
    cuda.syncthreads()

    sums[np.uint32(t)] = ZERO
    cuda.syncthreads()
    for k in range(0, whole, EACH * THREADS):
        total = sums[np.uint32(t)]
        for u in range(EACH):
            away = x[np.uint32(start + k + u * THREADS + t)] - same[0]
            total += away * away
        sums[np.uint32(t)] = total
        cuda.syncthreads()
    for k in range(whole, count, THREADS):
        if t < count - k:
            away = x[np.uint32(start + k + t)] - same[0]
            sums[np.uint32(t)] += away * away
        cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[np.uint32(t)] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        same[1] = ONE / math.sqrt(sums[0] * share + epsilon)
        inverse_std[np.uint32(row)] = same[1]
    cuda.syncthreads()

    for c in range(channels):
        if t == 0 and affine != 0:
            same[2] = gamma[np.uint32(row % groups * channels + c)]
            same[3] = beta[np.uint32(row % groups * channels + c)]
        cuda.syncthreads()
        for k in range(0, area, THREADS):
            if t < area - k:
                e = np.uint32(start + c * area + k + t)
                normal = (x[e] - same[0]) * same[1]
                if affine != 0:
                    normal = same[2] * normal + same[3]
                y[e] = normal
            cuda.syncthreads()


@kernel(block=THREADS)
def layernorm_chunk_gradients_by_channel(
    x: Floats, mean: Floats, inverse_std: Floats, dy: Floats, partial: Floats,
    images: int, channels: int, area: int, chunk_images: int, chunks: int, kept: int, group_channels: int,
) -> None:  # fmt: skip
    """As `layernorm_chunk_gradients_1`, for a CPU, with the same sums: an image's mean is read once."""
    sums = cuda.shared.array(THREADS, np.float32)
    products = cuda.shared.array(THREADS, np.float32)
    same = cuda.shared.array(2, np.float32)  # mean and inverse_std
    t = np.int64(cuda.threadIdx.x)
    chunk = np.int64(cuda.blockIdx.x) // channels
    channel = np.int64(cuda.blockIdx.x) - chunk * channels
    sums[np.uint32(t)] = ZERO
    products[np.uint32(t)] = ZERO
    cuda.syncthreads()
    for image in range(chunk * chunk_images, min((chunk + 1) * chunk_images, images)):
        start = (image * channels + channel) * area
        if t == 0:
            same[0] = mean[np.uint32(image * kept + channel // group_channels)]
            same[1] = inverse_std[np.uint32(image * kept + channel // group_channels)]
        cuda.syncthreads()
        for k in range(0, area, THREADS):
            if t < area - k:
                e = np.uint32(start + k + t)
                sums[np.uint32(t)] += dy[e]
                products[np.uint32(t)] += dy[e] * ((x[e] - same[0]) * same[1])
            cuda.syncthreads()
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


#: Sets of a block → kernel.
FORWARD, BACKWARD, GRADIENTS = (
    {lanes: made(lanes) for lanes in SIDE_BY_SIDE} for made in (forward_kernel, backward_kernel, gradients_kernel)
)


def by_channel(where: str, sets: Sets) -> bool:
    """Whether a block has one channel at a time: "cpu" or "gpu" is where the arrays are.

    The order of every sum is the same.  A CPU takes 16 neighbours of a channel at a time; a GPU wants all of its
    threads at work, also on small maps.
    """
    return where == "cpu" and sets.wide == 1 and sets.area >= LEAST_AREA


def chunk_images(area: int) -> int:
    """Images of a chunk."""
    return max(1, CHUNK // area)


def workspace_bytes(x_shape: Sequence[int]) -> int:
    """Bytes of workspace that `backward` needs: two numbers for every chunk of every channel."""
    return 2 * ceil_div(x_shape[0], chunk_images(math.prod(x_shape[2:]))) * x_shape[1] * 4


def forward(
    x: Any, gamma: Any, beta: Any, y: Any, mean: Any, inverse_std: Any, *, groups: int | None = None,
    epsilon: float = 1e-5, stream: Any = None,
) -> None:  # fmt: skip
    """Fill y, and mean and inverse_std of every set, which the gradients need; groups=None: layer normalisation."""
    where = "layernorm.forward"
    sets = _checked(where, x, groups, {"y": y}, {"gamma": gamma, "beta": beta}, mean, inverse_std)
    affine = x if gamma is None else gamma, x if beta is None else beta  # a kernel cannot be given None
    if by_channel(place(x), sets):
        sizes = sets.values // sets.area, sets.area, sets.groups
        launch(
            layernorm_forward_by_channel, sets.rows, x, *affine, y, mean, inverse_std, int(gamma is not None), *sizes,
            1 / sets.values, epsilon, stream=stream,
        )  # fmt: skip
        return
    launch(
        FORWARD[sets.side_by_side], sets.blocks, x, *affine, y, mean, inverse_std, int(gamma is not None),
        *_sizes(sets), 1 / sets.values, epsilon, stream=stream,
    )  # fmt: skip


def backward(
    x: Any, gamma: Any, mean: Any, inverse_std: Any, dy: Any, dx: Any, dgamma: Any = None, dbeta: Any = None, *,
    groups: int | None = None, workspace: Any = None, stream: Any = None,
) -> None:  # fmt: skip
    """Fill dx, and with gamma dgamma and dbeta; mean and inverse_std are those that `forward` gave.  dx may be dy."""
    where = "layernorm.backward"
    channels = {"gamma": gamma, "dgamma": dgamma, "dbeta": dbeta}
    sets = _checked(where, x, groups, {"dy": dy, "dx": dx}, channels, mean, inverse_std)
    if gamma is not None:
        check(where, workspace=workspace)
        needed, given = workspace_bytes(x.shape), 0 if workspace is None else 4 * math.prod(workspace.shape)
        if given < needed:
            raise KernelError(f"{where}: the workspace has {given} bytes, x of shape {tuple(x.shape)} needs {needed}")
        images, each = x.shape[0], chunk_images(sets.area)
        sizes = images, x.shape[1], sets.area, each, ceil_div(images, each), sets.kept[1], x.shape[1] // sets.groups
        of_chunks = x, mean, inverse_std, dy, workspace, *sizes
        made = layernorm_chunk_gradients_by_channel if by_channel(place(x), sets) else GRADIENTS[sets.side_by_side]
        launch(made, ceil_div(images, each) * x.shape[1], *of_chunks, stream=stream)
        for slope, first in ((dbeta, 0), (dgamma, needed // 8)):
            merged = flat(workspace)[first : first + needed // 8], slope, x.shape[1], ceil_div(images, each)
            launch(conv_sum_partials, ceil_div(x.shape[1], THREADS), *merged, stream=stream)
    launch(  # last: dx may overwrite dy
        BACKWARD[sets.side_by_side], sets.blocks, x, x if gamma is None else gamma, mean, inverse_std, dy, dx,
        int(gamma is not None), *_sizes(sets), 1 / sets.values, stream=stream,
    )  # fmt: skip


def _sizes(sets: Sets) -> tuple[int, ...]:
    of_a_channel = sets.area if sets.wide == 1 else 1
    return (
        sets.values, sets.wide, sets.blocks // sets.rows, sets.groups, of_a_channel, reciprocal(of_a_channel)
    )  # fmt: skip


def _checked(
    where: str, x: Any, groups: int | None, like_x: dict[str, Any], per_channel: dict[str, Any], *kept: Any
) -> Sets:
    of_sets = dict(zip(("mean", "inverse_std"), kept, strict=True))
    check(where, x=x, **like_x, **per_channel, **of_sets)
    sets = Sets.of(where, x.shape, groups)
    if len({array is None for array in per_channel.values()}) > 1:
        raise KernelError(f"{where}: give {', '.join(per_channel)}, or none of them")
    for name, array in like_x.items():
        check_shape(where, name, array, x.shape)
    for name, array in per_channel.items():
        check_shape(where, name, array, (x.shape[1],))
    for name, array in of_sets.items():
        check_shape(where, name, array, sets.kept)
    return sets
