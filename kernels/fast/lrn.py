"""Local response normalisation across channels: every value is divided by what its neighbouring channels show there.

    s[c] = k + alpha/size · Σ x[j]²            over the `size` channels j from c - size // 2 to c + (size - 1) // 2
    forward:    y[c] = x[c] · s[c]^-beta
    backward:   dx[i] = dy[i] · s[i]^-beta - 2·alpha·beta/size · x[i] · Σ dy[j]·x[j]·s[j]^(-beta-1)
                over the channels j that look at i: from i - (size - 1) // 2 to i + size // 2

The definition is PyTorch's: an even size looks one channel further back than forward, and channels that do not exist
are zeros.  `ahead` says how many channels it looks forward instead: ONNX's even sizes look size // 2 of them forward.

Both directions also work in place (y is x, dx is dy), which is the reason for their form: one thread owns all channels
of one position of an image, so no other thread needs what it overwrites.  It walks through them and keeps the last 16
original values in its own column of a shared array (a ring: channel c is in slot c % 16; no barrier, since no column
is shared).  Reads run four channels ahead of the walk, so that several are under way at a time.

Backward recomputes s from x instead of taking s or y from the forward pass: the values are in the ring anyway, while y
would save one multiplication for four more bytes a value, and would have to be kept until then.

Operations a value: forward 2·size + 5, backward 3·size + 12, an exponential and a logarithm counting as one.
Bytes a value: forward 8, backward 12.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

BLOCK = 128
SLOTS = 16  # the largest size; a power of two, so that c & LAST_SLOT is c % SLOTS, for negative c as well
LAST_SLOT = SLOTS - 1
AHEAD = 4
ZERO = np.float32(0)


@kernel(block=BLOCK)
def lrn_forward(
    x: Floats,
    y: Floats,
    columns: int,
    channels: int,
    area: int,
    by_area: int,
    size: int,
    after: int,
    scale: float,
    beta: float,
    k: float,
) -> None:
    """`scale` is alpha / size, `after` the channels that a channel looks forward."""
    values = cuda.shared.array((SLOTS, BLOCK), np.float32)
    ahead = cuda.local.array(AHEAD, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    i = np.uint32(cuda.grid(1))
    if i < columns:
        for slot in range(SLOTS):
            values[slot, t] = ZERO
        step = np.int32(area)
        start = np.int32(i + divide(i, by_area) * (channels - 1) * area)
        newest = np.int32(0)
        while newest < channels + after:
            for u in range(AHEAD):
                ahead[u] = x[np.uint32(start + np.int32(min(newest + u, channels - 1)) * step)]
            for u in range(AHEAD):
                values[np.uint32(newest & LAST_SLOT), t] = ahead[u] if newest < channels else ZERO
                c = np.int32(newest - after)
                if c >= 0 and c < channels:
                    squares = ZERO
                    j = np.int32(newest - size + 1)
                    while j <= newest:
                        value = values[np.uint32(j & LAST_SLOT), t]
                        squares += value * value
                        j = np.int32(j + 1)
                    power = math.exp(-beta * math.log(k + scale * squares))
                    y[np.uint32(start + c * step)] = values[np.uint32(c & LAST_SLOT), t] * power
                newest = np.int32(newest + 1)


@kernel(block=BLOCK)
def lrn_backward(
    x: Floats,
    dy: Floats,
    dx: Floats,
    columns: int,
    channels: int,
    area: int,
    by_area: int,
    size: int,
    after: int,
    scale: float,
    beta: float,
    k: float,
) -> None:
    """Three channels move together: the newest read, c whose s it completes, and i whose gradient this completes."""
    values = cuda.shared.array((SLOTS, BLOCK), np.float32)
    direct = cuda.shared.array((SLOTS, BLOCK), np.float32)  # dy[c] · s[c]^-beta
    through = cuda.shared.array((SLOTS, BLOCK), np.float32)  # dy[c] · x[c] · s[c]^(-beta-1)
    ahead = cuda.local.array(AHEAD, np.float32)
    given = cuda.local.array(AHEAD, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    column = np.uint32(cuda.grid(1))
    if column < columns:
        for slot in range(SLOTS):
            values[slot, t] = ZERO
            through[slot, t] = ZERO
        step = np.int32(area)
        start = np.int32(column + divide(column, by_area) * (channels - 1) * area)
        newest = np.int32(0)
        while newest < channels + size - 1:
            for u in range(AHEAD):
                ahead[u] = x[np.uint32(start + np.int32(min(newest + u, channels - 1)) * step)]
                given[u] = dy[np.uint32(start + np.int32(min(max(newest + u - after, 0), channels - 1)) * step)]
            for u in range(AHEAD):
                values[np.uint32(newest & LAST_SLOT), t] = ahead[u] if newest < channels else ZERO
                c = np.int32(newest - after)
                if c >= 0:
                    squares = ZERO
                    j = np.int32(newest - size + 1)
                    while j <= newest:
                        value = values[np.uint32(j & LAST_SLOT), t]
                        squares += value * value
                        j = np.int32(j + 1)
                    s = k + scale * squares
                    power = given[u] * math.exp(-beta * math.log(s)) if c < channels else ZERO
                    direct[np.uint32(c & LAST_SLOT), t] = power
                    through[np.uint32(c & LAST_SLOT), t] = power * values[np.uint32(c & LAST_SLOT), t] / s
                i = np.int32(newest - size + 1)
                if i >= 0 and i < channels:
                    sum_ = ZERO
                    j = np.int32(c - size + 1)
                    while j <= c:
                        sum_ += through[np.uint32(j & LAST_SLOT), t]
                        j = np.int32(j + 1)
                    value = values[np.uint32(i & LAST_SLOT), t]
                    dx[np.uint32(start + i * step)] = (
                        direct[np.uint32(i & LAST_SLOT), t] - np.float32(2) * scale * beta * value * sum_
                    )
                newest = np.int32(newest + 1)


def arguments(
    where: str, shape: tuple[int, ...], size: int, alpha: float, beta: float, k: float, ahead: int | None
) -> tuple[Any, ...]:
    """Check the options; columns, and then what both kernels take after them."""
    if len(shape) < 2:
        raise KernelError(f"{where}: x has shape {tuple(shape)}; give images, channels and any further axes")
    if not 1 <= size <= SLOTS:
        raise KernelError(f"{where}: size is {size}; from 1 to {SLOTS} channels can be looked at")
    area = math.prod(shape[2:])
    if ahead is None:
        ahead = (size - 1) // 2
    if not 0 <= ahead < size:
        raise KernelError(f"{where}: ahead is {ahead}; of {size} channels 0 to {size - 1} come after the middle one")
    return shape[0] * area, shape[1], area, reciprocal(area), size, ahead, alpha / size, beta, k


def forward(
    x: Any,
    y: Any,
    *,
    size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    ahead: int | None = None,
    stream: Any = None,
) -> None:
    """Fill y.  y may be x."""
    check("lrn.forward", x=x, y=y)
    check_shape("lrn.forward", "y", y, x.shape)
    options = arguments("lrn.forward", x.shape, size, alpha, beta, k, ahead)
    launch(lrn_forward, ceil_div(options[0], BLOCK), x, y, *options, stream=stream)


def backward(
    x: Any,
    y: Any,
    dy: Any,
    dx: Any,
    *,
    size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    ahead: int | None = None,
    stream: Any = None,
) -> None:
    """Fill dx from dy and x, the *original* input.  dx may be dy; y is not read and may be None."""
    check("lrn.backward", x=x, y=y, dy=dy, dx=dx)
    check_shape("lrn.backward", "y", y, x.shape)
    check_shape("lrn.backward", "dy", dy, x.shape)
    check_shape("lrn.backward", "dx", dx, x.shape)
    options = arguments("lrn.backward", x.shape, size, alpha, beta, k, ahead)
    launch(lrn_backward, ceil_div(options[0], BLOCK), x, dy, dx, *options, stream=stream)
