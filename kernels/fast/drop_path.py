"""Stochastic depth: an image's maps are all set to zero with a probability p, or else multiplied by 1 / (1 - p).

Before a sum it leaves out whole branches of some images (Huang, Sun, Liu, Sedra, Weinberger: "Deep networks with
stochastic depth", 2016).  No mask is stored: image n is dropped if the first word that dropout's generator
(`kernels.fast.dropout`) makes of the counter (n, layer, iteration) is below p · 2**32.  So backward drops what forward
did.

Launch: 256 threads a block, four elements a thread, a block for every 1024 elements of an image.  n elements take n
floating-point operations and move 8 n bytes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import check, check_shape
from kernels.fast.division import divide, reciprocal
from kernels.fast.dropout import checked_draw, philox
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, tiles
from kernels.targets.launch import Floats, kernel, launch
from kernels.targets.shim import cuda

ZERO = np.float32(0)


@kernel(block=BLOCK)
def drop_path_apply(
    x: Floats, y: Floats, length: int, row_tiles: int, by_row_tiles: int, threshold: int, scale: float,
    seed_low: int, seed_high: int, layer: int, iteration_low: int, iteration_high: int,
) -> None:  # fmt: skip
    """`length` elements of every image, in `row_tiles` blocks."""
    value = cuda.local.array(PER_THREAD, np.float32)
    image = np.int64(divide(cuda.blockIdx.x, by_row_tiles))
    tile = (cuda.blockIdx.x - image * row_tiles) * TILE
    word, _, _, _ = philox(
        np.uint32(image), np.uint32(layer), np.uint32(iteration_low), np.uint32(iteration_high), np.uint32(seed_low),
        np.uint32(seed_high),
    )  # fmt: skip
    factor = scale if word >= np.uint32(threshold) else ZERO
    start = image * length + tile + cuda.threadIdx.x
    if tile + TILE <= length:
        for j in range(PER_THREAD):
            value[j] = x[np.uint32(start + j * BLOCK)]
        for j in range(PER_THREAD):
            y[np.uint32(start + j * BLOCK)] = value[j] * factor
    else:
        for j in range(PER_THREAD):
            if tile + cuda.threadIdx.x + j * BLOCK < length:
                y[np.uint32(start + j * BLOCK)] = x[np.uint32(start + j * BLOCK)] * factor


def forward(x: Any, y: Any, *, probability: float, seed: int, layer: int, iteration: int, stream: Any = None) -> None:
    """y = x with images dropped and the others scaled; y may be x."""
    check("drop_path.forward", x=x, y=y)
    check_shape("drop_path.forward", "y", y, x.shape)
    _apply("drop_path.forward", x, y, probability, seed, layer, iteration, stream)


def backward(
    dy: Any, dx: Any, *, probability: float, seed: int, layer: int, iteration: int, stream: Any = None
) -> None:
    """dx = dy with the images dropped and scaled that forward dropped and scaled; dx may be dy."""
    check("drop_path.backward", dy=dy, dx=dx)
    check_shape("drop_path.backward", "dx", dx, dy.shape)
    _apply("drop_path.backward", dy, dx, probability, seed, layer, iteration, stream)


def _apply(where: str, x: Any, y: Any, probability: float, seed: int, layer: int, iteration: int, stream: Any) -> None:
    draw = checked_draw(where, probability, seed, layer, iteration)
    length = math.prod(x.shape[1:])
    grid = x.shape[0] * tiles(length)
    launch(drop_path_apply, grid, x, y, length, tiles(length), reciprocal(tiles(length)), *draw, stream=stream)
