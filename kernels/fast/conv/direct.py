"""Convolution straight from its formula: the slowest and the most readable of the algorithms.

    forward          one thread an output   y[n, k, p, q]  sums over c, r, s   (in this order, ascending)
    backward_data    one thread an input    dx[n, c, h, w] sums over k, r, s
    backward_filter  one thread a weight    dw[k, c, r, s] sums over n, p, q

Blocks of 256 threads over the flat result.  Each thread does one multiply-add a term, 2·n·k·p·q·c·r·s operations a
pass, and reads 8 bytes for it, which only caches can bring nearer: nothing is shared on purpose.  No workspace.

Each of the three *gathers*: a thread asks "which terms are in my result?" and writes it once.  backward_data could also
scatter, each output's gradient being added to all inputs under its filter, but then threads would add to the same place
at the same time, in an order that changes from run to run.

Convolutions with groups or dilation have kernels of their own, in `kernels.fast.conv.grouped`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from kernels.checks.conv_shape import ConvShape
from kernels.fast.conv import grouped
from kernels.targets.launch import Floats, Kernel, ceil_div, kernel, launch
from kernels.targets.shim import cuda

SUMMARY = "one thread a result, straight from the formula; slow, any shape, no workspace"
BLOCK = 256
ZERO = np.float32(0)


@kernel(block=BLOCK)
def conv_direct_forward(
    x: Floats, w: Floats, bias: Floats, y: Floats, with_bias: int, total: int, channels: int, height: int, width: int,
    filters: int, filter_height: int, filter_width: int, out_height: int, out_width: int,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int,
) -> None:  # fmt: skip
    """One thread an output: the seven loops without the outer four."""
    i = cuda.grid(1)
    if i < total:
        q = np.int64(np.uint32(i) % np.uint32(out_width))
        rest = np.uint32(i) // np.uint32(out_width)
        p = np.int64(rest % np.uint32(out_height))
        rest = rest // np.uint32(out_height)
        k = np.int64(rest % np.uint32(filters))
        n = np.int64(rest // np.uint32(filters))
        value = ZERO
        for c in range(channels):
            for r in range(filter_height):
                h = p * stride_h + r - pad_h
                if 0 <= h and h < height:
                    row = ((n * channels + c) * height + h) * width
                    weights = ((k * channels + c) * filter_height + r) * filter_width
                    for s in range(filter_width):
                        v = q * stride_w + s - pad_w
                        if 0 <= v and v < width:
                            value += w[np.uint32(weights + s)] * x[np.uint32(row + v)]
        if with_bias != 0:
            value += bias[np.uint32(k)]
        y[np.uint32(i)] = value


@kernel(block=BLOCK)
def conv_direct_backward_data(
    dy: Floats, w: Floats, dx: Floats, total: int, channels: int, height: int, width: int,
    filters: int, filter_height: int, filter_width: int, out_height: int, out_width: int,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int,
) -> None:  # fmt: skip
    """One thread an input: it gathers the gradients of the outputs that read it."""
    i = cuda.grid(1)
    if i < total:
        v = np.int64(np.uint32(i) % np.uint32(width))
        rest = np.uint32(i) // np.uint32(width)
        h = np.int64(rest % np.uint32(height))
        rest = rest // np.uint32(height)
        c = np.int64(rest % np.uint32(channels))
        n = np.int64(rest // np.uint32(channels))
        value = ZERO
        for k in range(filters):
            for r in range(filter_height):
                # The output row that meets this input row at filter row r, if there is one: h = p * stride + r - pad.
                up = h + pad_h - r
                if up >= 0 and np.uint32(up) % np.uint32(stride_h) == 0:
                    p = np.int64(np.uint32(up) // np.uint32(stride_h))
                    if p < out_height:
                        row = ((n * filters + k) * out_height + p) * out_width
                        weights = ((k * channels + c) * filter_height + r) * filter_width
                        for s in range(filter_width):
                            left = v + pad_w - s
                            if left >= 0 and np.uint32(left) % np.uint32(stride_w) == 0:
                                q = np.int64(np.uint32(left) // np.uint32(stride_w))
                                if q < out_width:
                                    value += w[np.uint32(weights + s)] * dy[np.uint32(row + q)]
        dx[np.uint32(i)] = value


@kernel(block=BLOCK)
def conv_direct_backward_filter(
    x: Floats, dy: Floats, dw: Floats, total: int, images: int, channels: int, height: int, width: int,
    filters: int, filter_height: int, filter_width: int, out_height: int, out_width: int,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int,
) -> None:  # fmt: skip
    """One thread a weight: it sums over all images and positions."""
    i = cuda.grid(1)
    if i < total:
        s = np.int64(np.uint32(i) % np.uint32(filter_width))
        rest = np.uint32(i) // np.uint32(filter_width)
        r = np.int64(rest % np.uint32(filter_height))
        rest = rest // np.uint32(filter_height)
        c = np.int64(rest % np.uint32(channels))
        k = np.int64(rest // np.uint32(channels))
        value = ZERO
        for n in range(images):
            for p in range(out_height):
                h = p * stride_h + r - pad_h
                if 0 <= h and h < height:
                    row = ((n * channels + c) * height + h) * width
                    gradients = ((n * filters + k) * out_height + p) * out_width
                    for q in range(out_width):
                        v = q * stride_w + s - pad_w
                        if 0 <= v and v < width:
                            value += dy[np.uint32(gradients + q)] * x[np.uint32(row + v)]
        dw[np.uint32(i)] = value


def why_not(pass_: str, shape: ConvShape) -> str | None:
    return None


def workspace_bytes(pass_: str, shape: ConvShape, images: int | None = None) -> int:
    return 0


def forward(shape: ConvShape, x: Any, w: Any, b: Any, y: Any, workspace: Any, stream: Any) -> None:
    if not shape.plain:
        return grouped.forward(shape, x, w, b, y, stream)
    total = prod(shape.y_shape)
    bias = w if b is None else b  # a kernel cannot be given None; with_bias says that it is not read
    _launch(conv_direct_forward, total, shape, x, w, bias, y, int(b is not None), total, stream=stream)


def backward_data(shape: ConvShape, dy: Any, w: Any, dx: Any, workspace: Any, stream: Any) -> None:
    if not shape.plain:
        return grouped.backward_data(shape, dy, w, dx, stream)
    total = prod(shape.x_shape)
    _launch(conv_direct_backward_data, total, shape, dy, w, dx, total, stream=stream)


def backward_filter(shape: ConvShape, x: Any, dy: Any, dw: Any, workspace: Any, stream: Any) -> None:
    if not shape.plain:
        return grouped.backward_filter(shape, x, dy, dw, stream)
    total = prod(shape.w_shape)
    _launch(conv_direct_backward_filter, total, shape, x, dy, dw, total, shape.images, stream=stream)


def _launch(run: Kernel, total: int, shape: ConvShape, *args: Any, stream: Any) -> None:
    """Launch with the arguments that the three kernels end in."""
    launch(
        run, ceil_div(total, BLOCK), *args, shape.channels, shape.height, shape.width,
        shape.filters, shape.filter_height, shape.filter_width, shape.out_height, shape.out_width,
        *shape.stride, *shape.pad, stream=stream,
    )  # fmt: skip
