"""Concatenation along the channels of NCHW tensors, and its gradient, the split.

In memory an image of an input is one row of channels · height · width numbers, and it becomes a piece of the row that
is the image of the output.  So one kernel copies pieces of rows, launched once an input, forward into y and backward
out of dy.

Launch: one dimension, 256 threads a block, four elements a thread, a block for every 1024 elements of a row; the block
finds its row with one division.  No floating-point operations; n elements move 8 n bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, tiles
from kernels.targets.launch import Floats, kernel, launch
from kernels.targets.shim import cuda


@kernel(block=BLOCK)
def concat_copy_rows(
    source: Floats,
    target: Floats,
    length: int,
    row_tiles: int,
    source_start: int,
    source_stride: int,
    target_start: int,
    target_stride: int,
) -> None:
    """`length` elements of every row; starts and strides (from row to row) are in elements."""
    value = cuda.local.array(PER_THREAD, np.float32)
    row = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(row_tiles))
    tile = (cuda.blockIdx.x - row * row_tiles) * TILE
    i = tile + cuda.threadIdx.x
    come_from = source_start + row * source_stride + i
    go_to = target_start + row * target_stride + i
    if tile + TILE <= length:
        for j in range(PER_THREAD):
            value[j] = source[np.uint32(come_from + j * BLOCK)]
        for j in range(PER_THREAD):
            target[np.uint32(go_to + j * BLOCK)] = value[j]
    else:
        for j in range(PER_THREAD):
            if i + j * BLOCK < length:
                target[np.uint32(go_to + j * BLOCK)] = source[np.uint32(come_from + j * BLOCK)]


def copy_rows(
    source: Any, target: Any, rows: int, length: int, source_at: tuple[int, int], target_at: tuple[int, int],
    stream: Any = None,
) -> None:  # fmt: skip
    """Copy a piece of every row.

    Args:
        source: any number of dimensions, rows one after another.
        target: as the source.
        rows: how many.
        length: of a piece, in elements.
        source_at: where the piece of the first row starts, and the elements from row to row.
        target_at: the same of the target.
    """
    sizes = length, tiles(length), *source_at, *target_at
    launch(concat_copy_rows, rows * tiles(length), source, target, *sizes, stream=stream)


def forward(inputs: Sequence[Any], y: Any, *, stream: Any = None) -> None:
    """y's channels = those of the first input, then those of the second, and so on."""
    image, pieces = _pieces("concat.forward", "inputs", inputs, "y", y)
    for x, (start, length) in zip(inputs, pieces, strict=True):
        copy_rows(x, y, y.shape[0], length, (0, length), (start, image), stream)


def backward(dy: Any, dxs: Sequence[Any], *, stream: Any = None) -> None:
    """Every dx = its channels of dy, in the same order."""
    image, pieces = _pieces("concat.backward", "dxs", dxs, "dy", dy)
    for dx, (start, length) in zip(dxs, pieces, strict=True):
        copy_rows(dy, dx, dy.shape[0], length, (start, image), (0, length), stream)


def _pieces(where: str, names: str, parts: Sequence[Any], name: str, whole: Any) -> tuple[int, list[tuple[int, int]]]:
    """Elements of an image of the whole, and where each part starts in it and how long it is there."""
    if len(parts) == 0:
        raise KernelError(f"{where}: {names} is empty; give at least one array")
    check(where, **{name: whole}, **{f"{names}[{i}]": part for i, part in enumerate(parts)})
    if len(whole.shape) < 2:
        raise KernelError(
            f"{where}: {name} has shape {tuple(whole.shape)}; it needs an axis of images and one of channels"
        )
    images, channels, *rest = whole.shape
    pieces, together, start = [], 0, 0
    for i, part in enumerate(parts):
        own = part.shape[1] if len(part.shape) > 1 else 0
        check_shape(where, f"{names}[{i}]", part, (images, own, *rest))
        length = math.prod(part.shape[1:])
        pieces.append((start, length))
        together, start = together + own, start + length
    if together != channels:
        raise KernelError(f"{where}: the channels differ: {together} of {names} together, {channels} of {name}")
    return start, pieces
