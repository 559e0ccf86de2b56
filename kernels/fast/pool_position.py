"""Max pooling by position, as `kernels.pool_position` has it, for a processor: one thread a map.

    forward     window by window, the largest value and where it is; four bytes are written at once
    backward    the bytes of a map, one after another: each adds its dy to its element

They are for square windows.  For others, and on a GPU, the plain kernels run.  All give the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import pool_position as plain
from kernels.checks.arguments import place
from kernels.fast.pool import INFINITY, SQUARE, ZERO, Pad, Pair, by_map
from kernels.targets.launch import Floats, Ints, Kernel, kernel, launch
from kernels.targets.shim import cuda

NONE = np.int32(plain.NONE)


def forward_by_map(window: int, stride: int) -> Kernel:
    """The kernel for square windows of this length at this stride."""

    @kernel(block=1, name=f"pool_position_forward_by_map_{window}_{stride}")
    def pool_position_forward_by_map(
        x: Floats, y: Floats, positions: Ints, numbers: int,
        height: int, width: int, out_height: int, out_width: int, pad_height: int, pad_width: int, without: float,
    ) -> None:  # fmt: skip
        """One thread a map."""
        start = np.int64(cuda.blockIdx.x) * height * width
        first = np.int64(cuda.blockIdx.x) * out_height * out_width
        number = np.int64(cuda.blockIdx.x) * numbers
        packed = 0
        output = 0
        for p in range(out_height):
            top = p * stride - pad_height
            for q in range(out_width):
                left = q * stride - pad_width
                most = -INFINITY
                place = NONE
                for r in range(window - 1, -1, -1):  # backwards: the first of equal elements is found last
                    for s in range(window - 1, -1, -1):
                        if 0 <= top + r and top + r < height and 0 <= left + s and left + s < width:
                            value = x[np.uint32(start + (top + r) * width + left + s)]
                            more = (value >= most) | (value != value)
                            place = np.int32(r * window + s) if more else place
                            most = value if more else most
                y[np.uint32(first + output)] = most
                packed |= (place if (most == most) & (most != without) else NONE) << (8 * (output & 3))
                output += 1
                if output & 3 == 0 or output == out_height * out_width:
                    positions[np.uint32(number)] = packed
                    number += 1
                    packed = 0

    return pool_position_forward_by_map


def backward_by_map(window: int, stride: int) -> Kernel:
    """The kernel for square windows of this length at this stride."""

    @kernel(block=1, name=f"pool_position_backward_by_map_{window}_{stride}")
    def pool_position_backward_by_map(
        positions: Ints, dy: Floats, dx: Floats, numbers: int,
        height: int, width: int, out_height: int, out_width: int, pad_height: int, pad_width: int,
    ) -> None:  # fmt: skip
        """One thread a map."""
        start = np.int64(cuda.blockIdx.x) * height * width
        output = np.int64(cuda.blockIdx.x) * out_height * out_width
        number = np.int64(cuda.blockIdx.x) * numbers
        left = 0
        packed = positions[np.uint32(number)]
        for i in range(start, start + height * width):
            dx[np.uint32(i)] = ZERO
        for p in range(out_height):
            row = start + (p * stride - pad_height) * width - pad_width
            for q in range(out_width):
                if left == 4:
                    number += 1
                    left = 0
                    packed = positions[np.uint32(number)]
                place = packed & 255
                if place != NONE:
                    dx[np.uint32(row + place // window * width + q * stride + place % window)] += dy[np.uint32(output)]
                packed = packed >> 8
                left += 1
                output += 1

    return pool_position_backward_by_map


FORWARD = {one: forward_by_map(*one) for one in SQUARE}
BACKWARD = {one: backward_by_map(*one) for one in SQUARE}


def forward(
    x: Any, y: Any, positions: Any, *, window: Pair, stride: Pair, pad: Pad = (0, 0), ceil: bool = False,
    rectified: bool = False, stream: Any = None,
) -> None:  # fmt: skip
    """Fill y and positions; `rectified`: x is the output of a ReLU."""
    if square := by_map(place(x), window, stride):
        sizes = positions.shape[2], *x.shape[2:], *y.shape[2:], *pad[:2]
        without = 0.0 if rectified else plain.NAN
        launch(FORWARD[square], y.shape[0] * y.shape[1], x, y, positions, *sizes, without, stream=stream)
    else:
        plain.forward(x, y, positions, window=window, stride=stride, pad=pad, rectified=rectified, stream=stream)


def backward(
    positions: Any, dy: Any, dx: Any, *, window: Pair, stride: Pair, pad: Pad = (0, 0), ceil: bool = False,
    stream: Any = None,
) -> None:  # fmt: skip
    """Fill dx."""
    if square := by_map(place(dx), window, stride):
        sizes = positions.shape[2], *dx.shape[2:], *dy.shape[2:], *pad[:2]
        launch(BACKWARD[square], dx.shape[0] * dx.shape[1], positions, dy, dx, *sizes, stream=stream)
    else:
        plain.backward(positions, dy, dx, window=window, stride=stride, pad=pad, stream=stream)
