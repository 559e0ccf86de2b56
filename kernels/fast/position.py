"""A learnt number added to each number of an image, the same for all images: the positions of tokens.

    forward     y[n] = x[n] + w         w has the shape of an image's maps; y may be x
    backward    dw = the sum of dy[n] over the images, in ascending order; the gradient of x is dy itself

w may also have one number a channel, for all positions alike: a bias.  That is `kernels.fast.conv`'s, after a copy
where y is not x.

Forward has the launch shape of `kernels.fast.elementwise` for every image: one operation and 8 bytes a number.
Backward has one thread a number of w: one operation and 4 bytes a number of dy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.checks.arguments import check, check_shape
from kernels.fast import conv, elementwise
from kernels.fast.activation import start
from kernels.fast.conv.implicit_gemm import conv_sum_partials
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda


@kernel(block=BLOCK)
def position_forward(x: Floats, w: Floats, y: Floats, n: int) -> None:
    """Block (i, j): tile i of image j, which has n numbers; four a thread."""
    value = cuda.local.array(PER_THREAD, np.float32)
    tile = cuda.blockIdx.x * TILE
    start = np.int64(cuda.blockIdx.y) * n
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            value[j] = x[np.uint32(start + i + j * BLOCK)] + w[np.uint32(i + j * BLOCK)]
        for j in range(PER_THREAD):
            y[np.uint32(start + i + j * BLOCK)] = value[j]
    else:
        for j in range(PER_THREAD):
            if i + j * BLOCK < n:
                y[np.uint32(start + i + j * BLOCK)] = x[np.uint32(start + i + j * BLOCK)] + w[np.uint32(i + j * BLOCK)]


def forward(x: Any, w: Any, y: Any, *, stream: Any = None) -> None:
    """y = x + w, for every image; y may be x.  w has the shape of an image's maps, or one number a channel."""
    check("position.forward", x=x, w=w, y=y)
    check_shape("position.forward", "y", y, x.shape)
    if _is_alike(w, x):
        if start(x) != start(y):
            elementwise.copy(x, y, stream=stream)
        conv.add_bias(w, y, stream)
        return
    check_shape("position.forward", "w", w, x.shape[1:])
    launch(position_forward, (tiles(size(w)), x.shape[0]), x, w, y, size(w), stream=stream)


def backward(dy: Any, dw: Any, *, stream: Any = None) -> None:
    """dw = the sum of dy over the images, and over positions where dw has one number a channel."""
    check("position.backward", dy=dy, dw=dw)
    if _is_alike(dw, dy):
        conv.backward_bias(dy, dw, stream)
        return
    check_shape("position.backward", "dw", dw, dy.shape[1:])
    launch(conv_sum_partials, ceil_div(size(dw), 256), dy, dw, size(dw), dy.shape[0], stream=stream)


def _is_alike(w: Any, x: Any) -> bool:
    """Whether w has one number a channel of maps."""
    return len(x.shape) == 4 and tuple(w.shape) == tuple(x.shape[1:2])
