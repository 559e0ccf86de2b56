"""Convolution by explicit columns: unfold the maps into a matrix, then multiply it with the filters (Caffe's way).

The columns of one image are a matrix with a row for each tap (channel c, filter row r, filter column s) and a column
for each output position (p, q):

    columns[(c, r, s), (p, q)] = x[c, p·stride_h + r - pad_h, q·stride_w + s - pad_w], or 0 outside the map

With w read as a filters × taps matrix and y, dy as filters × positions, image by image, the passes are matrix products:

    forward            y = w · columns
    backward data      columns' gradient = wᵀ · dy; an input element then adds up the columns it was copied to
    backward filter    dw = sum over the images of  dy · columnsᵀ

**Order of summation.** Forward: over the taps (c, r, s), ascending.  Backward data: over the filters, then over the
taps (r, s).  Backward filter: over the positions of an image; the images' products are added in ascending order.  How
many images the workspace holds does not change a bit.

**Workspace** for i images at a time, in bytes, with taps = channels·filter_height·filter_width:

    forward, backward data    4·i·taps·positions
    backward filter           4·i·(taps·positions + filters·taps)

A 1×1 filter with stride 1 and no padding leaves the map as it is: the map serves as its own columns, and the
taps·positions term is 0.  A workspace larger than 2³¹ - 1 elements is never used: then fewer images are taken at a
time.

**Cost.** 2·taps·positions·filters operations an image, the same as the direct way.  Memory sees more: every column
element (taps/channels times as many as the map has, at stride 1) is written once and read at least once, 8 bytes each.

**Launch.** The columns kernel has one thread an output position of one map (a channel of an image), the gather kernel
one an input element, the adding kernel one an element of dw; blocks of 256 in one dimension.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.checks.arguments import LARGEST, flat
from kernels.checks.conv_shape import ConvShape
from kernels.fast import gemm
from kernels.fast.conv import bias
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

SUMMARY = "explicit columns, then gemm"
LARGEST_BATCH = 65535  #: matrices of one batched gemm: a grid's y dimension
ZERO = np.float32(0)


@kernel(block=256)
def im2col_columns(
    x: Floats, columns: Floats, maps: int, height: int, width: int, filter_height: int, filter_width: int,
    out_height: int, out_width: int, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
) -> None:  # fmt: skip
    """One thread an output position of a map: it copies the position's taps, so they share the two divisions.

    Neighbouring threads have neighbouring positions, which are adjacent in every row of the columns.
    """
    i = cuda.grid(1)
    positions = out_height * out_width
    if i < maps * positions:
        m = np.int64(np.uint32(i) // np.uint32(positions))
        position = i - m * positions
        p = np.int64(np.uint32(position) // np.uint32(out_width))
        q = position - p * out_width
        top = p * stride_h - pad_h
        left = q * stride_w - pad_w
        to = m * filter_height * filter_width * positions + position
        for r in range(filter_height):
            row = (m * height + top + r) * width
            row_inside = 0 <= top + r < height
            for s in range(filter_width):
                value = ZERO
                if row_inside and 0 <= left + s < width:
                    value = x[np.uint32(row + left + s)]
                columns[np.uint32(to)] = value
                to += positions


@kernel(block=256)
def im2col_gather(
    columns: Floats, dx: Floats, maps: int, height: int, width: int, filter_height: int, filter_width: int,
    out_height: int, out_width: int, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
) -> None:  # fmt: skip
    """One thread an input element: it adds up the column elements that were copied from it, filter row by filter row.

    Tap r of output row p reads input row p·stride_h + r - pad_h.  So of the filter rows only every stride_h-th,
    starting at (h + pad_h) mod stride_h, meets row h, and each next one belongs to the output row before.
    """
    i = cuda.grid(1)
    area = height * width
    if i < maps * area:
        m = np.int64(np.uint32(i) // np.uint32(area))
        h = np.int64(np.uint32(i - m * area) // np.uint32(width))
        w = i - m * area - h * width
        last_p = np.int64(np.uint32(h + pad_h) // np.uint32(stride_h))
        last_q = np.int64(np.uint32(w + pad_w) // np.uint32(stride_w))
        first_s = w + pad_w - last_q * stride_w
        total = ZERO
        r = h + pad_h - last_p * stride_h
        p = last_p
        while r < filter_height and p >= 0:
            if p < out_height:
                s = first_s
                q = last_q
                while s < filter_width and q >= 0:
                    if q < out_width:
                        tap = (m * filter_height + r) * filter_width + s
                        total += columns[np.uint32((tap * out_height + p) * out_width + q)]
                    s += stride_w
                    q -= 1
            r += stride_h
            p -= 1
        dx[np.uint32(i)] = total


@kernel(block=256)
def im2col_add_partials(partials: Floats, total: Floats, size: int, count: int, add: int) -> None:
    """total = (what it was if `add`, else 0) + partial results 0, 1, … count-1, `size` elements each, in this order."""
    i = cuda.grid(1)
    if i < size:
        running = ZERO
        if add != 0:
            running = total[np.uint32(i)]
        for j in range(count):
            running += partials[np.uint32(j * size + i)]
        total[np.uint32(i)] = running


def add_partials(partials: Any, total: Any, size: int, count: int, add: bool, stream: Any) -> None:
    """Add `count` partial results, `size` elements each, to `total`, or to 0 unless `add`; in ascending order."""
    launch(im2col_add_partials, ceil_div(size, 256), partials, total, size, count, int(add), stream=stream)


def images_at_a_time(images: int, matrices: int, floats: int, need: Callable[[int], int]) -> int:
    """The most images at a time, of `images`, that a workspace of `floats` elements allows: i of them need need(i).

    An image is `matrices` matrices of a batched gemm, and a batch has a limit of its own.
    """
    candidates = range(1, min(images, LARGEST_BATCH // matrices) + 1)
    return bisect_right(candidates, min(floats, LARGEST), key=need)


def is_pointwise(shape: ConvShape) -> bool:
    """The map is its own columns."""
    window = (shape.filter_height, shape.filter_width, *shape.stride, *shape.pad, *shape.pad_after)
    return window == (1, 1, 1, 1, 0, 0, 0, 0)


def _sizes(shape: ConvShape) -> tuple[int, int]:
    """Taps and positions: rows and columns of one image's columns."""
    return shape.channels * shape.filter_height * shape.filter_width, shape.out_height * shape.out_width


def _floats_an_image(pass_: str, shape: ConvShape) -> int:
    taps, positions = _sizes(shape)
    columns = 0 if is_pointwise(shape) else taps * positions
    return columns + (shape.filters * taps if pass_ == "backward_filter" else 0)


def why_not(pass_: str, shape: ConvShape) -> str | None:
    """Why this pass cannot be done by columns; None if it can."""
    if not shape.plain:
        return f"its filters see all channels and are not dilated, these have groups={shape.groups}, {shape.dilation}"
    need = _floats_an_image(pass_, shape)
    if need > LARGEST:
        return f"the workspace of one image has {need} elements; at most {LARGEST} can be indexed"
    return None


def workspace_bytes(pass_: str, shape: ConvShape, images: int | None = None) -> int:
    """Bytes for `images` images at a time (None: the whole batch), or for as many as can be indexed."""
    return 4 * _floats_an_image(pass_, shape) * min(images or shape.images, _most(pass_, shape, LARGEST))


def _most(pass_: str, shape: ConvShape, floats: int) -> int:
    """Images at a time with this many elements of workspace."""
    each = _floats_an_image(pass_, shape)
    return images_at_a_time(shape.images, 1, floats, lambda images: images * each)


def _step(pass_: str, shape: ConvShape, workspace: Any) -> int:
    """Images at a time with this workspace, which the caller has found large enough for one."""
    return _most(pass_, shape, 0 if workspace is None else workspace.shape[0])


def _geometry(shape: ConvShape, count: int) -> tuple[int, ...]:
    """The arguments of the columns kernel and the gather kernel for `count` images."""
    return (
        count * shape.channels, shape.height, shape.width, shape.filter_height, shape.filter_width,
        shape.out_height, shape.out_width, *shape.stride, *shape.pad,
    )  # fmt: skip


def _columns(shape: ConvShape, x: Any, count: int, workspace: Any, stream: Any) -> Any:
    """The columns of the first `count` images of x (flat): in the workspace, or x itself."""
    if is_pointwise(shape):
        return x
    taps, positions = _sizes(shape)
    columns = workspace[: count * taps * positions]
    grid = ceil_div(count * shape.channels * positions, 256)
    launch(im2col_columns, grid, x, columns, *_geometry(shape, count), stream=stream)
    return columns


def forward(shape: ConvShape, x: Any, w: Any, b: Any, y: Any, workspace: Any, stream: Any) -> None:
    """y = w · columns, a batched gemm over the images in the workspace."""
    taps, positions = _sizes(shape)
    x, w, y_flat = flat(x), flat(w), flat(y)
    x_image, y_image = shape.channels * shape.height * shape.width, shape.filters * positions
    step = _step("forward", shape, workspace)
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        columns = _columns(shape, x[first * x_image : (first + count) * x_image], count, workspace, stream)
        gemm.strided(
            w, columns, y_flat[first * y_image : (first + count) * y_image],
            m=shape.filters, n=positions, k=taps, lda=taps, ldb=positions, ldc=positions,
            batch=count, stride_b=taps * positions, stride_c=y_image, stream=stream,
        )  # fmt: skip
    if b is not None:
        bias.add_bias(b, y, stream)


def backward_data(shape: ConvShape, dy: Any, w: Any, dx: Any, workspace: Any, stream: Any) -> None:
    """The columns' gradient wᵀ · dy, then the gather; a pointwise convolution's columns are dx itself."""
    taps, positions = _sizes(shape)
    dy, w, dx = flat(dy), flat(w), flat(dx)
    x_image, y_image = shape.channels * shape.height * shape.width, shape.filters * positions
    step = _step("backward_data", shape, workspace)
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        dx_part = dx[first * x_image : (first + count) * x_image]
        columns = dx_part if is_pointwise(shape) else workspace[: count * taps * positions]
        gemm.strided(
            w, dy[first * y_image : (first + count) * y_image], columns,
            m=taps, n=positions, k=shape.filters, lda=taps, ldb=positions, ldc=positions, trans_a=True,
            batch=count, stride_b=y_image, stride_c=taps * positions, stream=stream,
        )  # fmt: skip
        if not is_pointwise(shape):
            grid = ceil_div(count * x_image, 256)
            launch(im2col_gather, grid, columns, dx_part, *_geometry(shape, count), stream=stream)


def backward_filter(shape: ConvShape, x: Any, dy: Any, dw: Any, workspace: Any, stream: Any) -> None:
    """An image's dy · columnsᵀ is a partial result of its own; dw collects them image by image."""
    taps, positions = _sizes(shape)
    x, dy, dw = flat(x), flat(dy), flat(dw)
    x_image, y_image = shape.channels * shape.height * shape.width, shape.filters * positions
    dw_size = shape.filters * taps
    step = _step("backward_filter", shape, workspace)
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        partials, rest = workspace[: count * dw_size], workspace[count * dw_size :]
        columns = _columns(shape, x[first * x_image : (first + count) * x_image], count, rest, stream)
        gemm.strided(
            dy[first * y_image : (first + count) * y_image], columns, partials,
            m=shape.filters, n=taps, k=positions, lda=positions, ldb=positions, ldc=taps, trans_b=True,
            batch=count, stride_a=y_image, stride_b=taps * positions, stride_c=dw_size, stream=stream,
        )  # fmt: skip
        add_partials(partials, dw, dw_size, count, first > 0, stream)
