"""Sizes that follow from shapes: the output of a sliding window, and the workspace of a batch normalisation.

The kernels know them too, but importing them imports Numba, which takes longer than planning a network; a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

BATCHNORM_CHUNK = 4096  #: values of a channel in one block of `kernels.batchnorm`


def convolved(x_shape: Sequence[int], options: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of a convolution's output."""
    return _both(x_shape, options, False)


def pooled(x_shape: Sequence[int], options: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of a pooling's output.

    With `ceil` a last window may hang over the edge, if it starts inside the map or its left padding.
    """
    for pad, window in zip(options["pad"], options["window"], strict=True):
        if pad >= window:
            raise ValueError(f"padding {options['pad']} must be smaller than the window {options['window']}")
    return _both(x_shape, options, options["ceil"])


def normalisation_workspace(x_shape: Sequence[int]) -> int:
    """Bytes of workspace for a batch normalisation of x: two numbers for every chunk of every channel."""
    count = x_shape[0] * prod(x_shape[2:])
    return 2 * -(-count // BATCHNORM_CHUNK) * x_shape[1] * 4


def _both(x_shape: Sequence[int], options: Mapping[str, Any], ceil: bool) -> tuple[int, int]:
    out = []
    given = (options[name] for name in ("window", "stride", "pad"))
    for size, window, stride, pad in zip(x_shape[2:], *given, strict=True):
        if window < 1 or stride < 1 or pad < 0:
            raise ValueError(f"window {window}, stride {stride} and padding {pad} must be at least 1, 1 and 0")
        room = size + 2 * pad - window
        count = (-(-room // stride) if ceil else room // stride) + 1
        if ceil and (count - 1) * stride >= size + pad:
            count -= 1
        if count < 1:
            raise ValueError(f"a window of {window} does not fit into {size} with padding {pad}")
        out.append(count)
    return out[0], out[1]
