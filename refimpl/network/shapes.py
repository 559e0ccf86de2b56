"""Sizes that follow from shapes: the output of a sliding window, and the workspaces of sums.

The kernels know them too, but importing them imports Numba, which takes longer than planning a network; a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

#: Numbers for one part of `kernels.clip`, and pixels in one block of `kernels.fast.pixel_softmax`.
LOSS_PART = 4096
#: Values of a channel in one block of `kernels.fast.batchnorm`, and of `kernels.fast.layernorm`.
BATCHNORM_CHUNK = 4096


def four_sides(pad: Sequence[int]) -> tuple[int, ...]:
    """Padding, (vertical, horizontal) or (top, left, bottom, right), as the latter."""
    return tuple(pad) if len(pad) == 4 else (*pad, *pad)


def convolved(x_shape: Sequence[int], options: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of a convolution's output."""
    reach = tuple(apart * (size - 1) + 1 for apart, size in zip(options["dilation"], options["window"], strict=True))
    return _both(x_shape, reach, options, False)


def transposed(x_shape: Sequence[int], options: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of a transposed convolution's output: a convolution of it has x's."""
    pad = four_sides(options["pad"])
    out = []
    for axis, (size, stride, more) in enumerate(zip(x_shape[2:], options["stride"], options["out_pad"], strict=True)):
        reach = options["dilation"][axis] * (options["window"][axis] - 1) + 1
        length = (size - 1) * stride + reach - pad[axis] - pad[axis + 2] + more
        if more >= stride:
            raise ValueError(f"out_pad {more} must be smaller than the stride {stride}")
        if length < 1:
            raise ValueError(f"the padding {tuple(options['pad'])} leaves nothing of a map of {size} rows or columns")
        out.append(length)
    return out[0], out[1]


def pooled(x_shape: Sequence[int], options: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of a pooling's output.

    With `ceil` a last window may hang over the edge, if it starts inside the map or its left padding.
    """
    for pad, window in zip(four_sides(options["pad"]), 2 * options["window"], strict=True):
        if pad >= window:
            raise ValueError(f"padding {options['pad']} must be smaller than the window {options['window']}")
    return _both(x_shape, options["window"], options, options["ceil"])


def normalisation_workspace(x_shape: Sequence[int]) -> int:
    """Bytes of workspace for a batch normalisation of x: two numbers for every chunk of every channel."""
    count = x_shape[0] * prod(x_shape[2:])
    return 2 * -(-count // BATCHNORM_CHUNK) * x_shape[1] * 4


def loss_parts_workspace(images: int, numbers: int, each: int = 1) -> int:
    """Bytes of workspace for losses of this size an image: `each` numbers for every part of an image."""
    return 4 * each * images * -(-numbers // LOSS_PART)


def embedding_workspace(tokens_shape: Sequence[int]) -> int:
    """Bytes of workspace for the gradient of an embedding: two whole numbers a place."""
    return 8 * prod(tokens_shape)


def layernorm_workspace(x_shape: Sequence[int]) -> int:
    """Bytes of workspace for the gradients of a layer normalisation: likewise, of chunks of whole images."""
    images = max(1, BATCHNORM_CHUNK // prod(x_shape[2:]))
    return 2 * -(-x_shape[0] // images) * x_shape[1] * 4


def rmsnorm_workspace(x_shape: Sequence[int]) -> int:
    """Bytes of workspace for the gradient of an RMS normalisation: likewise, one number a chunk."""
    return layernorm_workspace(x_shape) // 2


def clip_parts(numbers: int) -> int:
    """How many sums of squares a gradient of this size has, where gradients are clipped."""
    return -(-numbers // LOSS_PART)


def _both(x_shape: Sequence[int], reach: Sequence[int], options: Mapping[str, Any], ceil: bool) -> tuple[int, int]:
    """`reach` is the height and width of a window, gaps between dilated taps included."""
    out = []
    pad = four_sides(options["pad"])
    for size, window, stride, before, after in zip(
        x_shape[2:], reach, options["stride"], pad[:2], pad[2:], strict=True
    ):
        room = size + before + after - window
        count = (-(-room // stride) if ceil else room // stride) + 1
        if ceil and (count - 1) * stride >= size + before:
            count -= 1
        if count < 1:
            raise ValueError(
                f"a window of {window} does not fit into {size} with padding {before}"
                f"{f' and {after}' if after != before else ''}"
            )
        out.append(count)
    return out[0], out[1]
