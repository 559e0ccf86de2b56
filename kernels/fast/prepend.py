"""A token that is learnt, before an image's own: the class token.

    y[n, c, 0] = w[c]      y[n, c, 1 + t] = x[n, c, t]

A vision transformer reads the classes off it (Dosovitskiy and others: "An image is worth 16x16 words", 2021).
x's positions, in the order of its rows, are the tokens.  In memory every channel of an image is a row, and becomes the
end of a row that is a number longer: a concatenation's kernel copies rows both ways, 8 bytes an element.  The token's
own number is written by one thread a row; its gradient, the sum of dy[n, c, 0] over the images in ascending order, by
one thread a channel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import check, check_shape
from kernels.fast.concat import copy_rows
from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

BLOCK = 256
ZERO = np.float32(0)


@kernel(block=BLOCK)
def prepend_token(w: Floats, y: Floats, rows: int, channels: int, by_channels: int, length: int) -> None:
    """The first of every row's `length` numbers is its channel's; one thread a row."""
    row = np.uint32(cuda.grid(1))
    if row < rows:
        y[np.uint32(row * length)] = w[np.uint32(row - divide(row, by_channels) * channels)]


@kernel(block=BLOCK)
def prepend_token_gradient(dy: Floats, dw: Floats, images: int, channels: int, length: int) -> None:
    """The sum over the images of the first number of a channel's row; one thread a channel."""
    channel = np.uint32(cuda.grid(1))
    if channel < channels:
        total = ZERO
        for image in range(images):
            total += dy[np.uint32((image * channels + channel) * length)]
        dw[channel] = total


def forward(x: Any, w: Any, y: Any, *, stream: Any = None) -> None:
    """y = the token w, then x's positions."""
    rows, tokens = _sizes("prepend.forward", "x", x, "w", w, "y", y)
    copy_rows(x, y, rows, tokens, (0, tokens), (1, 1 + tokens), stream)
    channels = x.shape[1]
    of_token = rows, channels, reciprocal(channels), 1 + tokens
    launch(prepend_token, ceil_div(rows, BLOCK), w, y, *of_token, stream=stream)


def backward(dy: Any, dx: Any, dw: Any, *, stream: Any = None) -> None:
    """dw = the gradient of the token, summed over the images; dx = that of the others (None: not computed)."""
    if dx is None:
        check("prepend.backward", dy=dy, dw=dw)
        check_shape("prepend.backward", "dw", dw, (dy.shape[1], 1))
        rows, tokens = dy.shape[0] * dy.shape[1], math.prod(dy.shape[2:]) - 1
    else:
        rows, tokens = _sizes("prepend.backward", "dx", dx, "dw", dw, "dy", dy)
        copy_rows(dy, dx, rows, tokens, (1, 1 + tokens), (0, tokens), stream)
    images, channels = dy.shape[:2]
    of_token = images, channels, 1 + tokens
    launch(prepend_token_gradient, ceil_div(channels, BLOCK), dy, dw, *of_token, stream=stream)


def _sizes(where: str, name: str, x: Any, token: str, w: Any, longer: str, y: Any) -> tuple[int, int]:
    """Rows in memory, and the tokens of x."""
    check(where, **{name: x, token: w, longer: y})
    (images, channels), tokens = x.shape[:2], math.prod(x.shape[2:])
    check_shape(where, token, w, (channels, 1))
    check_shape(where, longer, y, (images, channels, 1 + tokens, 1))
    return images * channels, tokens
