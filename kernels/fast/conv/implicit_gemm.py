"""Convolution as a matrix product whose second matrix is never stored ("implicit" GEMM), with tiles kept in registers.

    pass             product, rows × columns           summed over              second matrix, gathered while loading
    forward          y  = filters × (n·p·q) positions  c·r·s                    the x that a position's filter covers
    backward_data    dx = channels × (n·h·w) positions k·r·s                    the dy whose filters cover a position
    backward_filter  dw = filters × (c·r·s) weights    n·p·q                    the x that a weight was multiplied by

A block computes a tile of 64 or 128 rows × 128 columns, a thread 8×8 of it, in registers.  It walks along the sum in
stretches of 8 steps: all threads together bring 8 × rows numbers of the one matrix and 8 × 128 of the other into shared
memory and wait; then each multiplies its part, 64 multiply-adds for 16 numbers read.  So a number that was brought from
memory once is used 128 times (first matrix), or 64 or 128 times (second).

Launch: blocks of 128 or 256 threads; x counts tiles of 128 columns, y tiles of rows, z slices of the sum.
Operations: 2·n·k·p·q·c·r·s a pass.
Bytes: the first matrix 4·rows·terms times the tiles of columns, the second 4·columns·terms times the tiles of rows,
most of both from the caches (neighbouring taps read the same x again); results 4 bytes each, once.

Two ways to walk the sum in forward and backward_data, chosen from the shape alone:
    by tap     for every 8 channels, tap by tap: all 8 steps of a stretch have one tap, so a thread finds out once
               whether it is inside the map, and the next tap reads nearly the same numbers again, from the cache.
    by table   channels and taps in one row, what each means in a small table in shared memory.  More instructions,
               but no idle steps where there are fewer channels than a stretch is long (first layers).

Groups are products of their own, side by side in the grid: a block computes a tile of one group.  They are walked by
table, and so is a dilation that differs from axis to axis.  A tile has 64 rows, of which a group of few filters fills
but a few: a depthwise convolution, one row of 64.

backward_filter has few tiles and a very long sum, so the sum is cut into slices (`slices`: from the shape alone).
Their partial results go into the workspace, and a second kernel adds them in ascending order.  Without a workspace the
same kernel goes through the slices one after another and adds each to dw: the same additions in the same order, hence
the same bits, but only as many blocks as there are tiles.  Fewer than a CPU has cores are tiles of 32 rows there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from kernels.checks.arguments import place as place_of
from kernels.checks.conv_shape import ConvShape
from kernels.fast.division import divide, reciprocal
from kernels.targets.cpu.threads import thread_count
from kernels.targets.launch import Floats, Ints, Kernel, ceil_div, device, kernel, launch
from kernels.targets.shim import cuda

SUMMARY = "matrix product with gathered columns in register tiles; no workspace needed, backward_filter faster with one"
WORKSPACE_OPTIONAL = True

COLUMNS = 128  #: columns of a tile
DEPTH = 8  #: steps of the sum in shared memory at a time
PITCH = COLUMNS + 4  #: one step's columns in shared memory; the 4 spread neighbouring steps over the memory banks
HALF = COLUMNS // 2
ACROSS = COLUMNS // 8  #: threads side by side in a tile
OUTSIDE = 1 << 30  #: a row that is in no map
ZERO = np.float32(0)
MOST_GROUPS = 65535  #: a grid's z dimension

FEW_TILES = 512  #: with fewer blocks of 128 rows than this, blocks of 64 fill a GPU more evenly
BLOCKS = 1024  #: backward_filter: about this many blocks in all
SHORTEST_SLICE = 256  #: backward_filter: terms of a sum not worth cutting further


def tile_product(rows: int) -> Any:
    """The helper that all kernels here spend their time in, for tiles of `rows` rows."""
    half = rows // 2
    pitch = rows + 4
    size = DEPTH * PITCH

    @device
    def multiply(left: Floats, right: Floats, row: int, column: int, a: Floats, b: Floats, acc: Floats) -> None:
        """acc += left tile × right tile, for this thread's rows (4 from `row` on, 4 from `half + row` on) and columns.

        Runs of four numbers become 128-bit loads.  Running uint32 offsets, and no loop counter beside them, leave 10
        instructions beside the 64 multiply-adds.
        """
        at_row = row
        at_column = column
        while at_column < np.uint32(size):
            for i in range(4):
                a[i] = left[at_row + i]
                a[i + 4] = left[at_row + i + half]
            for j in range(4):
                b[j] = right[at_column + j]
                b[j + 4] = right[at_column + j + HALF]
            for i in range(8):
                for j in range(8):
                    acc[i, j] += a[i] * b[j]
            at_row = np.uint32(at_row + pitch)
            at_column = np.uint32(at_column + PITCH)

    return multiply


def tile_ends(rows: int) -> tuple[Any, Any]:
    """The helpers with which the two gathering kernels begin and end, for tiles of `rows` rows."""
    half = rows // 2

    @device
    def start(bias: Floats, with_bias: int, first_filter: int, filters: int, bias_first: int, acc: Floats) -> None:
        """The sums start from the bias."""
        for i in range(8):
            k = first_filter + i % 4 + i // 4 * half
            value = ZERO
            if with_bias != 0 and k < filters:
                value = bias[np.uint32(bias_first + k)]
            for j in range(8):
                acc[i, j] = value

    @device
    def store(
        acc: Floats, out: Floats, first_filter: int, first_position: int, positions: int, filters: int, maps: int,
        area: int, columns_out: int, out_first: int, out_row: int, out_column: int, out_area: int,
    ) -> None:  # fmt: skip
        """This thread's 8×8 results go where they belong; those of a tile that sticks out are dropped."""
        for j in range(8):
            position = first_position + j % 4 + j // 4 * HALF
            if position < positions and first_filter < filters:
                n = np.int64(np.uint32(position) // np.uint32(area))
                place = np.uint32(np.uint32(position) % np.uint32(area))
                down = np.int64(place // np.uint32(columns_out))
                across = np.int64(place % np.uint32(columns_out))
                at = out_first + (n * maps + first_filter) * out_area + down * out_row + across * out_column
                for i in range(4):
                    if first_filter + i < filters:
                        out[np.uint32(at + i * out_area)] = acc[i, j]
                for i in range(4):
                    if first_filter + i + half < filters:
                        out[np.uint32(at + (i + half) * out_area)] = acc[i + 4, j]

    return start, store


def gather_by_tap(rows: int) -> Kernel:
    """Forward, and one phase of backward_data: for every 8 channels, tap by tap.

    `gather_by_table` has the same parameters:

    parameter                 forward                         backward_data, one phase (see `phases`)
    source                    x                               dy
    weights, out              w, y                            w, dx
    channels, height, width   of x                            of dy: k, p, q
    filters                   k                               c
    rows_out, columns_out     p, q                            positions of the phase
    source_row, ..._column    -pad                            output position read by the phase's first input at tap 0
    row_step, column_step     stride                          1
    taps_h, taps_w            r, s                            taps that meet the phase
    lead_h, lead_w            +1: taps lead on (dilation)     -1: taps lead back
    weight_first              0                               first tap of the phase
    weight_row, ..._column    s, 1                            stride_h·s, stride_w
    weight_filter             c·r·s                           r·s
    weight_channel            r·s                             c·r·s
    weight_group              k·c·r·s                         k·c·r·s
    out_first                 0                               first input of the phase
    out_row, out_column       q, 1                            stride_h·w, stride_w
    out_area                  p·q                             h·w

    Of these only `gather_by_table` in groups looks at weight_group, and at lead_w where it is not lead_h; channels and
    filters are those of a group.
    """
    threads = rows * COLUMNS // 64
    pitch = rows + 4
    left_size = DEPTH * pitch
    right_size = DEPTH * PITCH
    left_loads = rows * DEPTH // threads  # numbers that each thread brings into shared memory
    right_loads = COLUMNS * DEPTH // threads
    left_rows = threads // DEPTH
    right_steps = threads // COLUMNS
    multiply, (start, store) = tile_product(rows), tile_ends(rows)

    # At most 128 registers a thread: 512 threads fit on a multiprocessor.
    @kernel(block=threads, name=f"conv_gather_by_tap_{rows}", launch_bounds=(threads, 512 // threads))
    def gather(
        source: Floats, weights: Floats, bias: Floats, out: Floats, with_bias: int,
        images: int, channels: int, height: int, width: int, filters: int, rows_out: int, columns_out: int,
        source_row: int, source_column: int, row_step: int, column_step: int, taps_h: int, taps_w: int,
        lead_h: int, lead_w: int, weight_first: int, weight_row: int, weight_column: int, weight_filter: int,
        weight_channel: int, weight_group: int, out_first: int, out_row: int, out_column: int,
        out_area: int,
    ) -> None:  # fmt: skip
        """A tile of outputs a block, 8×8 a thread: the sum tap by tap, 8 channels at a time."""
        left = cuda.shared.array(left_size, np.float32, 16)
        right = cuda.shared.array(right_size, np.float32, 16)
        acc = cuda.local.array((8, 8), np.float32)
        a = cuda.local.array(8, np.float32)
        b = cuda.local.array(8, np.float32)
        weight_at = cuda.local.array(left_loads, np.uint64)
        t = np.uint32(cuda.threadIdx.x)
        first_filter = np.uint32(cuda.blockIdx.y) * rows
        first_position = np.uint32(cuda.blockIdx.x) * COLUMNS
        row = np.uint32(t // ACROSS * 4)
        column = np.uint32(t % ACROSS * 4)

        # What this thread loads: the weights of step `load_step` of every left_rows-th filter, and every right_steps-th
        # channel of position `load_column`.  In place of a filter beyond the last it loads the last again; the results
        # are dropped.  Offsets are uint64: they need no handling of negative indices and no mask.  An offset outside
        # of the map may have wrapped around; then it is not read.
        load_row = t // DEPTH
        load_step = t % DEPTH
        load_column = t % COLUMNS
        load_channel = t // COLUMNS
        area = rows_out * columns_out
        position = np.uint32(min(first_position + load_column, images * area - 1))
        image = np.int64(position // np.uint32(area))
        place = np.uint32(position % np.uint32(area))
        y = np.int64(place // np.uint32(columns_out))
        x = np.int64(place % np.uint32(columns_out))
        y = source_row + y * row_step
        x = source_column + x * column_step
        here = ((image * channels + load_channel) * height + y) * width + x
        channel_area = height * width
        for i in range(left_loads):
            k = min(first_filter + load_row + i * left_rows, filters - 1)
            weight_at[i] = np.uint64(k * weight_filter + load_step * weight_channel + weight_first)
        start(bias, with_bias, first_filter + row, filters, 0, acc)

        done = 0
        while done < channels:
            for tap_row in range(taps_h):
                for tap_column in range(taps_w):
                    tap = np.uint64(tap_row * weight_row + tap_column * weight_column)
                    remaining = np.int32(channels - done)
                    for i in range(left_loads):
                        value = ZERO
                        if np.int32(load_step) < remaining:
                            value = weights[weight_at[i] + tap]
                        left[load_step * pitch + load_row + i * left_rows] = value
                    v = np.uint32(y + lead_h * tap_row)
                    u = np.uint32(x + lead_h * tap_column)
                    if (v >= np.uint32(height)) | (u >= np.uint32(width)):
                        remaining = np.int32(0)  # this tap is outside the map
                    source_at = np.uint64(here + lead_h * (tap_row * width + tap_column))
                    for j in range(right_loads):
                        value = ZERO
                        if np.int32(load_channel + j * right_steps) < remaining:
                            value = source[source_at]
                        right[(load_channel + j * right_steps) * PITCH + load_column] = value
                        source_at += np.uint64(right_steps * channel_area)
                    cuda.syncthreads()
                    if first_filter + row < filters:
                        multiply(left, right, row, column, a, b, acc)
                    cuda.syncthreads()
            for i in range(left_loads):
                weight_at[i] += np.uint64(DEPTH * weight_channel)
            here += DEPTH * channel_area
            done += DEPTH

        store(
            acc, out, first_filter + row, first_position + column, images * area, filters, filters, area, columns_out,
            out_first, out_row, out_column, out_area,
        )  # fmt: skip

    return gather


def gather_by_table(rows: int, in_groups: bool = False) -> Kernel:
    """The same as `gather_by_tap`, parameter for parameter, with the sum's (channel, tap row, tap column) in one row.

    Before each stretch of 8 steps the first 8 threads write down what each step means, in four numbers: how far its
    source element is from that of step 0, how many rows and columns it is away, and the index of its weight.

    In groups, block (i, j, z) computes tile (i, j) of group z; otherwise there is one group, and the compiler leaves
    out what the groups take.
    """
    threads = rows * COLUMNS // 64
    pitch = rows + 4
    left_size = DEPTH * pitch
    right_size = DEPTH * PITCH
    left_loads = rows * DEPTH // threads
    right_loads = COLUMNS * DEPTH // threads
    left_rows = threads // DEPTH
    right_steps = threads // COLUMNS
    multiply, (start, store) = tile_product(rows), tile_ends(rows)

    @device
    def describe(
        table: Ints, step: int, steps: int, t: int, height: int, width: int, taps_h: int, taps_w: int, lead_h: int,
        lead_w: int, weight_first: int, weight_row: int, weight_column: int, weight_channel: int,
    ) -> None:  # fmt: skip
        """Thread t writes line t of the table; a step beyond the last is so far away that it is outside of any map."""
        rest = np.uint32(step) // np.uint32(taps_w)
        tap_column = np.int64(np.uint32(step) % np.uint32(taps_w))
        tap_row = np.int64(rest % np.uint32(taps_h))
        channel = np.int64(rest // np.uint32(taps_h))
        down = lead_h * tap_row
        across = (lead_w if in_groups else lead_h) * tap_column
        table[t, 0] = np.int32((channel * height + down) * width + across)
        table[t, 1] = np.int32(down if step < steps else OUTSIDE)
        table[t, 2] = np.int32(across)
        table[t, 3] = np.int32(
            weight_first + channel * weight_channel + tap_row * weight_row + tap_column * weight_column
        )

    kind = "in_groups" if in_groups else "by_table"

    @kernel(block=threads, name=f"conv_gather_{kind}_{rows}", launch_bounds=(threads, 512 // threads))
    def gather(
        source: Floats, weights: Floats, bias: Floats, out: Floats, with_bias: int,
        images: int, channels: int, height: int, width: int, filters: int, rows_out: int, columns_out: int,
        source_row: int, source_column: int, row_step: int, column_step: int, taps_h: int, taps_w: int,
        lead_h: int, lead_w: int, weight_first: int, weight_row: int, weight_column: int, weight_filter: int,
        weight_channel: int, weight_group: int, out_first: int, out_row: int, out_column: int,
        out_area: int,
    ) -> None:  # fmt: skip
        """A tile of outputs a block, 8×8 a thread: the sum over channels and taps in one row, by a table."""
        left = cuda.shared.array(left_size, np.float32, 16)
        right = cuda.shared.array(right_size, np.float32, 16)
        table = cuda.shared.array((DEPTH, 4), np.int32, 16)
        acc = cuda.local.array((8, 8), np.float32)
        a = cuda.local.array(8, np.float32)
        b = cuda.local.array(8, np.float32)
        t = np.uint32(cuda.threadIdx.x)
        first_filter = np.uint32(cuda.blockIdx.y) * rows
        first_position = np.uint32(cuda.blockIdx.x) * COLUMNS
        row = np.uint32(t // ACROSS * 4)
        column = np.uint32(t % ACROSS * 4)

        load_row = t // DEPTH
        load_step = t % DEPTH
        load_column = t % COLUMNS
        first_step = t // COLUMNS
        area = rows_out * columns_out
        position = np.uint32(min(first_position + load_column, images * area - 1))
        image = np.int64(position // np.uint32(area))
        place = np.uint32(position % np.uint32(area))
        y = np.int64(place // np.uint32(columns_out))
        x = np.int64(place % np.uint32(columns_out))
        y = source_row + y * row_step
        x = source_column + x * column_step
        group = np.int64(cuda.blockIdx.z) if in_groups else 0
        groups = np.int64(cuda.gridDim.z) if in_groups else 1
        here = ((image * groups + group) * channels * height + y) * width + x
        first_weight = weight_first + group * weight_group
        steps = channels * taps_h * taps_w
        start(bias, with_bias, first_filter + row, filters, group * filters, acc)

        if t < DEPTH and steps > 0:
            describe(table, np.int64(t), steps, t, height, width, taps_h, taps_w, lead_h, lead_w,
                     first_weight, weight_row, weight_column, weight_channel)  # fmt: skip
        cuda.syncthreads()
        step = 0
        while step < steps:
            for i in range(left_loads):
                k = min(first_filter + load_row + i * left_rows, filters - 1)
                value = ZERO
                if step + load_step < steps:
                    value = weights[np.uint32(k * weight_filter + table[load_step, 3])]
                left[load_step * pitch + load_row + i * left_rows] = value
            for j in range(right_loads):
                e = first_step + j * right_steps
                value = ZERO
                if (np.uint32(y + table[e, 1]) < np.uint32(height)) & (np.uint32(x + table[e, 2]) < np.uint32(width)):
                    value = source[np.uint32(here + table[e, 0])]
                right[e * PITCH + load_column] = value
            step += DEPTH
            cuda.syncthreads()  # the tiles are complete, and the table has been read
            if t < DEPTH:
                describe(table, step + t, steps, t, height, width, taps_h, taps_w, lead_h, lead_w,
                         first_weight, weight_row, weight_column, weight_channel)  # fmt: skip
            if first_filter + row < filters:
                multiply(left, right, row, column, a, b, acc)
            cuda.syncthreads()

        store(
            acc, out, first_filter + row, first_position + column, images * area, filters, filters * groups, area,
            columns_out, out_first + group * filters * out_area, out_row, out_column, out_area,
        )  # fmt: skip

    return gather


def filter_gradient(rows: int, in_groups: bool = False) -> Kernel:
    """A tile of dw, filters × weights (c·r·s), summed over one slice of the positions (n·p·q) after another.

    Block (i, j, z) takes columns i and rows j of tiles, and the slices from z·slices_a_block on.  Its first slice's sum
    is written to `out` (dw, or partial result z in the workspace), the sums of the others are added to that.

    In groups, z counts the groups of every slice; channels and filters are those of a group.
    """
    threads = rows * COLUMNS // 64
    half = rows // 2
    pitch = rows + 4
    left_size = DEPTH * pitch
    right_size = DEPTH * PITCH
    left_loads = rows * DEPTH // threads
    right_loads = COLUMNS * DEPTH // threads
    spread = threads // DEPTH
    turns = ceil_div(COLUMNS, threads)
    multiply = tile_product(rows)

    kind = "filter_gradient_in_groups" if in_groups else "filter_gradient"

    @kernel(block=threads, name=f"conv_{kind}_{rows}", launch_bounds=(threads, 512 // threads))
    def gradient(
        x: Floats, dy: Floats, out: Floats, images: int, channels: int, height: int, width: int, filters: int,
        filter_height: int, filter_width: int, out_height: int, out_width: int, stride_h: int, stride_w: int,
        pad_h: int, pad_w: int, slice_length: int, slices_a_block: int, by_area: int, by_width: int,
        groups: int, dilation_h: int, dilation_w: int,
    ) -> None:  # fmt: skip
        """A tile of weights and a slice of the positions a block, 8×8 weights a thread."""
        left = cuda.shared.array(left_size, np.float32, 16)
        right = cuda.shared.array(right_size, np.float32, 16)
        table = cuda.shared.array((COLUMNS, 4), np.int32, 16)
        acc = cuda.local.array((8, 8), np.float32)
        a = cuda.local.array(8, np.float32)
        b = cuda.local.array(8, np.float32)
        t = np.uint32(cuda.threadIdx.x)
        first_filter = np.uint32(cuda.blockIdx.y) * rows
        first_weight = np.uint32(cuda.blockIdx.x) * COLUMNS
        row = np.uint32(t // ACROSS * 4)
        column = np.uint32(t % ACROSS * 4)
        load_row = t // DEPTH
        load_step = t % DEPTH
        area = out_height * out_width
        weights = channels * filter_height * filter_width
        positions = images * area

        # What each column of the tile means: how far its x is from the position's corner, and its row and column.  A
        # column beyond the last weight is so far away that it is outside of any map.
        for i in range(turns):
            e = t + i * threads
            if e < COLUMNS:
                weight = np.uint32(first_weight + e)
                rest = weight // np.uint32(filter_width)
                s = np.int64(weight % np.uint32(filter_width)) * (dilation_w if in_groups else 1) - pad_w
                r = np.int64(rest % np.uint32(filter_height)) * (dilation_h if in_groups else 1) - pad_h
                c = np.int64(rest // np.uint32(filter_height))
                table[e, 0] = np.int32((c * height + r) * width + s)
                table[e, 1] = np.int32(r if weight < weights else OUTSIDE)
                table[e, 2] = np.int32(s)
        cuda.syncthreads()

        part = np.int64(cuda.blockIdx.z)  # number of the partial result: slice and group
        group = part % groups if in_groups else 0
        maps = groups if in_groups else 1
        first_slice = (part // groups if in_groups else part) * slices_a_block
        done = 0
        while done < slices_a_block:
            for i in range(8):
                for j in range(8):
                    acc[i, j] = ZERO
            first = (first_slice + done) * slice_length
            last = min(first + slice_length, positions)
            while first < last:
                m = first + load_step
                inside = m < last
                n = np.int64(divide(m, by_area))
                place = m - n * area
                p = np.int64(divide(place, by_width))
                v = p * stride_h
                u = (place - p * out_width) * stride_w
                dy_at = (n * maps + group) * filters * area + place
                x_at = ((n * maps + group) * channels * height + v) * width + u
                for i in range(left_loads):
                    k = min(first_filter + load_row + i * spread, filters - 1)
                    value = ZERO
                    if inside:
                        value = dy[np.uint32(dy_at + k * area)]
                    left[load_step * pitch + load_row + i * spread] = value
                for j in range(right_loads):
                    e = load_row + j * spread
                    value = ZERO
                    row_inside = np.uint32(v + table[e, 1]) < np.uint32(height)
                    if inside & row_inside & (np.uint32(u + table[e, 2]) < np.uint32(width)):
                        value = x[np.uint32(x_at + table[e, 0])]
                    right[load_step * PITCH + e] = value
                first += DEPTH
                cuda.syncthreads()
                if first_filter + row < filters and first_weight + column < weights:
                    multiply(left, right, row, column, a, b, acc)
                cuda.syncthreads()

            for i in range(8):
                k = first_filter + row + i % 4 + i // 4 * half
                for j in range(8):
                    e = first_weight + column + j % 4 + j // 4 * HALF
                    if k < filters and e < weights:
                        at = np.uint32((part * filters + k) * weights + e)
                        if done == 0:
                            out[at] = acc[i, j]
                        else:
                            out[at] += acc[i, j]
            done += 1

    return gradient


@kernel(block=256)
def conv_sum_partials(partials: Floats, dw: Floats, count: int, slices: int) -> None:
    """dw = the partial results, one thread a weight, added in ascending order."""
    i = cuda.grid(1)
    if i < count:
        value = partials[np.uint32(i)]
        for z in range(1, slices):
            value += partials[np.uint32(i + z * count)]
        dw[np.uint32(i)] = value


BY_TAP = {rows: gather_by_tap(rows) for rows in (64, 128)}
BY_TABLE_ROWS = 64
BY_TABLE = gather_by_table(BY_TABLE_ROWS)
IN_GROUPS = gather_by_table(BY_TABLE_ROWS, in_groups=True)
FILTER_GRADIENT = {rows: filter_gradient(rows) for rows in (32, 64, 128)}
FILTER_GRADIENT_IN_GROUPS = filter_gradient(BY_TABLE_ROWS, in_groups=True)


@dataclass(frozen=True)
class Phase:
    """The inputs of one axis that share their taps: those at first, first + stride, first + 2·stride, …

    With stride 2 an input at an even place (padding counted) is met by the filter's even taps alone, one at an odd
    place by the odd ones.  Within a phase backward_data is a plain correlation, and nothing is multiplied by zero.
    Where stride and dilation have a common divisor, as 2 and 2, some phases are met by no tap.
    """

    first: int  #: the first input of the phase
    count: int  #: inputs in it
    source: int  #: the output that the first input reads at the first tap
    tap: int  #: the first tap
    taps: int  #: taps that meet the phase; none where the stride is larger than the filter: a gradient of zero
    step: int  #: from one of these taps to the next
    lead: int  #: outputs from the one that a tap reads to the one that the next reads: before it, so below 0


def phases(size: int, filter_size: int, stride: int, pad: int, dilation: int = 1) -> Iterator[Phase]:
    """The phases of one axis.

    Tap r of input h reads output (h + pad - r·dilation) / stride, so r·dilation ≡ h + pad (mod stride).
    """
    common = gcd(stride, dilation)
    step, lead = stride // common, -dilation // common
    for rest in range(stride):
        first = (rest - pad) % stride
        if first < size:
            meeting = (tap for tap in range(min(step, filter_size)) if (tap * dilation - rest) % stride == 0)
            tap = next(meeting, filter_size)
            taps = ceil_div(filter_size - tap, step)
            source = (first + pad - tap * dilation) // stride if taps else 0
            yield Phase(first, ceil_div(size - first, stride), source, tap if taps else 0, taps, step, lead)


def tile_rows(results: int, columns: int) -> int:
    """Rows of a tile: 64 where 128 would compute more for nothing, or would leave too few tiles to share out."""
    wide = ceil_div(results, 128)
    return 64 if ceil_div(results, 64) < 2 * wide or wide * ceil_div(columns, COLUMNS) < FEW_TILES else 128


def _plan(
    filters: int, channels: int, positions: int, groups: int, lead: tuple[int, int]
) -> tuple[Kernel, tuple[int, int, int]]:
    """Which gathering kernel, and its grid: by table where over a fifth of the steps would be idle otherwise.

    `filters` and `channels` are those of a group.
    """
    in_groups = groups > 1 or lead[0] != lead[1]
    by_table = in_groups or 4 * ceil_div(channels, DEPTH) * DEPTH > 5 * channels
    rows = BY_TABLE_ROWS if by_table else tile_rows(filters, positions)
    run = IN_GROUPS if in_groups else BY_TABLE if by_table else BY_TAP[rows]
    return run, (ceil_div(positions, COLUMNS), ceil_div(filters, rows), groups)


def gradient_rows(shape: ConvShape) -> int:
    """Rows of backward_filter's tiles."""
    return tile_rows(shape.filters, prod(shape.w_shape[1:])) if shape.plain else BY_TABLE_ROWS


def rows_on_cpu(rows: int, filters: int, blocks: int, cores: int) -> int:
    """Rows of backward_filter's tiles on a CPU: 32 where half a tile of 64 would be empty, or a core would be idle.

    An element is the same sum in a tile of any size, so the choice changes no bit.

    Args:
        rows: of a tile on a GPU.
        filters: the rows to share out.
        blocks: in each row of tiles.
        cores: that the blocks are shared among.
    """
    half_empty = rows == 64 and -filters % 64 >= 32
    return 32 if half_empty or ceil_div(filters, 32) * blocks <= cores else rows


def slices(shape: ConvShape) -> tuple[int, int]:
    """backward_filter's sum: how many slices, and how many terms in each (the last may have fewer)."""
    terms = shape.images * shape.out_height * shape.out_width
    weights = prod(shape.w_shape[1:])
    rows = gradient_rows(shape)
    tiles = shape.groups * ceil_div(shape.group_filters, rows) * ceil_div(weights, COLUMNS)
    count = max(1, min(BLOCKS // tiles, terms // SHORTEST_SLICE))
    length = ceil_div(ceil_div(terms, count), DEPTH) * DEPTH
    return ceil_div(terms, length), length


def why_not(pass_: str, shape: ConvShape) -> str | None:
    if shape.groups > MOST_GROUPS:
        return f"it takes at most {MOST_GROUPS} groups, these are {shape.groups}"
    return None


def workspace_bytes(pass_: str, shape: ConvShape, images: int | None = None) -> int:
    """Bytes of backward_filter's partial results.  They do not depend on `images`."""
    count = slices(shape)[0] if pass_ == "backward_filter" else 1
    return 4 * count * prod(shape.w_shape) if count > 1 else 0


def forward(shape: ConvShape, x: Any, w: Any, b: Any, y: Any, workspace: Any, stream: Any) -> None:
    taps = shape.filter_height * shape.filter_width
    area = shape.out_height * shape.out_width
    depth, filters = shape.group_channels, shape.group_filters
    run, grid = _plan(filters, depth, shape.images * area, shape.groups, shape.dilation)
    bias = w if b is None else b  # a kernel cannot be given None; with_bias says that it is not read
    launch(
        run, grid, x, w, bias, y, int(b is not None),
        shape.images, depth, shape.height, shape.width, filters, shape.out_height, shape.out_width,
        -shape.pad[0], -shape.pad[1], *shape.stride, shape.filter_height, shape.filter_width, *shape.dilation,
        0, shape.filter_width, 1, depth * taps, taps, filters * depth * taps,
        0, shape.out_width, 1, area, stream=stream,
    )  # fmt: skip


def backward_data(shape: ConvShape, dy: Any, w: Any, dx: Any, workspace: Any, stream: Any) -> None:
    taps = shape.filter_height * shape.filter_width
    (stride_h, stride_w), (pad_h, pad_w), (apart_h, apart_w) = shape.stride, shape.pad, shape.dilation
    depth, filters = shape.group_channels, shape.group_filters
    for v in phases(shape.height, shape.filter_height, stride_h, pad_h, apart_h):
        for u in phases(shape.width, shape.filter_width, stride_w, pad_w, apart_w):
            positions = shape.images * v.count * u.count
            run, grid = _plan(depth, filters, positions, shape.groups, (v.lead, u.lead))
            launch(
                run, grid, dy, w, w, dx, 0,
                shape.images, filters, shape.out_height, shape.out_width, depth, v.count, u.count,
                v.source, u.source, 1, 1, v.taps, u.taps, v.lead, u.lead,
                v.tap * shape.filter_width + u.tap, v.step * shape.filter_width, u.step,
                taps, depth * taps, filters * depth * taps,
                v.first * shape.width + u.first, stride_h * shape.width, stride_w, shape.height * shape.width,
                stream=stream,
            )  # fmt: skip


def backward_filter(shape: ConvShape, x: Any, dy: Any, dw: Any, workspace: Any, stream: Any) -> None:
    count, length = slices(shape)
    weights = prod(shape.w_shape[1:])
    rows, across = gradient_rows(shape), ceil_div(weights, COLUMNS)
    split = workspace is not None and count > 1
    parts = shape.groups * (count if split else 1)
    if shape.plain and place_of(x) == "cpu":
        rows = rows_on_cpu(rows, shape.filters, across * parts, thread_count())
    run = FILTER_GRADIENT[rows] if shape.plain else FILTER_GRADIENT_IN_GROUPS
    grid = across, ceil_div(shape.group_filters, rows), parts
    launch(
        run, grid, x, dy, workspace if split else dw,
        shape.images, shape.group_channels, shape.height, shape.width, shape.group_filters,
        shape.filter_height, shape.filter_width, shape.out_height, shape.out_width, *shape.stride, *shape.pad,
        length, 1 if split else count, reciprocal(shape.out_height * shape.out_width), reciprocal(shape.out_width),
        shape.groups, *shape.dilation, stream=stream,
    )  # fmt: skip
    if split:
        size = prod(shape.w_shape)
        launch(conv_sum_partials, ceil_div(size, 256), workspace, dw, size, count, stream=stream)
