"""Rows and columns of one number around maps, and the gradient, which leaves them out.

pad is (top, left, bottom, right).  One thread an element of the larger map forward, of the smaller one backward, which
copies; 8 bytes an element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

BLOCK = 256


@kernel(block=BLOCK)
def pad_forward(
    x: Floats, y: Floats, value: float, total: int, height: int, width: int, out_height: int, out_width: int,
    by_out_height: int, by_out_width: int, top: int, left: int,
) -> None:  # fmt: skip
    """One thread an output."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row = divide(i, by_out_width)
        plane = divide(row, by_out_height)
        h = np.int32(row - plane * out_height - top)
        v = np.int32(i - row * out_width - left)
        found = value
        if 0 <= h and h < height and 0 <= v and v < width:
            found = x[np.uint32((plane * height + h) * width + v)]
        y[i] = found


@kernel(block=BLOCK)
def pad_backward(
    dy: Floats, dx: Floats, total: int, height: int, width: int, out_height: int, out_width: int,
    by_height: int, by_width: int, top: int, left: int,
) -> None:  # fmt: skip
    """One thread an input."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row = divide(i, by_width)
        plane = divide(row, by_height)
        h = row - plane * height + top
        v = np.int32(i - row * width + left)
        dx[i] = dy[np.uint32((plane * out_height + h) * out_width + v)]


def forward(x: Any, y: Any, *, pad: Sequence[int], value: float = 0.0, stream: Any = None) -> None:
    """y = x with rows and columns of `value` around it."""
    sides = _sizes("pad.forward", "x", x, "y", y, pad)
    total, by = math.prod(y.shape), (reciprocal(sides[2]), reciprocal(sides[3]))
    launch(pad_forward, ceil_div(total, BLOCK), x, y, value, total, *sides, *by, *pad[:2], stream=stream)


def backward(dy: Any, dx: Any, *, pad: Sequence[int], value: float = 0.0, stream: Any = None) -> None:
    """dx = dy without what is around it; the number there does not matter."""
    sides = _sizes("pad.backward", "dx", dx, "dy", dy, pad)
    total, by = math.prod(dx.shape), (reciprocal(sides[0]), reciprocal(sides[1]))
    launch(pad_backward, ceil_div(total, BLOCK), dy, dx, total, *sides, *by, *pad[:2], stream=stream)


def _sizes(where: str, small_name: str, x: Any, name: str, y: Any, pad: Sequence[int]) -> tuple[int, int, int, int]:
    """Height and width without and with the padding."""
    check(where, **{small_name: x, name: y})
    if len(x.shape) != 4 or len(pad) != 4 or min(pad) < 0:
        raise KernelError(f"{where}: {small_name} is {tuple(x.shape)} and pad {tuple(pad)}; give four axes, four sides")
    height, width = x.shape[2] + pad[0] + pad[2], x.shape[3] + pad[1] + pad[3]
    check_shape(where, name, y, (*x.shape[:2], height, width))
    return x.shape[2], x.shape[3], height, width
