"""Rotary position: pairs of channels of every query and key are turned by an angle that grows with the token's place.

    (y[a], y[b]) = (x[a]·cos - x[b]·sin, x[b]·cos + x[a]·sin)      by  place · base^(-2i / n)  for pair i of n / 2

(Su et al.: "RoFormer", 2021.)  n channels of a head are turned, all or the first ones.  Channel i makes a pair with
channel i + n/2, as in Llama (halves), or 2i with 2i + 1, as in GPT-J (neighbours).  Places are counted from 0 along all
axes after the channels.  The gradient is turned back by the same angles; it needs neither x nor y.

A map is `packed` as one map of `kernels.fast.attention` is, group by group queries, a key and a value, and values stay
as they are; or it has heads alone, of queries or of keys.

**Angles.** In 2³² parts of a turn they are whole numbers: a place times the turn from one place to the next, and what
goes beyond a whole turn falls away.  That turn is a product of powers of the first one, which the host computes; the
error of an angle is below 5e-9 times the place.  A product in float32 would have 20 times as much.

**Launch.** A block has 32 tokens of eight pairs of channels, one thread for each.  In place; into another array after a
copy.  About 40 operations a pair for the angle, 6 for the turn; 8 bytes a number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast import elementwise
from kernels.fast.activation import start
from kernels.fast.division import divide, reciprocal
from kernels.fast.functions import cosine, sine
from kernels.targets.launch import Floats, ceil_div, device, kernel, launch
from kernels.targets.shim import cuda

TOKENS, PAIRS = 32, 8  #: of a block
POWERS = 9  #: of two, up to 2⁸: pairs of a head
WIDEST = 2 << POWERS  #: channels of a head
LONGEST = 1 << 20  #: tokens
WHOLE, ROUNDING_UP = 1 << 31, 1 << 30  #: of the powers, which are at most 1
TURN = round((1 << 32) / (2 * math.pi))  #: a radian in 2³² parts of a turn
NO_TURN = np.int64(0)


@device
def times_if(bit: int, power: int, product: int) -> int:
    """The product of two numbers in parts of 2³¹, rounded, if this bit of a number is set."""
    return (product * power + ROUNDING_UP) >> 31 if bit != 0 else product


@kernel(block=(TOKENS, PAIRS))
def rotary_turn(
    y: Floats, planes: int, area: int, blocks: int, by_blocks: int, pairs: int, by_pairs: int, turned: int,
    by_turned: int, group: int, width: int, step: int, apart: int, back: int, p0: int, p1: int, p2: int, p3: int,
    p4: int, p5: int, p6: int, p7: int, p8: int,
) -> None:  # fmt: skip
    """Eight pairs of channels in `blocks` blocks; a `group` of channels has `turned` heads to turn, of `width` each.

    p0, p1, … are the first, second, fourth … power of the angle from one pair to the next.
    """
    part = np.int64(divide(cuda.blockIdx.x, by_blocks))
    plane = part * PAIRS + cuda.threadIdx.y
    head = np.int64(divide(plane, by_pairs))
    i = plane - head * pairs
    first = np.int64(divide(head, by_turned))
    channel = first * group + (head - first * turned) * width + i * step
    power = times_if(i & 1, p0, np.int64(WHOLE))
    power = times_if(i & 2, p1, power)
    power = times_if(i & 4, p2, power)
    power = times_if(i & 8, p3, power)
    power = times_if(i & 16, p4, power)
    power = times_if(i & 32, p5, power)
    power = times_if(i & 64, p6, power)
    power = times_if(i & 128, p7, power)
    power = times_if(i & 256, p8, power)
    turn = np.uint32((power * TURN + ROUNDING_UP) >> 31)
    if back != 0:
        turn = np.uint32(NO_TURN - turn)
    at = (cuda.blockIdx.x - part * blocks) * TOKENS + cuda.threadIdx.x
    if plane < planes and at < area:
        angle = np.uint32(np.uint32(at) * turn)
        a, b = np.uint32(channel * area + at), np.uint32((channel + apart) * area + at)
        across, along = y[a], y[b]
        y[a] = across * cosine(angle) - along * sine(angle)
        y[b] = along * cosine(angle) + across * sine(angle)


def forward(
    x: Any, y: Any, *, heads: int, kv_heads: int | None = None, packed: bool = True, rotated: int | None = None,
    neighbours: bool = False, base: float = 10000.0, stream: Any = None,
) -> None:  # fmt: skip
    """y = x with its queries and keys turned.  y may be x.

    Args:
        x: (images, channels, …).
        y: of the same shape.
        heads: of queries, or of whatever the map has alone.
        kv_heads: groups of a packed map; None: as many.
        packed: whether the map has queries, keys and values.
        rotated: channels of a head that are turned; None: all.
        neighbours: whether neighbouring channels are pairs, instead of those half of `rotated` apart.
        base: of the angles.
        stream: as everywhere.
    """
    _turn("rotary.forward", "x", x, "y", y, heads, kv_heads, packed, rotated, neighbours, base, 0, stream)


def backward(
    dy: Any, dx: Any, *, heads: int, kv_heads: int | None = None, packed: bool = True, rotated: int | None = None,
    neighbours: bool = False, base: float = 10000.0, stream: Any = None,
) -> None:  # fmt: skip
    """dx = dy turned back.  dx may be dy."""
    _turn("rotary.backward", "dy", dy, "dx", dx, heads, kv_heads, packed, rotated, neighbours, base, 1, stream)


def powers(rotated: int, base: float) -> list[int]:
    """Powers 1, 2, 4, … of base^(-2 / rotated), in parts of 2³¹."""
    return [round(WHOLE * base ** (-2 * 2**bit / rotated)) for bit in range(POWERS)]


def _turn(
    where: str, name: str, x: Any, other: str, y: Any, heads: int, kv_heads: int | None, packed: bool,
    rotated: int | None, neighbours: bool, base: float, back: int, stream: Any,
) -> None:  # fmt: skip
    check(where, **{name: x, other: y})
    check_shape(where, other, y, x.shape)
    groups = (heads if kv_heads is None else kv_heads) if packed else heads
    count = heads + 2 * groups if packed else heads
    if min(heads, groups) < 1 or heads % groups or len(x.shape) < 2 or x.shape[1] % count:
        raise KernelError(f"{where}: {tuple(x.shape)} has not the channels of {heads} heads in {groups} groups")
    width, area = x.shape[1] // count, math.prod(x.shape[2:])
    turned = width if rotated is None else rotated
    if turned < 2 or turned % 2 or turned > min(width, WIDEST) or not base > 0:
        raise KernelError(f"{where}: {turned} channels of {width} cannot be turned in pairs with the base {base}")
    if area > LONGEST:
        raise KernelError(f"{where}: there are {area} tokens; at most {LONGEST} can be told apart by their angles")
    if start(x) != start(y):
        elementwise.copy(x, y, stream=stream)
    heads_turned = heads // groups + 1 if packed else 1
    pairs, blocks = turned // 2, ceil_div(area, TOKENS)
    planes = x.shape[0] * groups * heads_turned * pairs
    launch(
        rotary_turn, ceil_div(planes, PAIRS) * blocks, y, planes, area, blocks, reciprocal(blocks), pairs,
        reciprocal(pairs), heads_turned, reciprocal(heads_turned), x.shape[1] // groups, width, 2 if neighbours else 1,
        1 if neighbours else pairs, back, *powers(turned, base), stream=stream,
    )  # fmt: skip
