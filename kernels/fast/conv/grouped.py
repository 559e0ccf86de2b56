"""Convolution with groups or dilation, straight from its formula.  Without them it has the plain kernels.

    forward          one thread an output      sums over the c, r, s of its group    (in this order, ascending)
    backward_data    one thread an input       sums over the k, r, s of its group
    backward_filter  one block a weight        sums over n, p, q

A group has few channels, a depthwise one a single one: an output of a 3×3 depthwise filter is a sum of nine terms.  So
there is little to multiply, and time goes into bytes and into finding indices.  forward and backward_data read 4 bytes
an element of their map once, the other taps from the cache, and write 4 bytes a result.

backward_filter has few weights and long sums: 32 depthwise 3×3 filters are 288 sums over all images and positions, too
few for one thread each.  So each weight has a block of 256 threads: thread t sums terms t, t + 256, t + 512, …, then
the block adds the threads' sums in a tree.  Operations of a pass: 2·n·k·p·q·r·s·c/groups.  No workspace.

On the CPU depthwise filters of 3×3 and 5×5 have kernels for LLVM.  It vectorises them with stride 1: 5 to 20 times as
fast (4 times on maps of 2×2).  With stride 2 they gain from the constant taps alone: 2 to 5 times.
Their blocks are 16 × 16 threads: 16 neighbouring places, one vector register, of 16 maps.  So all threads of a row have
the same weights; the taps are a constant number; what is outside the map is read as zero instead of being left out; and
with stride 1, where outputs have the places of what they read, a tap is one distance for all threads.  Results go into
shared memory first: on the CPU it is the stack, which cannot overlap an argument.  A GPU keeps the kernels above: on
maps smaller than 16 places most threads of such a block would be idle.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from kernels import conv as plain
from kernels.checks.arguments import place
from kernels.checks.conv_shape import ConvShape, Pair
from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, Kernel, ceil_div, device, kernel, launch
from kernels.targets.shim import cuda

SUMMARY = "one thread a result, straight from the formula; slow but for groups, any shape, no workspace"
BLOCK = 256
LANES = 16  #: floats of a vector register
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


# -- depthwise, on the CPU ---------------------------------------------------------------------------------------------


@device
def depthwise_split(place: int, width: int, by_width: int) -> Pair:
    """The row and the column of a place in a map."""
    row = np.int32(divide(place, by_width))
    return row, np.int32(place - row * width)


def depthwise_forward(side: int, same: bool) -> Kernel:
    """The kernel for filters of side × side.  `same`: an output has the place of the middle of what it reads."""
    taps = side * side

    @kernel(block=(LANES, LANES), name=f"conv_depthwise_forward_{side}x{side}" + ("" if same else "_strided"))
    def conv_depthwise_forward(
        x: Floats, w: Floats, bias: Floats, y: Floats, with_bias: int, planes: int, channels: int,
        height: int, width: int, out_height: int, out_width: int, stride_h: int, stride_w: int,
        pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, by_channels: int, by_out_width: int,
    ) -> None:  # fmt: skip
        """One thread an output."""
        values = cuda.shared.array((LANES, LANES), np.float32)
        weights = cuda.shared.array((LANES, taps), np.float32)
        own = cuda.local.array(taps, np.float32)
        i = np.int64(cuda.threadIdx.x)
        j = np.int64(cuda.threadIdx.y)
        plane = np.int64(cuda.blockIdx.y) * LANES + j
        place = np.int64(cuda.blockIdx.x) * LANES + i
        area = out_height * out_width
        if plane < planes:
            k = plane - divide(plane, by_channels) * channels
            if i == 0:
                for tap in range(taps):
                    weights[j, tap] = w[np.uint32(k * taps + tap)]
        cuda.syncthreads()
        for tap in range(taps):  # outside the condition, so that LLVM reads them once for all threads of a row
            own[tap] = weights[j, tap]
        if plane < planes and place < area:
            start = plane * height * width
            p, q = depthwise_split(place, out_width, by_out_width)
            value = ZERO
            for r in range(side):
                h = np.int32(p * stride_h - pad_h + r * dilation_h)
                for s in range(side):
                    v = np.int32(q * stride_w - pad_w + s * dilation_w)
                    inside = np.uint32(h) < np.uint32(height) and np.uint32(v) < np.uint32(width)
                    if same:
                        there = start + (r * dilation_h - pad_h) * width + s * dilation_w - pad_w + place
                    else:
                        there = start + h * width + v
                    value += own[r * side + s] * (x[np.uint32(there)] if inside else ZERO)
            values[j, i] = value
        cuda.syncthreads()
        if plane < planes and place < area:
            value = values[j, i]
            if with_bias != 0:
                value += bias[np.uint32(plane - divide(plane, by_channels) * channels)]
            y[np.uint32(plane * area + place)] = value

    return conv_depthwise_forward


def depthwise_backward_data(side: int, same: bool) -> Kernel:
    """The kernel for the gradient of the inputs; `same` as in `depthwise_forward`."""
    taps = side * side

    @kernel(block=(LANES, LANES), name=f"conv_depthwise_backward_data_{side}x{side}" + ("" if same else "_strided"))
    def conv_depthwise_backward_data(
        dy: Floats, w: Floats, dx: Floats, planes: int, channels: int,
        height: int, width: int, out_height: int, out_width: int, stride_h: int, stride_w: int,
        pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, by_channels: int, by_width: int,
        by_stride_h: int, by_stride_w: int,
    ) -> None:  # fmt: skip
        """One thread an input."""
        values = cuda.shared.array((LANES, LANES), np.float32)
        weights = cuda.shared.array((LANES, taps), np.float32)
        own = cuda.local.array(taps, np.float32)
        i = np.int64(cuda.threadIdx.x)
        j = np.int64(cuda.threadIdx.y)
        plane = np.int64(cuda.blockIdx.y) * LANES + j
        place = np.int64(cuda.blockIdx.x) * LANES + i
        area = height * width
        if plane < planes:
            k = plane - divide(plane, by_channels) * channels
            if i == 0:
                for tap in range(taps):
                    weights[j, tap] = w[np.uint32(k * taps + tap)]
        cuda.syncthreads()
        for tap in range(taps):  # outside the condition, so that LLVM reads them once for all threads of a row
            own[tap] = weights[j, tap]
        if plane < planes and place < area:
            start = plane * out_height * out_width
            h, v = depthwise_split(place, width, by_width)
            value = ZERO
            for r in range(side):
                up = np.int32(h + pad_h - r * dilation_h)
                for s in range(side):
                    over = np.int32(v + pad_w - s * dilation_w)
                    if same:
                        inside = np.uint32(up) < np.uint32(out_height) and np.uint32(over) < np.uint32(out_width)
                        there = start + (pad_h - r * dilation_h) * out_width + pad_w - s * dilation_w + place
                    else:
                        p = np.int32(divide(max(up, 0), by_stride_h))
                        q = np.int32(divide(max(over, 0), by_stride_w))
                        inside = p * stride_h == up and p < out_height and q * stride_w == over and q < out_width
                        there = start + p * out_width + q
                    value += own[r * side + s] * (dy[np.uint32(there)] if inside else ZERO)
            values[j, i] = value
        cuda.syncthreads()
        if plane < planes and place < area:
            dx[np.uint32(plane * area + place)] = values[j, i]

    return conv_depthwise_backward_data


def depthwise_backward_filter(side: int, same: bool) -> Kernel:
    """The kernel for the gradient of the filters; `same` as in `depthwise_forward`."""
    taps = side * side

    @kernel(block=(LANES, LANES), name=f"conv_depthwise_backward_filter_{side}x{side}" + ("" if same else "_strided"))
    def conv_depthwise_backward_filter(
        x: Floats, dy: Floats, dw: Floats, pieces: int, pieces_a_map: int, channels: int,
        height: int, width: int, out_height: int, out_width: int, stride_h: int, stride_w: int,
        pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, by_out_width: int, by_map: int,
    ) -> None:  # fmt: skip
        """One block a filter: a row of threads takes 16 places of an image at a time; then the sums."""
        sums = cuda.shared.array((taps, LANES, LANES), np.float32)
        i = np.int64(cuda.threadIdx.x)
        j = np.int64(cuda.threadIdx.y)
        k = np.int64(cuda.blockIdx.x)
        area = out_height * out_width
        for tap in range(taps):
            sums[tap, j, i] = ZERO
        first = 0
        while first < pieces:
            piece = first + j
            n = np.int64(divide(piece, by_map))
            place = (piece - n * pieces_a_map) * LANES + i
            if piece < pieces and place < area:
                gradient = dy[np.uint32((n * channels + k) * area + place)]
                start = (n * channels + k) * height * width
                p, q = depthwise_split(place, out_width, by_out_width)
                for r in range(side):
                    h = np.int32(p * stride_h - pad_h + r * dilation_h)
                    for s in range(side):
                        v = np.int32(q * stride_w - pad_w + s * dilation_w)
                        inside = np.uint32(h) < np.uint32(height) and np.uint32(v) < np.uint32(width)
                        if same:
                            there = start + (r * dilation_h - pad_h) * width + s * dilation_w - pad_w + place
                        else:
                            there = start + h * width + v
                        sums[r * side + s, j, i] += gradient * (x[np.uint32(there)] if inside else ZERO)
            cuda.syncthreads()  # for the CPU: the loop over the threads ends here
            first += LANES
        half = LANES // 2
        while half > 0:
            if j < half:
                for tap in range(taps):
                    sums[tap, j, i] += sums[tap, j + half, i]
            cuda.syncthreads()
            half //= 2
        if i == 0:
            tap = j
            while tap < taps:
                value = ZERO
                for column in range(LANES):
                    value += sums[tap, 0, column]
                dw[np.uint32(k * taps + tap)] = value
                tap += LANES

    return conv_depthwise_backward_filter


#: The pass → (side of the filter, `same`) → kernel.  With 5×5 and strides the gradient of the inputs gains nothing.
DEPTHWISE = {
    "forward": {key: depthwise_forward(*key) for key in ((3, True), (3, False), (5, True), (5, False))},
    "backward_data": {key: depthwise_backward_data(*key) for key in ((3, True), (3, False), (5, True))},
    "backward_filter": {key: depthwise_backward_filter(*key) for key in ((3, True), (3, False), (5, True), (5, False))},
}


def why_not(pass_: str, shape: ConvShape) -> str | None:
    return None


def workspace_bytes(pass_: str, shape: ConvShape, images: int | None = None) -> int:
    return 0


def forward(shape: ConvShape, x: Any, w: Any, b: Any, y: Any, workspace: Any, stream: Any) -> None:
    if shape.plain:
        return plain.forward(x, w, b, y, shape.stride, shape.pad, stream=stream)
    total = prod(shape.y_shape)
    bias = w if b is None else b  # a kernel cannot be given None; with_bias says that it is not read
    with_bias = int(b is not None)
    if one := _depthwise("forward", shape, x):
        planes = shape.images * shape.channels
        sizes = (planes, *_depthwise_sizes(shape), *map(reciprocal, (shape.channels, shape.out_width)))
        grid = ceil_div(shape.out_height * shape.out_width, LANES), ceil_div(planes, LANES)
        launch(one, grid, x, w, bias, y, with_bias, *sizes, stream=stream)
        return
    by = map(reciprocal, (shape.group_filters, shape.filters, shape.out_height, shape.out_width))
    sizes = (total, *_sizes(shape), *by)
    launch(conv_grouped_forward, ceil_div(total, BLOCK), x, w, bias, y, with_bias, *sizes, stream=stream)


def backward_data(shape: ConvShape, dy: Any, w: Any, dx: Any, workspace: Any, stream: Any) -> None:
    if shape.plain:
        return plain.backward_data(dy, w, dx, shape.stride, shape.pad, stream=stream)
    if one := _depthwise("backward_data", shape, dy):
        planes = shape.images * shape.channels
        sizes = (planes, *_depthwise_sizes(shape), *map(reciprocal, (shape.channels, shape.width, *shape.stride)))
        grid = ceil_div(shape.height * shape.width, LANES), ceil_div(planes, LANES)
        launch(one, grid, dy, w, dx, *sizes, stream=stream)
        return
    total = prod(shape.x_shape)
    by = map(reciprocal, (shape.group_channels, shape.channels, shape.height, shape.width, *shape.stride))
    sizes = (total, *_sizes(shape), shape.group_filters, *by)
    launch(conv_grouped_backward_data, ceil_div(total, BLOCK), dy, w, dx, *sizes, stream=stream)


def backward_filter(shape: ConvShape, x: Any, dy: Any, dw: Any, workspace: Any, stream: Any) -> None:
    if shape.plain:
        return plain.backward_filter(x, dy, dw, shape.stride, shape.pad, stream=stream)
    if one := _depthwise("backward_filter", shape, x):
        each = ceil_div(shape.out_height * shape.out_width, LANES)
        sizes = (shape.images * each, each, *_depthwise_sizes(shape), reciprocal(shape.out_width), reciprocal(each))
        launch(one, shape.channels, x, dy, dw, *sizes, stream=stream)
        return
    area = shape.out_height * shape.out_width
    sizes = (shape.images * area, *_sizes(shape), shape.group_filters, reciprocal(area), reciprocal(shape.out_width))
    launch(conv_grouped_backward_filter, prod(shape.w_shape), x, dy, dw, *sizes, stream=stream)


def _depthwise(pass_: str, shape: ConvShape, array: Any) -> Kernel | None:
    """The CPU's kernel for depthwise filters of this shape; None for other shapes, and on a GPU."""
    side = shape.filter_height
    fits = shape.filters == shape.channels == shape.groups and shape.filter_width == side
    if place(array) != "cpu" or not fits or shape.images * shape.channels > LANES * 65535:
        return None
    same = shape.stride == (1, 1) and shape.out_width == shape.width
    return DEPTHWISE[pass_].get((side, same))


def _depthwise_sizes(shape: ConvShape) -> tuple[int, ...]:
    """What the depthwise kernels are told."""
    return (
        shape.channels, shape.height, shape.width, shape.out_height, shape.out_width,
        *shape.stride, *shape.pad, *shape.dilation,
    )  # fmt: skip


def _sizes(shape: ConvShape) -> tuple[int, ...]:
    """What all three kernels are told."""
    return (
        shape.channels, shape.height, shape.width, shape.filters, shape.filter_height, shape.filter_width,
        shape.out_height, shape.out_width, *shape.stride, *shape.pad, *shape.dilation, shape.group_channels,
    )  # fmt: skip
