"""Channels in any other order, by a table of their numbers.

    y[n, c] = x[n, order[c]]      and backward dx[n, order[c]] = dy[n, c]

The table has every channel once, so that backward writes each number of dx once.  The order that
`kernels.fast.channel_shuffle` has needs no table.

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
from kernels.targets.launch import Floats, Ints, kernel, launch
from kernels.targets.shim import cuda


@kernel(block=BLOCK)
def permute_channels_copy(
    x: Floats, order: Ints, y: Floats, back: int, area: int, row_tiles: int, by_row_tiles: int, channels: int,
    by_channels: int,
) -> None:  # fmt: skip
    """A channel of an image in `row_tiles` blocks, read by the table's number, or with `back` written by it."""
    plane = np.int64(divide(cuda.blockIdx.x, by_row_tiles))
    image = np.int64(divide(plane, by_channels))
    other = image * channels + order[np.uint32(plane - image * channels)]
    source = plane if back else other
    target = other if back else plane
    first = (cuda.blockIdx.x - plane * row_tiles) * TILE + cuda.threadIdx.x
    for u in range(PER_THREAD):
        i = first + u * BLOCK
        if i < area:
            y[np.uint32(target * area + i)] = x[np.uint32(source * area + i)]


def forward(x: Any, order: Any, y: Any, *, stream: Any = None) -> None:
    """y = x's channels in this order: `order` is int32, and has every channel's number once."""
    _copy("permute_channels.forward", "x", x, order, "y", y, False, stream)


def backward(dy: Any, order: Any, dx: Any, *, stream: Any = None) -> None:
    """dx = the channels of dy where forward took them from."""
    _copy("permute_channels.backward", "dy", dy, order, "dx", dx, True, stream)


def _copy(where: str, name: str, x: Any, order: Any, other: str, y: Any, back: bool, stream: Any) -> None:
    check(where, **{name: x, other: y})
    check(where, np.int32, order=order)
    if len(x.shape) < 2:
        raise KernelError(f"{where}: {name} has shape {tuple(x.shape)}; it needs an axis of images and one of channels")
    check_shape(where, other, y, x.shape)
    check_shape(where, "order", order, x.shape[1:2])
    channels, area = x.shape[1], math.prod(x.shape[2:])
    sizes = area, tiles(area), reciprocal(tiles(area)), channels, reciprocal(channels)
    launch(
        permute_channels_copy, x.shape[0] * channels * tiles(area), x, order, y, int(back), *sizes, stream=stream
    )  # fmt: skip
