"""A part of the channels, or of the rows, of every image; the gradient of the others is zero.

    y = x[:, start : start + count]         axis 1, channels; ShuffleNet splits them
    y = x[:, :, start : start + count]      axis 2, rows: the positions of tokens

In memory a part of an axis is a piece of a longer row, as in a concatenation, whose kernel copies it forward: 8 bytes
an element.  Backward has one thread an element of x, which writes 4 bytes and reads 4 within the part.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.concat import copy_rows
from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

AXES = (1, 2)
BLOCK = 256
ZERO = np.float32(0)


@kernel(block=BLOCK)
def take_backward(dy: Floats, dx: Floats, total: int, whole: int, by_whole: int, part: int, begin: int) -> None:
    """One thread an element of rows of `whole`: a gradient in the `part` from `begin` on, and zero elsewhere."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row = divide(i, by_whole)
        at = np.int32(i - row * whole - begin)
        value = ZERO
        if 0 <= at and at < part:
            value = dy[np.uint32(row * part + at)]
        dx[i] = value


def forward(x: Any, y: Any, *, axis: int = 1, start: int = 0, stream: Any = None) -> None:
    """y = as many channels (rows) as it has, from x's channel (row) `start` on."""
    rows, whole, part, begin = _pieces("take.forward", "x", x, "y", y, axis, start)
    copy_rows(x, y, rows, part, (begin, whole), (0, part), stream)


def backward(dy: Any, dx: Any, *, axis: int = 1, start: int = 0, stream: Any = None) -> None:
    """dx = dy where forward took it from, and zero elsewhere."""
    rows, whole, part, begin = _pieces("take.backward", "dx", dx, "dy", dy, axis, start)
    total = rows * whole
    launch(take_backward, ceil_div(total, BLOCK), dy, dx, total, whole, reciprocal(whole), part, begin, stream=stream)


def _pieces(where: str, name: str, x: Any, part_name: str, y: Any, axis: int, start: int) -> tuple[int, int, int, int]:
    """Rows in memory, their length in x and in y, and where y's begins in x's."""
    check(where, **{name: x, part_name: y})
    if axis not in AXES or axis >= len(x.shape):
        raise KernelError(f"{where}: axis is {axis}; give 1 (channels) or 2 (rows) of {name} {tuple(x.shape)}")
    count = y.shape[axis] if len(y.shape) == len(x.shape) else 0
    check_shape(where, part_name, y, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    if not 0 <= start <= x.shape[axis] - count:
        raise KernelError(f"{where}: {count} from {start} on are not within the {x.shape[axis]} of axis {axis}")
    inner = math.prod(x.shape[axis + 1 :])
    return math.prod(x.shape[:axis]), x.shape[axis] * inner, count * inner, start * inner
