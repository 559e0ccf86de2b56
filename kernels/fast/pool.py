"""Pooling: the largest value, or the average, of every window of every map.

    max:      y[n, c, p, q] = the largest of x[n, c, h, w] over the window      dx: all to the first largest, row by row
    average:  y[n, c, p, q] = their sum / area                                  dx: dy / area to each of them
    window:   h from p·stride - pad to p·stride - pad + window - 1, w likewise from q; only what is in the map is read

Padding is (vertical, horizontal), or (top, left, bottom, right): pad is the top's and the left's.

`ceil` rounds the number of windows up instead of down: a last window may hang over the edge, unless it would start in
the padding beyond it.  An average divides by the window's area with its padding (but not what hangs over beyond that)
or, without `count_padding`, by the number of its elements.  All of this is as in PyTorch, except that padding need only
be smaller than the window, so that every window holds an element; PyTorch stops at half of it.

Forward: one thread an output; it walks its window row by row.
    One operation an element of a window; reads x once (neighbouring windows meet in the cache) and writes y: 20 bytes
    an output for 2×2 windows at stride 2.
Backward *gathers*: every thread owns a part of dx and looks for what the windows over it give, so that no two threads
write to one place and the order of every sum is fixed.  Which windows these are is arithmetic.
    max:     one thread a cell, the stride × stride elements that begin where a window begins.  No indices are stored:
             the first largest element of a window is the first that equals its y.
             Up to one comparison an element of every window over a cell; 10 bytes an element of x (2×2, stride 2).
    average: one thread an element.
             Two operations a window over it; reads dy, writes dx: 5 bytes an element of x (2×2, stride 2).
On a CPU the usual windows have kernels of their own for the largest values, one thread a map: see `by_map`.

`forward_to` pools to maps of a given size, whatever the size of x (PyTorch's adaptive pooling): window p of P goes over
the rows from ⌊p·height / P⌋ to ⌈(p + 1)·height / P⌉ - 1, so windows differ by a row and may overlap.  Backward has one
thread an element, which goes over the windows that hold it; for a largest value it looks whether an equal one is before
it in the window.

A window that holds a NaN has the largest value NaN, and its gradient reaches no element: NaN equals nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels.checks.arguments import LARGEST, KernelError, check, check_shape, place
from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, Kernel, ceil_div, device, kernel, launch
from kernels.targets.shim import cuda

Pair = tuple[int, int]
Pad = Sequence[int]  #: (vertical, horizontal), or (top, left, bottom, right)
MODES = ("max", "average")
BLOCK = 256
ZERO = np.float32(0)
INFINITY = np.float32(np.inf)

# In the kernels a coordinate is an int32, since a window may begin before its map.  A place in an array is a uint32.


@device
def split(i: int, length: int, by_length: int) -> Pair:
    """i // length and i % length."""
    row = divide(i, by_length)
    return row, np.int32(i - row * length)


@device
def covered(position: int, stride: int, pad: int, window: int, size: int) -> Pair:
    """First and last + 1 of the rows (columns) that the window at `position` covers."""
    first = np.int32(position * stride - pad)
    return max(first, np.int32(0)), min(np.int32(first + window), np.int32(size))


@device
def counted(position: int, stride: int, pad: int, window: int, size: int, before: int, after: int) -> int:
    """How many rows (columns) an average takes the window at `position` to have.

    Of the padding, `before` rows and `after` rows count.
    """
    first = np.int32(position * stride - pad)
    return np.int32(min(first + window, size + after) - max(first, -before))


@kernel(block=BLOCK)
def pool_max_forward(
    x: Floats,
    y: Floats,
    total: int,
    height: int,
    width: int,
    out_height: int,
    out_width: int,
    by_out_height: int,
    by_out_width: int,
    window_height: int,
    window_width: int,
    stride_height: int,
    stride_width: int,
    pad_height: int,
    pad_width: int,
) -> None:
    """One thread an output: the largest value of its window."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row, q = split(i, out_width, by_out_width)
        plane, p = split(row, out_height, by_out_height)
        top, bottom = covered(p, stride_height, pad_height, window_height, height)
        left, right = covered(q, stride_width, pad_width, window_width, width)
        here = np.uint32((plane * height + top) * width + left)
        row_end = np.uint32(here + right - left)
        stop = np.uint32(here + (bottom - top) * width)
        largest = x[here]
        while here < stop:
            value = x[here]
            if value > largest or value != value:  # NaN wins, and then nothing is greater than it
                largest = value
            here = np.uint32(here + 1)
            if here == row_end:
                row_end = np.uint32(row_end + width)
                here = np.uint32(row_end - right + left)
        y[i] = largest


@kernel(block=BLOCK)
def pool_average_forward(
    x: Floats,
    y: Floats,
    total: int,
    height: int,
    width: int,
    out_height: int,
    out_width: int,
    by_out_height: int,
    by_out_width: int,
    window_height: int,
    window_width: int,
    stride_height: int,
    stride_width: int,
    pad_height: int,
    pad_width: int,
    count_above: int,
    count_left: int,
    count_below: int,
    count_right: int,
) -> None:
    """One thread an output: the mean of its window."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row, q = split(i, out_width, by_out_width)
        plane, p = split(row, out_height, by_out_height)
        top, bottom = covered(p, stride_height, pad_height, window_height, height)
        left, right = covered(q, stride_width, pad_width, window_width, width)
        here = np.uint32((plane * height + top) * width + left)
        row_end = np.uint32(here + right - left)
        stop = np.uint32(here + (bottom - top) * width)
        sum_ = ZERO
        while here < stop:
            sum_ += x[here]
            here = np.uint32(here + 1)
            if here == row_end:
                row_end = np.uint32(row_end + width)
                here = np.uint32(row_end - right + left)
        rows = counted(p, stride_height, pad_height, window_height, height, count_above, count_below)
        columns = counted(q, stride_width, pad_width, window_width, width, count_left, count_right)
        y[i] = sum_ / np.float32(rows * columns)


@kernel(block=BLOCK)
def pool_max_backward(
    x: Floats,
    y: Floats,
    dy: Floats,
    dx: Floats,
    cells: int,
    cell_rows: int,
    cell_columns: int,
    by_cell_rows: int,
    by_cell_columns: int,
    height: int,
    width: int,
    out_height: int,
    out_width: int,
    window_height: int,
    window_width: int,
    stride_height: int,
    stride_width: int,
    pad_height: int,
    pad_width: int,
    reach_height: int,
    reach_width: int,
) -> None:
    """Windows reach over `reach` cells: those over cell p begin at the cells from p - reach + 1 to p."""
    i = np.uint32(cuda.grid(1))
    if i < cells:
        row, cell_column = split(i, cell_columns, by_cell_columns)
        plane, cell_row = split(row, cell_rows, by_cell_rows)
        cell_top, cell_bottom = covered(cell_row, stride_height, pad_height, stride_height, height)
        cell_left, cell_right = covered(cell_column, stride_width, pad_width, stride_width, width)
        if cell_top < cell_bottom and cell_left < cell_right:  # it may be wholly in the padding
            here = np.uint32((plane * height + cell_top) * width + cell_left)
            row_end = np.uint32(here + cell_right - cell_left)
            stop = np.uint32(here + (cell_bottom - cell_top) * width)
            while here < stop:
                dx[here] = ZERO
                here = np.uint32(here + 1)
                if here == row_end:
                    row_end = np.uint32(row_end + width)
                    here = np.uint32(row_end - cell_right + cell_left)
            cell_start = np.uint32((plane * height + cell_top) * width)
            cell_stop = np.uint32((plane * height + cell_bottom) * width)
            p = max(np.int32(cell_row - reach_height + 1), np.int32(0))
            while p <= cell_row and p < out_height:
                top, bottom = covered(p, stride_height, pad_height, window_height, height)
                q = max(np.int32(cell_column - reach_width + 1), np.int32(0))
                while q <= cell_column and q < out_width:
                    left, right = covered(q, stride_width, pad_width, window_width, width)
                    window = np.uint32((plane * out_height + p) * out_width + q)
                    largest = y[window]
                    here = np.uint32((plane * height + top) * width + left)
                    row_end = np.uint32(here + right - left)
                    # What is below the cell is not this thread's to find.
                    stop = min(np.uint32(here + (bottom - top) * width), cell_stop)
                    while here < stop and x[here] != largest:
                        here = np.uint32(here + 1)
                        if here == row_end:
                            row_end = np.uint32(row_end + width)
                            here = np.uint32(row_end - right + left)
                    w = np.int32(right - np.int32(row_end - here))
                    if cell_start <= here and here < stop and cell_left <= w and w < cell_right:
                        dx[here] += dy[window]
                    q = np.int32(q + 1)
                p = np.int32(p + 1)


@device
def whole(size: int, count: int, window: int, stride: int, pad: int) -> Pair:
    """First and last + 1 of the windows, of `count` along this axis, that are in the map from end to end."""
    first = min((pad + stride - 1) // stride, count)
    return first, max(min((size + pad - window) // stride + 1, count), first)


def max_forward_by_map(window: int, stride: int) -> Kernel:
    """The kernel for square windows of this length at this stride."""

    @kernel(block=1, name=f"pool_max_forward_by_map_{window}_{stride}")
    def pool_max_forward_by_map(
        x: Floats, y: Floats, height: int, width: int, out_height: int, out_width: int, pad_height: int, pad_width: int
    ) -> None:
        """One thread a map: the largest values of a row of windows side by side."""
        largest = cuda.shared.array(ROW, np.float32)
        start = np.int64(cuda.blockIdx.x) * height * width
        first = np.int64(cuda.blockIdx.x) * out_height * out_width
        inside, outside = whole(width, out_width, window, stride, pad_width)
        for p in range(out_height):
            top = p * stride - pad_height
            for q in range(0, out_width, ROW):
                end = min(q + ROW, out_width)
                for j in range(max(inside, q), min(outside, end)):
                    most = -INFINITY
                    for r in range(window):
                        row = start + min(max(top + r, 0), height - 1) * width
                        for s in range(window):
                            value = x[np.uint32(row + j * stride - pad_width + s)]
                            most = value if (value > most) | (value != value) else most
                    largest[np.uint32(j - q)] = most
                for j in range(q, end):
                    if j < inside or j >= outside:
                        left = j * stride - pad_width
                        most = -INFINITY
                        for h in range(max(top, 0), min(top + window, height)):
                            for w in range(max(left, 0), min(left + window, width)):
                                value = x[np.uint32(start + h * width + w)]
                                most = value if (value > most) | (value != value) else most
                        largest[np.uint32(j - q)] = most
                for j in range(q, end):
                    y[np.uint32(first + j)] = largest[np.uint32(j - q)]
            first += out_width

    return pool_max_forward_by_map


def max_backward_by_map(window: int, stride: int) -> Kernel:
    """The kernel for square windows of this length at this stride."""

    @kernel(block=1, name=f"pool_max_backward_by_map_{window}_{stride}")
    def pool_max_backward_by_map(
        x: Floats, y: Floats, dy: Floats, dx: Floats,
        height: int, width: int, out_height: int, out_width: int, pad_height: int, pad_width: int,
    ) -> None:  # fmt: skip
        """One thread a map: it finds the first largest elements of a row of windows, then gives each its gradient."""
        found = cuda.shared.array(ROW, np.int32)
        start = np.int64(cuda.blockIdx.x) * height * width
        first = np.int64(cuda.blockIdx.x) * out_height * out_width
        inside, outside = whole(width, out_width, window, stride, pad_width)
        for i in range(start, start + height * width):
            dx[np.uint32(i)] = ZERO
        for p in range(out_height):
            top = p * stride - pad_height
            for q in range(0, out_width, ROW):
                end = min(q + ROW, out_width)
                for j in range(max(inside, q), min(outside, end)):
                    largest = y[np.uint32(first + j)]
                    place = -1
                    for r in range(window - 1, -1, -1):  # backwards: the first is found last
                        row = min(max(top + r, 0), height - 1) * width
                        for s in range(window - 1, -1, -1):
                            e = row + j * stride - pad_width + s
                            place = e if x[np.uint32(start + e)] == largest else place
                    found[np.uint32(j - q)] = place
                for j in range(q, end):
                    if j < inside or j >= outside:
                        left = j * stride - pad_width
                        place = -1
                        for h in range(min(top + window, height) - 1, max(top, 0) - 1, -1):
                            for w in range(min(left + window, width) - 1, max(left, 0) - 1, -1):
                                e = h * width + w
                                place = e if x[np.uint32(start + e)] == y[np.uint32(first + j)] else place
                        found[np.uint32(j - q)] = place
                for j in range(q, end):
                    if found[np.uint32(j - q)] >= 0:
                        dx[np.uint32(start + found[np.uint32(j - q)])] += dy[np.uint32(first + j)]
            first += out_width

    return pool_max_backward_by_map


ROW = 64  #: windows side by side
SQUARE = (2, 2), (3, 1), (3, 2)  #: window and stride
MAX_FORWARD_BY_MAP = {one: max_forward_by_map(*one) for one in SQUARE}
MAX_BACKWARD_BY_MAP = {one: max_backward_by_map(*one) for one in SQUARE}


def by_map(where: str, window: Pair, stride: Pair) -> Pair | None:
    """The window and stride of the `by_map` kernels that the machine runs best: "cpu" or "gpu" is where the arrays are.

    They compare and add up in the same order, so the choice changes no bit.  A CPU compares 16 windows at once if each
    has as many elements as all others, and one thread a map can add to dx where it likes; a GPU wants more threads.
    """
    square = window[0], stride[0]
    known = square in SQUARE and (*window, *stride) == (square[0], square[0], square[1], square[1])
    return square if where == "cpu" and known else None


@device
def over(here: int, stride: int, by_stride: int, pad: int, window: int, count: int) -> Pair:
    """First and last + 1 of the windows, of `count` along this axis, that hold row (column) `here`."""
    first = divide(max(np.int32(here + pad - window + stride), np.int32(0)), by_stride)
    return first, min(np.int32(divide(here + pad, by_stride) + 1), np.int32(count))


@kernel(block=BLOCK)
def pool_average_backward(
    dy: Floats,
    dx: Floats,
    total: int,
    height: int,
    width: int,
    by_height: int,
    by_width: int,
    out_height: int,
    out_width: int,
    window_height: int,
    window_width: int,
    stride_height: int,
    stride_width: int,
    by_stride_height: int,
    by_stride_width: int,
    pad_height: int,
    pad_width: int,
    count_above: int,
    count_left: int,
    count_below: int,
    count_right: int,
) -> None:
    """One thread an input: it gathers its share from every window that holds it."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row, w = split(i, width, by_width)
        plane, h = split(row, height, by_height)
        p, p_end = over(h, stride_height, by_stride_height, pad_height, window_height, out_height)
        q_first, q_end = over(w, stride_width, by_stride_width, pad_width, window_width, out_width)
        gradient = ZERO
        while p < p_end:
            rows = counted(p, stride_height, pad_height, window_height, height, count_above, count_below)
            q = q_first
            while q < q_end:
                columns = counted(q, stride_width, pad_width, window_width, width, count_left, count_right)
                gradient += dy[np.uint32((plane * out_height + p) * out_width + q)] / np.float32(rows * columns)
                q = np.int32(q + 1)
            p = np.int32(p + 1)
        dx[i] = gradient


@device
def part(i: int, size: int, parts: int) -> Pair:
    """First and last + 1 of the rows (columns) of part i, of `parts` that `size` rows (columns) are cut into."""
    first = np.uint32(i * size) // np.uint32(parts)
    return np.int32(first), np.int32(np.uint32((i + 1) * size + parts - 1) // np.uint32(parts))


@kernel(block=BLOCK)
def pool_to_forward(
    x: Floats, y: Floats, mean: int, total: int, height: int, width: int, out_height: int, out_width: int,
    by_out_height: int, by_out_width: int,
) -> None:  # fmt: skip
    """One thread an output: the mean or the largest value of its part of the map."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row, q = split(i, out_width, by_out_width)
        plane, p = split(row, out_height, by_out_height)
        top, bottom = part(p, height, out_height)
        left, right = part(q, width, out_width)
        sum_ = ZERO
        largest = -INFINITY
        for h in range(top, bottom):
            for w in range(left, right):
                value = x[np.uint32((plane * height + h) * width + w)]
                sum_ += value
                if value > largest or value != value:  # NaN wins, and then nothing is greater than it
                    largest = value
        if mean != 0:
            largest = sum_ / np.float32((bottom - top) * (right - left))
        y[i] = largest


@kernel(block=BLOCK)
def pool_to_backward(
    x: Floats, y: Floats, dy: Floats, dx: Floats, mean: int, total: int, height: int, width: int,
    out_height: int, out_width: int, by_height: int, by_width: int,
) -> None:  # fmt: skip
    """One thread an input: it gathers what the windows that hold it give."""
    i = np.uint32(cuda.grid(1))
    if i < total:
        row, w = split(i, width, by_width)
        plane, h = split(row, height, by_height)
        p_first, p_end = part(h, out_height, height)  # the windows over a row are to it as rows are to a window
        q_first, q_end = part(w, out_width, width)
        gradient = ZERO
        for p in range(p_first, p_end):
            top, bottom = part(p, height, out_height)
            for q in range(q_first, q_end):
                left, right = part(q, width, out_width)
                window = np.uint32((plane * out_height + p) * out_width + q)
                if mean != 0:
                    gradient += dy[window] / np.float32((bottom - top) * (right - left))
                elif x[i] == y[window]:
                    v = top
                    u = left
                    here = np.uint32((plane * height + v) * width + u)
                    while here != i and x[here] != y[window]:
                        u = np.int32(u + 1)
                        if u == right:
                            u = left
                            v = np.int32(v + 1)
                        here = np.uint32((plane * height + v) * width + u)
                    if here == i:
                        gradient += dy[window]
        dx[i] = gradient


def four_sides(pad: Pad) -> tuple[int, ...]:
    """Padding as (top, left, bottom, right)."""
    return (*pad, *pad) if len(pad) == 2 else tuple(pad)


def output_shape(
    x_shape: Sequence[int], *, window: Pair, stride: Pair, pad: Pad = (0, 0), ceil: bool = False
) -> tuple[int, int, int, int]:
    """The shape of y, or a `KernelError` that says what of the shape or the options cannot be."""
    if len(x_shape) != 4:
        raise KernelError(f"pool: x has shape {tuple(x_shape)}; give four axes: images, channels, height, width")
    for name, pair, least in (("window", window, 1), ("stride", stride, 1), ("pad", pad, 0)):
        if (len(pair) != 2 and (name, len(pair)) != ("pad", 4)) or min(pair) < least:
            raise KernelError(f"pool: {name} is {pair}; give two numbers of at least {least}, for rows and columns")
    out = []
    sides = four_sides(pad)
    for size, length, step, before, after in zip(x_shape[2:], window, stride, sides[:2], sides[2:], strict=True):
        if max(before, after) >= length:
            raise KernelError(f"pool: padding {pad} leaves windows of {window} without an element; it must be smaller")
        if size + before + after + length + step > LARGEST:
            raise KernelError(
                f"pool: {size} rows or columns, window {window}, stride {stride}, padding {pad}: too large"
            )
        room = size + before + after - length
        count = (ceil_div(room, step) if ceil else room // step) + 1
        if ceil and (count - 1) * step >= size + before:
            count -= 1
        if count < 1:
            raise KernelError(f"pool: a window of {window} does not fit in {tuple(x_shape[2:])} with padding {pad}")
        out.append(count)
    return int(x_shape[0]), int(x_shape[1]), out[0], out[1]


def check_mode(mode: str) -> None:
    if mode not in MODES:
        raise KernelError(f"pool: there is no mode {mode!r}; choose from {', '.join(MODES)}")


def forward(
    x: Any,
    y: Any,
    *,
    window: Pair,
    stride: Pair,
    pad: Pad = (0, 0),
    mode: str = "max",
    ceil: bool = False,
    count_padding: bool = True,
    stream: Any = None,
) -> None:
    """Fill y, of shape `output_shape(x.shape, …)`."""
    check_mode(mode)
    check("pool.forward", x=x, y=y)
    y_shape = output_shape(x.shape, window=window, stride=stride, pad=pad, ceil=ceil)
    check_shape("pool.forward", "y", y, y_shape)
    total, maps, out = math.prod(y_shape), x.shape[2:], y_shape[2:]
    by_out = reciprocal(out[0]), reciprocal(out[1])
    sizes = total, *maps, *out, *by_out, *window, *stride, *pad[:2]
    if mode == "max" and (square := by_map(place(x), window, stride)):
        launch(MAX_FORWARD_BY_MAP[square], math.prod(y_shape[:2]), x, y, *maps, *out, *pad[:2], stream=stream)
    elif mode == "max":
        launch(pool_max_forward, ceil_div(total, BLOCK), x, y, *sizes, stream=stream)
    else:
        border = four_sides(pad) if count_padding else (0, 0, 0, 0)
        launch(pool_average_forward, ceil_div(total, BLOCK), x, y, *sizes, *border, stream=stream)


def backward(
    x: Any,
    y: Any,
    dy: Any,
    dx: Any,
    *,
    window: Pair,
    stride: Pair,
    pad: Pad = (0, 0),
    mode: str = "max",
    ceil: bool = False,
    count_padding: bool = True,
    stream: Any = None,
) -> None:
    """Fill dx, the gradient of x.  The gradient of an average needs neither x nor y: they may be None."""
    check_mode(mode)
    check("pool.backward", dx=dx, x=x, y=y, dy=dy)
    y_shape = output_shape(dx.shape, window=window, stride=stride, pad=pad, ceil=ceil)
    check_shape("pool.backward", "x", x, dx.shape)
    check_shape("pool.backward", "y", y, y_shape)
    check_shape("pool.backward", "dy", dy, y_shape)
    planes, maps, out = dx.shape[0] * dx.shape[1], tuple(dx.shape[2:]), y_shape[2:]
    if mode == "max":
        if x is None or y is None:
            raise KernelError("pool.backward: the gradient of the largest value needs x and y; they are None")
        if square := by_map(place(x), window, stride):
            launch(MAX_BACKWARD_BY_MAP[square], planes, x, y, dy, dx, *maps, *out, *pad[:2], stream=stream)
            return
        rows, columns = (ceil_div(maps[axis] + pad[axis], stride[axis]) for axis in (0, 1))
        reach = ceil_div(window[0], stride[0]), ceil_div(window[1], stride[1])
        cells = planes * rows * columns
        if cells > LARGEST:
            raise KernelError(
                f"pool.backward: {cells} cells of {stride}, padding included; at most {LARGEST} can be indexed"
            )
        by_cells = reciprocal(rows), reciprocal(columns)
        sizes = cells, rows, columns, *by_cells, *maps, *out, *window, *stride, *pad[:2], *reach
        launch(pool_max_backward, ceil_div(cells, BLOCK), x, y, dy, dx, *sizes, stream=stream)
    else:
        total, by_maps = math.prod(dx.shape), (reciprocal(maps[0]), reciprocal(maps[1]))
        by_stride = reciprocal(stride[0]), reciprocal(stride[1])
        border = four_sides(pad) if count_padding else (0, 0, 0, 0)
        sizes = total, *maps, *by_maps, *out, *window, *stride, *by_stride, *pad[:2], *border
        launch(pool_average_backward, ceil_div(total, BLOCK), dy, dx, *sizes, stream=stream)


def forward_to(x: Any, y: Any, *, out: Pair, mode: str = "average", stream: Any = None) -> None:
    """Fill y, whose maps are of height and width `out`, with the pooling of x's maps to that size."""
    check_mode(mode)
    check("pool.forward_to", x=x, y=y)
    check_shape("pool.forward_to", "y", y, shape_to("pool.forward_to", x.shape, out))
    total, by_out = math.prod(y.shape), (reciprocal(out[0]), reciprocal(out[1]))
    sizes = int(mode == "average"), total, *x.shape[2:], *out, *by_out
    launch(pool_to_forward, ceil_div(total, BLOCK), x, y, *sizes, stream=stream)


def backward_to(x: Any, y: Any, dy: Any, dx: Any, *, out: Pair, mode: str = "average", stream: Any = None) -> None:
    """Fill dx, the gradient of x by `forward_to`.  The gradient of an average needs neither x nor y."""
    check_mode(mode)
    check("pool.backward_to", dx=dx, x=x, y=y, dy=dy)
    y_shape = shape_to("pool.backward_to", dx.shape, out)
    check_shape("pool.backward_to", "x", x, dx.shape)
    check_shape("pool.backward_to", "y", y, y_shape)
    check_shape("pool.backward_to", "dy", dy, y_shape)
    if mode == "average":
        x = y = dy  # a kernel cannot be given None; these are not read
    elif x is None or y is None:
        raise KernelError("pool.backward_to: the gradient of the largest value needs x and y; they are None")
    maps = tuple(dx.shape[2:])
    sizes = int(mode == "average"), math.prod(dx.shape), *maps, *out, reciprocal(maps[0]), reciprocal(maps[1])
    launch(pool_to_backward, ceil_div(math.prod(dx.shape), BLOCK), x, y, dy, dx, *sizes, stream=stream)


def shape_to(where: str, x_shape: Sequence[int], out: Pair) -> tuple[int, ...]:
    """The shape of maps pooled to the size `out`."""
    if len(x_shape) != 4 or len(out) != 2 or min(out) < 1:
        raise KernelError(
            f"{where}: maps of shape {tuple(x_shape)} cannot be pooled to {out}; give a height and a width"
        )
    if max((size + 1) * (parts + 1) for size, parts in zip(x_shape[2:], out, strict=True)) > LARGEST:
        raise KernelError(f"{where}: {tuple(x_shape[2:])} pooled to {out}: too large")
    return *x_shape[:2], *out
