"""Convolution with groups or dilation straight from its formula: the grouped half of `kernels.conv.direct`.

    forward          one thread an output      sums over the c, r, s of its group    (in this order, ascending)
    backward_data    one thread an input       sums over the k, r, s of its group
    backward_filter  one block a weight        sums over n, p, q

A group has few channels, a depthwise one a single one: an output of a 3×3 depthwise filter is a sum of nine terms.  So
there is little to multiply, and time goes into bytes and into finding indices.  forward and backward_data read 4 bytes
an element of their map once, the other taps from the cache, and write 4 bytes a result.

backward_filter has few weights and long sums: 32 depthwise 3×3 filters are 288 sums over all images and positions, too
few for one thread each.  So each weight has a block of 256 threads: thread t sums terms t, t + 256, t + 512, …, then
the block adds the threads' sums in a tree.  Operations of a pass: 2·n·k·p·q·r·s·c/groups.  No workspace.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.division import divide, reciprocal
from kernels.launch import Floats, ceil_div, kernel, launch
from kernels.shim import cuda

BLOCK = 256
ZERO = np.float32(0)


@kernel(block=BLOCK)
def conv_grouped_forward(
    x: Floats, w: Floats, bias: Floats, y: Floats, with_bias: int, total: int, channels: int, height: int, width: int,
    filters: int, filter_height: int, filter_width: int, out_height: int, out_width: int,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    group_channels: int, by_group_filters: int, by_filters: int, by_out_height: int, by_out_width: int,
) -> None:  # fmt: skip
    """One thread an output."""
    i = cuda.grid(1)
    if i < total:
        row = divide(i, by_out_width)
        plane = divide(row, by_out_height)
        n = divide(plane, by_filters)
        k = plane - n * filters
        top = (row - plane * out_height) * stride_h - pad_h
        left = (i - row * out_width) * stride_w - pad_w
        first = n * channels + divide(k, by_group_filters) * group_channels  # number of the group's first map
        value = ZERO
        for c in range(group_channels):
            for r in range(filter_height):
                h = top + r * dilation_h
                if 0 <= h and h < height:
                    line = ((first + c) * height + h) * width
                    weights = ((k * group_channels + c) * filter_height + r) * filter_width
                    for s in range(filter_width):
                        v = left + s * dilation_w
                        if 0 <= v and v < width:
                            value += w[np.uint32(weights + s)] * x[np.uint32(line + v)]
        if with_bias != 0:
            value += bias[np.uint32(k)]
        y[np.uint32(i)] = value


@kernel(block=BLOCK)
def conv_grouped_backward_data(
    dy: Floats, w: Floats, dx: Floats, total: int, channels: int, height: int, width: int,
    filters: int, filter_height: int, filter_width: int, out_height: int, out_width: int,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    group_channels: int, group_filters: int, by_group_channels: int, by_channels: int, by_height: int, by_width: int,
    by_stride_h: int, by_stride_w: int,
) -> None:  # fmt: skip
    """One thread an input: it gathers the gradients of the outputs that read it."""
    i = cuda.grid(1)
    if i < total:
        row = divide(i, by_width)
        plane = divide(row, by_height)
        n = divide(plane, by_channels)
        channel = plane - n * channels
        group = divide(channel, by_group_channels)
        c = channel - group * group_channels
        below = row - plane * height + pad_h
        right = i - row * width + pad_w
        value = ZERO
        for k in range(group * group_filters, (group + 1) * group_filters):
            for r in range(filter_height):
                # The output row that meets this input row at filter row r, if there is one:
                # h = p * stride + r * dilation - pad.
                up = below - r * dilation_h
                if up >= 0:
                    p = divide(up, by_stride_h)
                    if p < out_height and p * stride_h == up:
                        line = ((n * filters + k) * out_height + p) * out_width
                        weights = ((k * group_channels + c) * filter_height + r) * filter_width
                        for s in range(filter_width):
                            over = right - s * dilation_w
                            if over >= 0:
                                q = divide(over, by_stride_w)
                                if q < out_width and q * stride_w == over:
                                    value += w[np.uint32(weights + s)] * dy[np.uint32(line + q)]
        dx[np.uint32(i)] = value


@kernel(block=BLOCK)
def conv_grouped_backward_filter(
    x: Floats, dy: Floats, dw: Floats, terms: int, channels: int, height: int, width: int,
    filters: int, filter_height: int, filter_width: int, out_height: int, out_width: int,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    group_channels: int, group_filters: int, by_area: int, by_out_width: int,
) -> None:  # fmt: skip
    """One block a weight: each thread's share of the images and positions, then the shares in a tree."""
    sums = cuda.shared.array(BLOCK, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    weight = np.uint32(cuda.blockIdx.x)
    rest = weight // np.uint32(filter_width)
    left = np.int64(weight % np.uint32(filter_width)) * dilation_w - pad_w
    top = np.int64(rest % np.uint32(filter_height)) * dilation_h - pad_h
    rest = rest // np.uint32(filter_height)
    k = np.int64(rest // np.uint32(group_channels))
    c = np.int64(rest % np.uint32(group_channels)) + np.int64(np.uint32(k) // np.uint32(group_filters)) * group_channels
    area = out_height * out_width
    value = ZERO
    e = np.int64(t)
    while e < terms:
        n = np.int64(divide(e, by_area))
        place = e - n * area
        p = np.int64(divide(place, by_out_width))
        h = p * stride_h + top
        v = (place - p * out_width) * stride_w + left
        if 0 <= h and h < height and 0 <= v and v < width:
            gradient = dy[np.uint32((n * filters + k) * area + place)]
            value += gradient * x[np.uint32(((n * channels + c) * height + h) * width + v)]
        e += BLOCK
    sums[t] = value
    cuda.syncthreads()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            sums[t] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        dw[weight] = sums[0]


def forward(shape: ConvShape, x: Any, w: Any, b: Any, y: Any, stream: Any) -> None:
    total = prod(shape.y_shape)
    bias = w if b is None else b  # a kernel cannot be given None; with_bias says that it is not read
    by = map(reciprocal, (shape.group_filters, shape.filters, shape.out_height, shape.out_width))
    sizes = (total, *_sizes(shape), *by)
    launch(conv_grouped_forward, ceil_div(total, BLOCK), x, w, bias, y, int(b is not None), *sizes, stream=stream)


def backward_data(shape: ConvShape, dy: Any, w: Any, dx: Any, stream: Any) -> None:
    total = prod(shape.x_shape)
    by = map(reciprocal, (shape.group_channels, shape.channels, shape.height, shape.width, *shape.stride))
    sizes = (total, *_sizes(shape), shape.group_filters, *by)
    launch(conv_grouped_backward_data, ceil_div(total, BLOCK), dy, w, dx, *sizes, stream=stream)


def backward_filter(shape: ConvShape, x: Any, dy: Any, dw: Any, stream: Any) -> None:
    area = shape.out_height * shape.out_width
    sizes = (shape.images * area, *_sizes(shape), shape.group_filters, reciprocal(area), reciprocal(shape.out_width))
    launch(conv_grouped_backward_filter, prod(shape.w_shape), x, dy, dw, *sizes, stream=stream)


def _sizes(shape: ConvShape) -> tuple[int, ...]:
    """What all three kernels are told."""
    return (
        shape.channels, shape.height, shape.width, shape.filters, shape.filter_height, shape.filter_width,
        shape.out_height, shape.out_width, *shape.stride, *shape.pad, *shape.dilation, shape.group_channels,
    )  # fmt: skip
