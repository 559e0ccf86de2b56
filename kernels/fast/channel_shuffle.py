"""Channels in another order: those of `groups` groups in turn, so that the next groups see some of each.

    y[n, j · groups + g] = x[n, g · (C / groups) + j]      (Zhang, Zhou, Lin, Sun: "ShuffleNet", 2018)

It is the transpose of a matrix of groups × (C / groups) channels; its gradient is the transpose back, the same with
C / groups groups.

Launch: 256 threads a block, four elements a thread, a block for every 1024 elements of a channel.  It copies: no
floating-point operations, 8 bytes an element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.division import divide, reciprocal
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, tiles
from kernels.targets.launch import Floats, kernel, launch
from kernels.targets.shim import cuda


@kernel(block=BLOCK)
def channel_shuffle_copy(
    x: Floats, y: Floats, area: int, row_tiles: int, by_row_tiles: int, channels: int, by_channels: int,
    groups: int, by_groups: int,
) -> None:  # fmt: skip
    """A channel of an image in `row_tiles` blocks."""
    plane = np.int64(divide(cuda.blockIdx.x, by_row_tiles))
    image = np.int64(divide(plane, by_channels))
    channel = plane - image * channels
    j = np.int64(divide(channel, by_groups))
    source = image * channels + (channel - j * groups) * np.int64(divide(channels, by_groups)) + j
    first = (cuda.blockIdx.x - plane * row_tiles) * TILE + cuda.threadIdx.x
    for u in range(PER_THREAD):
        i = first + u * BLOCK
        if i < area:
            y[np.uint32(plane * area + i)] = x[np.uint32(source * area + i)]


def forward(x: Any, y: Any, *, groups: int, stream: Any = None) -> None:
    """y = the channels of x's groups in turn."""
    check("channel_shuffle.forward", x=x, y=y)
    check_shape("channel_shuffle.forward", "y", y, x.shape)
    _copy("channel_shuffle.forward", x, y, groups, groups, stream)


def backward(dy: Any, dx: Any, *, groups: int, stream: Any = None) -> None:
    """dx = the channels of dy where forward took them."""
    check("channel_shuffle.backward", dy=dy, dx=dx)
    check_shape("channel_shuffle.backward", "dx", dx, dy.shape)
    back = dy.shape[1] // groups if len(dy.shape) > 1 and groups > 0 else groups
    _copy("channel_shuffle.backward", dy, dx, groups, back, stream)


def _copy(where: str, x: Any, y: Any, groups: int, walk: int, stream: Any) -> None:
    if len(x.shape) < 2 or groups < 1 or x.shape[1] % groups:
        raise KernelError(f"{where}: the channels of {tuple(x.shape)} cannot be cut into {groups} groups")
    channels, area = x.shape[1], math.prod(x.shape[2:])
    by = tiles(area), reciprocal(tiles(area)), channels, reciprocal(channels), walk, reciprocal(walk)
    launch(channel_shuffle_copy, x.shape[0] * channels * tiles(area), x, y, area, *by, stream=stream)
