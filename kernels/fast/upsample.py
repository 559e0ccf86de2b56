"""Larger maps (or smaller ones) by repeating values, "nearest", or by weighing neighbours, "bilinear".

The shapes of x and y say by how much.  Output p of P has the *position* (a·p + b) / c in an axis of H values:

    nearest                     p·H / P                          y = the value at or before it
    bilinear                    ((p + 1/2)·H / P) - 1/2          y = the two values around it, weighed by their distance
    bilinear, align_corners     p·(H - 1) / (P - 1)              likewise; the first and the last values stay

All is as in PyTorch's `interpolate`.  Positions are whole numbers a·p + b over c, so they are exact; bilinear ones
before the first value count as the first.

Forward: one thread an output.  Nearest copies: 8 bytes an output at most; bilinear takes 8 operations.
Backward *gathers*: one thread an input, over the outputs that read it, row by row.  Which they are is arithmetic, and
their weights are those of forward: 1 at the input's own place, down to 0 at its neighbours'.  x itself is not read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import LARGEST, KernelError, check
from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, ceil_div, device, kernel, launch
from kernels.targets.shim import cuda

BLOCK = 256
MODES = ("nearest", "bilinear")
ZERO, ONE = np.float32(0), np.float32(1)


@device
def first_from(value: int, a: int, b: int, c: int, count: int) -> int:
    """The first of `count` outputs whose position is `value` or later."""
    return np.int32(min(max((value * c - b + a - 1) // a, 0), count))


@device
def weight(p: int, value: int, a: int, b: int, c: int, last: int, part: float) -> float:
    """The weight of `value` in output p: 1 - |its distance|, and 1 beyond the first and the last value."""
    away = max(p * a + b, 0) - value * c
    if away > 0:
        away = 0 if value == last else -away
    return np.float32(c + away) * part


@kernel(block=BLOCK)
def upsample_nearest_forward(
    x: Floats, y: Floats, total: int, height: int, width: int, out_height: int, out_width: int,
    by_out_height: int, by_out_width: int,
) -> None:  # fmt: skip
    """One thread an output."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row = divide(i, by_out_width)
        q = np.int32(i - row * out_width)
        plane = divide(row, by_out_height)
        p = np.int32(row - plane * out_height)
        h = divide(p * height, by_out_height)
        y[i] = x[np.uint32((plane * height + h) * width + divide(q * width, by_out_width))]


@kernel(block=BLOCK)
def upsample_nearest_backward(
    dy: Floats, dx: Floats, total: int, height: int, width: int, out_height: int, out_width: int
) -> None:
    """One thread an input: the sum over the outputs that are copies of it."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row = np.int64(i // np.uint32(width))
        v = np.int64(i) - row * width
        plane = np.int64(np.uint32(row) // np.uint32(height))
        h = row - plane * height
        value = ZERO
        for p in range((h * out_height + height - 1) // height, ((h + 1) * out_height + height - 1) // height):
            start = (plane * out_height + p) * out_width
            for q in range((v * out_width + width - 1) // width, ((v + 1) * out_width + width - 1) // width):
                value += dy[np.uint32(start + q)]
        dx[i] = value


@kernel(block=BLOCK)
def upsample_bilinear_forward(
    x: Floats, y: Floats, total: int, height: int, width: int, out_height: int, out_width: int,
    by_out_height: int, by_out_width: int, a: int, b: int, c: int, by_c: int, part: float,
    across_a: int, across_b: int, across_c: int, by_across_c: int, across_part: float,
) -> None:  # fmt: skip
    """One thread an output; a, b, c and part = 1 / c place rows, across_a, … columns."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row = divide(i, by_out_width)
        q = np.int32(i - row * out_width)
        plane = divide(row, by_out_height)
        p = np.int32(row - plane * out_height)
        down = max(p * a + b, 0)
        h = divide(down, by_c)
        across = max(q * across_a + across_b, 0)
        v = divide(across, by_across_c)
        below = np.float32(down - h * c) * part
        right = np.float32(across - v * across_c) * across_part
        here = (plane * height + h) * width + v
        next_row = width if h < height - 1 else 0
        next_column = 1 if v < width - 1 else 0
        above = (ONE - right) * x[np.uint32(here)] + right * x[np.uint32(here + next_column)]
        here += next_row
        under = (ONE - right) * x[np.uint32(here)] + right * x[np.uint32(here + next_column)]
        y[i] = (ONE - below) * above + below * under


@kernel(block=BLOCK)
def upsample_bilinear_backward(
    dy: Floats, dx: Floats, total: int, height: int, width: int, out_height: int, out_width: int,
    a: int, b: int, c: int, part: float, across_a: int, across_b: int, across_c: int, across_part: float,
) -> None:  # fmt: skip
    """One thread an input: the weighted sum over the outputs that read it."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row = np.int64(i // np.uint32(width))
        v = np.int64(i) - row * width
        plane = np.int64(np.uint32(row) // np.uint32(height))
        h = row - plane * height
        left = first_from(v - 1, across_a, across_b, across_c, out_width) if v > 0 else np.int32(0)
        right = first_from(v + 1, across_a, across_b, across_c, out_width) if v < width - 1 else np.int32(out_width)
        top = first_from(h - 1, a, b, c, out_height) if h > 0 else np.int32(0)
        bottom = first_from(h + 1, a, b, c, out_height) if h < height - 1 else np.int32(out_height)
        value = ZERO
        for p in range(top, bottom):
            start = (plane * out_height + p) * out_width
            sum_ = ZERO
            for q in range(left, right):
                share = weight(q, v, across_a, across_b, across_c, width - 1, across_part)
                sum_ += share * dy[np.uint32(start + q)]
            value += weight(p, h, a, b, c, height - 1, part) * sum_
        dx[i] = value


def forward(x: Any, y: Any, *, mode: str = "nearest", align_corners: bool = False, stream: Any = None) -> None:
    """y = x at y's height and width."""
    total, sides = _sizes("upsample.forward", mode, "x", x, "y", y)
    height, width, out_height, out_width = sides
    args = total, *sides, reciprocal(out_height), reciprocal(out_width)
    if mode == "nearest":
        launch(upsample_nearest_forward, ceil_div(total, BLOCK), x, y, *args, stream=stream)
        return
    rows, columns = (_places(size, out, align_corners) for size, out in ((height, out_height), (width, out_width)))
    walks = *rows, reciprocal(rows[2]), 1 / rows[2], *columns, reciprocal(columns[2]), 1 / columns[2]
    launch(upsample_bilinear_forward, ceil_div(total, BLOCK), x, y, *args, *walks, stream=stream)


def backward(dy: Any, dx: Any, *, mode: str = "nearest", align_corners: bool = False, stream: Any = None) -> None:
    """dx = the gradient of the loss by x, from its gradient dy by y."""
    _, sides = _sizes("upsample.backward", mode, "dx", dx, "dy", dy)
    height, width, out_height, out_width = sides
    total = math.prod(dx.shape)
    if mode == "nearest":
        launch(upsample_nearest_backward, ceil_div(total, BLOCK), dy, dx, total, *sides, stream=stream)
        return
    walks: list[float] = []
    for size, out in ((height, out_height), (width, out_width)):
        a, b, c = _places(size, out, align_corners)
        walks += [max(a, 1), b, c, 1 / c]  # of a single value a is 0, and nothing depends on it
    launch(upsample_bilinear_backward, ceil_div(total, BLOCK), dy, dx, total, *sides, *walks, stream=stream)


def _places(size: int, out: int, align_corners: bool) -> tuple[int, int, int]:
    """a, b and c of the positions."""
    return (size - 1, 0, max(out - 1, 1)) if align_corners else (2 * size, size - out, 2 * out)


def _sizes(where: str, mode: str, small_name: str, x: Any, name: str, y: Any) -> tuple[int, tuple[int, ...]]:
    """Outputs in all; height and width before and after."""
    if mode not in MODES:
        raise KernelError(f"{where}: mode is {mode!r}; give one of {', '.join(MODES)}")
    check(where, **{small_name: x, name: y})
    if len(x.shape) != 4 or len(y.shape) != 4 or tuple(x.shape[:2]) != tuple(y.shape[:2]):
        shapes = f"{small_name} has shape {tuple(x.shape)} and {name} {tuple(y.shape)}"
        raise KernelError(f"{where}: {shapes}; give (images, channels, height, width) twice, with the same first two")
    for size, out in zip(x.shape[2:], y.shape[2:], strict=True):
        if 2 * size * (out + 1) > LARGEST:
            raise KernelError(f"{where}: {size} rows or columns to {out} are too many; their product may be 2**30")
    return math.prod(y.shape), (*map(int, x.shape[2:]), *map(int, y.shape[2:]))
