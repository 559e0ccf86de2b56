"""The rung after `direct`, for a CPU: straight from the formula, with the sums in vector registers.

    forward          a thread has 8 filters at 32 positions         y[n, k, p, q] sums over c, r, s, ascending
    backward_data    the same: dy in the place of x, and the filters turned by 180°; sums over k, r, s
    backward_filter  a thread has one row of 8 filters' taps        dw[k, c, r, s] sums over the positions

What has changed since `direct`: a map is first laid out *flat*, row after row, with the padding between
two rows once.  A step to the right or down is then the same distance in memory for all positions at once, ends of rows
included:

    y[f] = sum over c, r, s of  w[c, r, s] * flat[c, f + r·pitch + s]      f = p·pitch + q,  pitch = width + padding

So neighbouring positions are the lanes of a vector register, whatever the map's width; what is computed between two
rows is thrown away (3 % of a map of 32 columns under a 3×3 filter).  `implicit_gemm` has tiles of 32 or 64 filters,
which few filters leave nearly empty; here 8 filters are enough.

**Stride.** Every other row and column of a map (under stride 2) is a map of its own, a *phase*; so is every other tap
of a filter.  In a phase the stride is 1.  Forward sums up the phases of x one after another, the filter pass does each
by itself, and backward data finds the phases of dx, each from dy and every other tap, and puts them in their places.

**Order of summation.** Forward and backward data: one accumulator, over phases, channels (filters), taps, ascending.
Backward filter: some images are a slice, and in it every lane sums up its own positions; then the upper half of the
lanes is added to the lower half, until one is left; then the slices, ascending.  The order follows from the shape and
from how many lanes the processor's registers have.

**Groups.** In memory the maps of n images with g groups are the maps of n·g images: image i of them is seen by the
filters of group i modulo g.  The 8 filters of a thread, a *bundle*, are of one group.  A depthwise filter is a bundle
by itself, at 64 positions.

**Workspace** for i images at a time, in floats: the flat maps of x (of dy), and the filters as the kernels read them;
for the filter pass x and dy of whole slices, flat, and one dw a slice.

**Launch.** Blocks of 8 threads; to lay out, a thread has some rows of a map or some channels of a bundle.  For the CPU:
a GPU runs them too, but slowly, its threads reading 128 bytes each far apart.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from kernels.checks.arguments import LARGEST, flat, place
from kernels.checks.conv_shape import ConvShape, Pair
from kernels.fast.conv.im2col import add_partials
from kernels.fast.conv.winograd import split
from kernels.targets import cpu
from kernels.targets.launch import Floats, Kernel, ceil_div, kernel, launch
from kernels.targets.shim import cuda

SUMMARY = "straight from the formula, the sums in a CPU's vector registers"
CPU_ONLY = True  #: nothing chooses it for a GPU
THREADS = 8
FILTERS, POSITIONS = 8, 32  #: multiples of these are laid out
DEPTHWISE_POSITIONS = 64
SLICE_POSITIONS, SLICE_IMAGES = 4096, 32  #: of a slice of the filter pass, about and at most
CACHED = 1 << 16  #: floats of the flat maps that all filters read before the next: they stay in a core's cache
ROWS, CHANNELS = 32, 16  #: of a map, and of the filters, that a thread lays out
ZERO = np.float32(0)


# -- laid out ----------------------------------------------------------------------------------------------------------


@kernel(block=THREADS)
def conv_vector_lay_out(
    x: Floats, flat_x: Floats, total: int, stretches: int, height: int, width: int, padded_height: int, pitch: int,
    top: int, left: int, stride_h: int, stride_w: int, phases: int, across: int, area: int,
) -> None:  # fmt: skip
    """Some rows of a phase of a map with its padding, and zeros after the last one; negative padding leaves out rows or
    columns."""
    i = cuda.grid(1)
    if i < total:
        m, stretch = split(i, stretches)
        map_, phase = split(m, phases)
        a, b = split(phase, across)
        begin = min(pitch, max(left - b + stride_w - 1, 0) // stride_w)
        end = max(begin, min((left - b + width + stride_w - 1) // stride_w, pitch))
        last = min((stretch + 1) * ROWS, padded_height)
        for row in range(stretch * ROWS, last):
            h = row * stride_h + a - top
            to = m * area + row * pitch
            first = begin
            final = begin
            if 0 <= h and h < height:
                final = end
                start = (map_ * height + h) * width + b - left
                if stride_w == 1:
                    for v in range(first, final):
                        flat_x[np.uint32(to + v)] = x[np.uint32(start + v)]
                elif stride_w == 2:
                    for v in range(first, final):
                        flat_x[np.uint32(to + v)] = x[np.uint32(start + v * 2)]
                else:
                    for v in range(first, final):
                        flat_x[np.uint32(to + v)] = x[np.uint32(start + v * stride_w)]
            for v in range(first):
                flat_x[np.uint32(to + v)] = ZERO
            for v in range(final, pitch):
                flat_x[np.uint32(to + v)] = ZERO
        if last == padded_height:
            for v in range(padded_height * pitch, area):
                flat_x[np.uint32(m * area + v)] = ZERO


@kernel(block=THREADS)
def conv_vector_lay_out_filters(
    w: Floats, packed: Floats, total: int, depth: int, stretches: int, filters: int, bundles: int, side: int,
    bundle_size: int, rows: int, columns: int, group_stride: int, filter_stride: int, channel_stride: int, origin: int,
    row_step: int, column_step: int,
) -> None:  # fmt: skip
    """packed[g, bundle, c, r, s, j]: a tap of `side` filters side by side; a filter that is not there is zero.

    Tap r, s of filter k and channel c of group g is w[g·group_stride + k·filter_stride + c·channel_stride + origin +
    r·row_step + s·column_step].  A thread has some channels of a bundle, and the next one those beside them in memory.
    """
    i = cuda.grid(1)
    if i < total:
        if filter_stride < channel_stride:
            rest, bundle = split(i, bundles)
            group, stretch = split(rest, stretches)
        else:
            rest, stretch = split(i, stretches)
            group, bundle = split(rest, bundles)
        there = min(side, filters - bundle * side)
        to = (group * bundles + bundle) * bundle_size + stretch * CHANNELS * rows * columns * side
        start = group * group_stride + origin + bundle * side * filter_stride
        for c in range(stretch * CHANNELS, min((stretch + 1) * CHANNELS, depth)):
            for r in range(rows):
                for s in range(columns):
                    tap = start + c * channel_stride + r * row_step + s * column_step
                    if there == FILTERS and filter_stride == 1:
                        for j in range(FILTERS):
                            packed[np.uint32(to + j)] = w[np.uint32(tap + j)]
                    else:
                        for j in range(there):
                            packed[np.uint32(to + j)] = w[np.uint32(tap + j * filter_stride)]
                        for j in range(there, side):
                            packed[np.uint32(to + j)] = ZERO
                    to += side


@kernel(block=THREADS)
def conv_vector_put_phase(
    phase: Floats, dx: Floats, total: int, rows: int, columns: int, height: int, width: int, at: int, stride_h: int,
    stride_w: int, found: int,
) -> None:  # fmt: skip
    """One row of a phase of dx to its place in dx; 0 if no tap reaches it, so that it was not `found`."""
    i = cuda.grid(1)
    if i < total:
        m, row = split(i, rows)
        to = (m * height + row * stride_h) * width + at
        for v in range(columns):
            value = ZERO
            if found != 0:
                value = phase[np.uint32(i * columns + v)]
            dx[np.uint32(to + v * stride_w)] = value


# -- summed up ---------------------------------------------------------------------------------------------------------


def sums_of(lanes: int, side: int, across: int) -> Kernel:
    """Forward and backward data: a thread has `side` filters, each `across` registers of `lanes` positions."""
    strip_length, registers_held = across * lanes, side * across

    def sums(
        flat_x: Floats, packed: Floats, bias: Floats, y: Floats, with_bias: int, total: int, stretch: int,
        bundles: int, stretches: int, groups: int, channels: int, area: int, pitch: int, taps_h: int, taps_w: int,
        stride_h: int, stride_w: int, filters: int, height: int, width: int,
    ) -> None:  # fmt: skip
        """Some filters at a strip of flat positions of an image; the map's rows in the strip are stored.

        Threads go through a stretch of strips for the first filters, then for the next: so it stays in the cache.
        """
        sums = cuda.local.array((registers_held, lanes), np.float32)
        out = cuda.local.array((side, strip_length), np.float32)
        a = cuda.local.array((side, lanes), np.float32)
        b = cuda.local.array((across, lanes), np.float32)
        i = cuda.grid(1)
        rest, strip = split(i, stretch)
        rest, bundle = split(rest, bundles)
        n, first = split(rest, stretches)
        group = n % groups
        f = (first * stretch + strip) * strip_length
        if i < total and f < height * pitch:
            for k in range(registers_held):
                for j in range(lanes):
                    sums[k, j] = ZERO
            tap = (group * bundles + bundle) * channels * taps_h * taps_w * side
            phases_h = min(stride_h, taps_h)
            phases_w = min(stride_w, taps_w)
            for phase in range(phases_h * phases_w):
                first_row, first_column = split(phase, phases_w)
                rows = (taps_h - first_row + stride_h - 1) // stride_h
                columns = (taps_w - first_column + stride_w - 1) // stride_w
                for c in range(channels):
                    for r in range(rows):
                        at = ((n * channels + c) * phases_h * phases_w + phase) * area + r * pitch + f
                        for s in range(columns):
                            for m in range(across):
                                for j in range(lanes):
                                    b[m, j] = flat_x[np.uint32(at + s + m * lanes + j)]
                            for k in range(side):
                                for j in range(lanes):
                                    a[k, j] = packed[np.uint32(tap + k)]
                            for k in range(side):
                                for m in range(across):
                                    for j in range(lanes):
                                        sums[k * across + m, j] += a[k, j] * b[m, j]
                            tap += side
            for k in range(side):
                for m in range(across):
                    for j in range(lanes):
                        out[k, m * lanes + j] = sums[k * across + m, j]
            p, q = split(f, pitch)
            done = 0
            while done < strip_length and p < height:
                for k in range(min(side, filters - bundle * side)):
                    filter_ = bundle * side + k
                    value = ZERO
                    if with_bias != 0:
                        value = bias[np.uint32(group * filters + filter_)]
                    to = ((n * filters + filter_) * height + p) * width + q
                    for j in range(min(strip_length - done, width - q)):
                        y[np.uint32(to + j)] = out[np.uint32(k), np.uint32(done + j)] + value
                done += pitch - q
                p += 1
                q = 0

    return kernel(THREADS, f"conv_vector{_depthwise(side)}_sums_{lanes}")(sums)


def gradients_of(lanes: int, taps: int, side: int) -> Kernel:
    """The filter pass for filters `taps` columns wide: a thread has one of their rows for `side` filters."""
    sums_held = side * taps

    def gradients(
        flat_x: Floats, dy: Floats, partials: Floats, total: int, images: int, slice_images: int, groups: int,
        bundles: int, rows: int, channels: int, filters: int, apart: int, dy_area: int, pitch: int, weights: int,
        row_step: int, step: int,
    ) -> None:  # fmt: skip
        """The sums over a slice of images, a lane a position; then over the lanes.

        Maps of x begin `apart` from each other, and a filter's taps of this phase are `row_step` and `step` apart.
        """
        sums = cuda.local.array((sums_held, lanes), np.float32)
        out = cuda.local.array((sums_held, lanes), np.float32)
        x = cuda.local.array((taps, lanes), np.float32)
        d = cuda.local.array(lanes, np.float32)
        i = cuda.grid(1)
        if i < total:
            rest, row = split(i, rows)
            rest, c = split(rest, channels)
            rest, bundle = split(rest, bundles)
            slice_, group = split(rest, groups)
            for k in range(sums_held):
                for j in range(lanes):
                    sums[k, j] = ZERO
            first = slice_ * slice_images
            for n in range(first, min(first + slice_images, images)):
                start = ((n * groups + group) * channels + c) * apart + row * pitch
                for f in range(0, dy_area, lanes):
                    for s in range(taps):
                        for j in range(lanes):
                            x[s, j] = flat_x[np.uint32(start + f + s + j)]
                    for k in range(side):
                        at = ((n * groups + group) * filters + min(bundle * side + k, filters - 1)) * dy_area + f
                        for j in range(lanes):
                            d[j] = dy[np.uint32(at + j)]
                        for s in range(taps):
                            for j in range(lanes):
                                sums[k * taps + s, j] += d[j] * x[s, j]
            for k in range(sums_held):
                for j in range(lanes):
                    out[k, j] = sums[k, j]
                if lanes == 16:
                    for j in range(8):
                        out[k, j] += out[k, j + 8]
                for j in range(4):
                    out[k, j] += out[k, j + 4]
                for j in range(2):
                    out[k, j] += out[k, j + 2]
                out[k, 0] += out[k, 1]
            for k in range(min(side, filters - bundle * side)):
                filter_ = (slice_ * groups + group) * filters + bundle * side + k
                to = (filter_ * channels + c) * weights + row * row_step
                for s in range(taps):
                    partials[np.uint32(to + s * step)] = out[np.uint32(k * taps + s), 0]

    return kernel(THREADS, f"conv_vector{_depthwise(side)}_gradients_{taps}_wide_{lanes}")(gradients)


def _depthwise(side: int) -> str:
    return "_depthwise" if side == 1 else ""


@dataclass(frozen=True)
class Registers:
    """The kernels for vector registers of `lanes` numbers, and how many filters a thread has in them."""

    lanes: int
    side: int
    across: int  #: registers of positions of one filter
    rows: dict[int, int]  #: of the filter pass: a filter's width → filters of a thread
    sums: Kernel
    gradients: dict[int, Kernel]

    @classmethod
    def of(cls, lanes: int, side: int, across: int, rows: dict[int, int]) -> Registers:
        gradients = {taps: gradients_of(lanes, taps, filters) for taps, filters in rows.items()}
        return cls(lanes, side, across, rows, sums_of(lanes, side, across), gradients)


AVX512 = Registers.of(16, 8, 2, {1: 16, 2: 12, 3: 8, 4: 6, 5: 4, 7: 3})  # 32 registers
AVX2 = Registers.of(8, 4, 2, {1: 8, 2: 4, 3: 3, 4: 2, 5: 2, 7: 1})  # 16 registers
DEPTHWISE_AVX512 = Registers.of(16, 1, 4, dict.fromkeys(AVX512.rows, 1))
DEPTHWISE_AVX2 = Registers.of(8, 1, 8, dict.fromkeys(AVX2.rows, 1))


def registers(shape: ConvShape, array: Any) -> Registers:
    """Those of the processor where the array is."""
    wide = place(array) == "gpu" or cpu.has_avx512()
    if depthwise(shape):
        return DEPTHWISE_AVX512 if wide else DEPTHWISE_AVX2
    return AVX512 if wide else AVX2


# -- the three passes --------------------------------------------------------------------------------------------------


class PhaseOfDx(NamedTuple):
    """Along one direction: every stride-th tap from `tap` on, and the positions of dx that these reach."""

    tap: int
    taps: int
    at: int  #: the first position
    positions: int
    begin: int  #: what the first tap meets there, in a flat map of dy


@dataclass(frozen=True)
class Flat:
    """How maps lie flat: a map's first rows and columns, its rows, from a row to the next, from a map to the next."""

    pad: Pair
    rows: int
    pitch: int
    area: int


def whole_strips(shape: ConvShape, positions: int) -> int:
    strip = DEPTHWISE_POSITIONS if depthwise(shape) else POSITIONS
    return ceil_div(positions, strip) * strip


def flat_x(shape: ConvShape) -> Flat:
    """A phase of a map of x, for forward and the filter pass: the last position has all of its taps."""
    down, across = (ceil_div(taps, step) - 1 for taps, step in zip(window(shape), shape.stride, strict=True))
    columns, step, left = shape.out_width + across, shape.stride[1], shape.pad[1]
    phases = range(min(step, shape.filter_width))
    begins, ends = ([ceil_div(max(edge - b, 0), step) for b in phases] for edge in (left, left + shape.width))
    pitch = _pitch(columns, min(begins), columns - max(ends), shape.out_width)
    area = whole_strips(shape, shape.out_height * pitch) + down * pitch + across
    return Flat(shape.pad, shape.out_height + down, pitch, whole_strips(shape, area))


def _pitch(columns: int, left: int, right: int, least: int) -> int:
    """From a row to the next: the zeros to the right of a row are those to the left of the next one, too."""
    return max(least, columns - max(0, min(left, right)))


def gradient_area(shape: ConvShape) -> int:
    """From a map of dy to the next, for the filter pass."""
    return ceil_div(shape.out_height * flat_x(shape).pitch, AVX512.lanes) * AVX512.lanes


def flat_dy(shape: ConvShape) -> tuple[Flat, list[PhaseOfDx], list[PhaseOfDx]]:
    """A map of dy, and the phases of dx, downwards and across."""
    size = shape.height, shape.width
    ways = [_phases(*each) for each in zip(size, window(shape), shape.stride, shape.pad, strict=True)]
    pad = [-min(phase.begin for phase in way if phase.taps) for way in ways]
    down, across = ([p._replace(begin=p.begin + zeros) for p in way] for way, zeros in zip(ways, pad, strict=True))
    rows, columns = (max(p.begin + p.positions + p.taps - 1 for p in way if p.taps) for way in (down, across))
    pitch = _pitch(columns, pad[1], columns - pad[1] - shape.out_width, max(q.positions for q in across))
    ends = [
        (p.begin + p.taps - 1) * pitch + q.begin + q.taps - 1 + whole_strips(shape, p.positions * pitch)
        for p in down
        for q in across
    ]
    return Flat((pad[0], pad[1]), rows, pitch, whole_strips(shape, max(rows * pitch, *ends))), down, across


def _phases(size: int, taps: int, stride: int, pad: int) -> list[PhaseOfDx]:
    """Position h of dx meets dy at (h + pad - tap) / stride: `begin` may be negative here."""
    found = []
    for tap in range(stride):
        first, end = ceil_div(max(pad - tap, 0), stride), ceil_div(max(size + pad - tap, 0), stride)
        reaching = ceil_div(max(taps - tap, 0), stride)
        found.append(PhaseOfDx(tap, reaching, first * stride + tap - pad, max(0, end - first), first - reaching + 1))
    return found


def window(shape: ConvShape) -> Pair:
    return shape.filter_height, shape.filter_width


def depthwise(shape: ConvShape) -> bool:
    """Whether every group is one map and one filter, which would leave 7 of 8 filters of a thread empty."""
    return shape.group_channels == shape.group_filters == 1


def phase_count(shape: ConvShape) -> int:
    """Phases of x that have taps."""
    return min(shape.stride[0], shape.filter_height) * min(shape.stride[1], shape.filter_width)


def why_not(pass_: str, shape: ConvShape) -> str | None:
    """Why this pass cannot be done here; None if it can."""
    if shape.dilation != (1, 1):
        return f"its filters are not dilated, these are by {shape.dilation}"
    widths = {
        ceil_div(shape.filter_width - tap, shape.stride[1]) for tap in range(min(shape.stride[1], shape.filter_width))
    }
    if pass_ == "backward_filter" and not widths <= AVX512.rows.keys():
        return f"its filter pass is for filters {list(AVX512.rows)} wide in a phase, this one is {max(widths)}"
    need = _floats(pass_, shape, 1)
    if need > LARGEST:
        return f"the workspace of one step has {need} elements; at most {LARGEST} can be indexed"
    return None


def slice_images(shape: ConvShape) -> int:
    """Images of a slice of the filter pass."""
    return min(SLICE_IMAGES, ceil_div(SLICE_POSITIONS, gradient_area(shape)))


def _packed(shape: ConvShape, outputs: int, terms: int) -> int:
    """Floats of the filters as they are laid out: `outputs` of each group, sums of `terms`."""
    side = 1 if depthwise(shape) else FILTERS
    return shape.groups * ceil_div(outputs, side) * side * terms


def _floats(pass_: str, shape: ConvShape, images: int) -> int:
    """Elements of workspace for `images` images at a time; the filter pass takes whole slices."""
    taps = shape.filter_height * shape.filter_width
    if pass_ == "backward_data":
        maps, down, across = flat_dy(shape)
        most = max(p.taps for p in down) * max(q.taps for q in across)
        phase = max(p.positions for p in down) * max(q.positions for q in across) if shape.stride != (1, 1) else 0
        image = shape.filters * maps.area + shape.channels * phase
        return _packed(shape, shape.group_channels, shape.group_filters * most) + images * image
    x_maps = shape.channels * phase_count(shape) * flat_x(shape).area
    if pass_ == "forward":
        return _packed(shape, shape.group_filters, shape.group_channels * taps) + images * x_maps
    slices = ceil_div(images, slice_images(shape))
    images = min(shape.images, slices * slice_images(shape))
    gradients = shape.filters * gradient_area(shape)
    return images * (x_maps + gradients) + slices * prod(shape.w_shape)


def _step(pass_: str, shape: ConvShape, floats: int) -> int:
    """Images at a time with a workspace of `floats` elements."""
    every = range(1, shape.images + 1)
    return bisect_right(every, min(floats, LARGEST), key=lambda images: _floats(pass_, shape, images))


def workspace_bytes(pass_: str, shape: ConvShape, images: int | None = None) -> int:
    """Bytes for `images` images at a time (None: the whole batch), or for as many as can be indexed."""
    return 4 * _floats(pass_, shape, min(images or shape.images, _step(pass_, shape, LARGEST)))


def forward(shape: ConvShape, x: Any, w: Any, b: Any, y: Any, workspace: Any, stream: Any) -> None:
    ours, maps, step = registers(shape, x), flat_x(shape), _step("forward", shape, len(workspace))
    (sh, sw), (rows, columns), channels = shape.stride, window(shape), shape.channels
    groups, inputs, outputs = shape.groups, shape.group_channels, shape.group_filters
    size = _packed(shape, outputs, inputs * rows * columns)
    packed, flat_maps = workspace[:size], workspace[size:]
    x_image, y_image = channels * shape.height * shape.width, shape.filters * shape.out_height * shape.out_width
    x, w, y = flat(x), flat(w), flat(y)
    before = 0
    for i in range(min(sh, rows)):
        for j in range(min(sw, columns)):
            down, across = ceil_div(rows - i, sh), ceil_div(columns - j, sw)
            order = inputs * rows * columns, rows * columns, i * columns + j, sh * columns, sw
            _lay_out_filters(
                w, packed[before:], ours, groups, inputs, outputs, rows * columns, (down, across), order, stream
            )
            before += inputs * down * across * ours.side
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        _lay_out(x[first * x_image :], flat_maps, count * channels, (shape.height, shape.width), maps, shape.stride,
                 (min(sh, rows), min(sw, columns)), stream)  # fmt: skip
        _sum_up(ours, flat_maps, packed, b, y[first * y_image :], count, groups, inputs, maps, (rows, columns),
                shape.stride, outputs, (shape.out_height, shape.out_width), stream)  # fmt: skip


def backward_data(shape: ConvShape, dy: Any, w: Any, dx: Any, workspace: Any, stream: Any) -> None:
    """As forward, from dy to each phase of dx: filters and channels in each other's place, the last tap first."""
    ours, (maps, down, across), step = (
        registers(shape, dy),
        flat_dy(shape),
        _step("backward_data", shape, len(workspace)),
    )
    (sh, sw), (rows, columns), strided = shape.stride, window(shape), shape.stride != (1, 1)
    groups, inputs, outputs = shape.groups, shape.group_filters, shape.group_channels
    size = _packed(shape, outputs, inputs * max(p.taps for p in down) * max(q.taps for q in across))
    packed, rest = workspace[:size], workspace[size:]
    x_image, y_image = shape.channels * shape.height * shape.width, shape.filters * shape.out_height * shape.out_width
    dy, w, dx = flat(dy), flat(w), flat(dx)
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        size = count * shape.filters * maps.area
        flat_maps, phase, to = rest[:size], rest[size:], dx[first * x_image :]
        _lay_out(dy[first * y_image :], flat_maps, count * shape.filters, (shape.out_height, shape.out_width), maps,
                 (1, 1), (1, 1), stream)  # fmt: skip
        for p, q in product(down, across):
            if p.taps and q.taps and p.positions and q.positions:
                last = (p.tap + (p.taps - 1) * sh) * columns + q.tap + (q.taps - 1) * sw
                order = rows * columns, outputs * rows * columns, last, -sh * columns, -sw
                _lay_out_filters(w, packed, ours, groups, inputs, outputs, p.taps * q.taps, (p.taps, q.taps), order,
                                 stream)  # fmt: skip
                _sum_up(ours, flat_maps[p.begin * maps.pitch + q.begin :], packed, None, phase if strided else to,
                        count, groups, inputs, maps, (p.taps, q.taps), (1, 1), outputs, (p.positions, q.positions),
                        stream)  # fmt: skip
            total = count * shape.channels * p.positions
            if strided and total * q.positions:
                launch(
                    conv_vector_put_phase, ceil_div(total, THREADS), phase, to, total, p.positions, q.positions,
                    shape.height, shape.width, p.at * shape.width + q.at, sh, sw, int(p.taps * q.taps > 0),
                    stream=stream,
                )  # fmt: skip


def backward_filter(shape: ConvShape, x: Any, dy: Any, dw: Any, workspace: Any, stream: Any) -> None:
    """A slice's sums are a partial result of its own; dw collects them slice by slice."""
    maps, ours, step = flat_x(shape), registers(shape, x), _step("backward_filter", shape, len(workspace))
    (sh, sw), (rows, columns), images = shape.stride, window(shape), slice_images(shape)
    phases, dy_area = phase_count(shape), gradient_area(shape)
    x_image, y_image = shape.channels * shape.height * shape.width, shape.filters * shape.out_height * shape.out_width
    x, dy, dw = flat(x), flat(dy), flat(dw)
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        slices = ceil_div(count, images)
        in_maps, in_gradients = count * shape.channels * phases * maps.area, count * shape.filters * dy_area
        flat_maps, rest = workspace[:in_maps], workspace[in_maps:]
        gradients, partials = rest[:in_gradients], rest[in_gradients:]
        _lay_out(x[first * x_image :], flat_maps, count * shape.channels, (shape.height, shape.width), maps,
                 shape.stride, (min(sh, rows), min(sw, columns)), stream)  # fmt: skip
        _lay_out(dy[first * y_image :], gradients, count * shape.filters, (shape.out_height, shape.out_width),
                 Flat((0, 0), shape.out_height, maps.pitch, dy_area), (1, 1), (1, 1), stream)  # fmt: skip
        for phase, (i, j) in enumerate(product(range(min(sh, rows)), range(min(sw, columns)))):
            down, across = ceil_div(rows - i, sh), ceil_div(columns - j, sw)
            bundles = ceil_div(shape.group_filters, ours.rows[across])
            total = slices * shape.groups * bundles * shape.group_channels * down
            launch(
                ours.gradients[across], ceil_div(total, THREADS), flat_maps[phase * maps.area :], gradients,
                partials[i * columns + j :], total, count, images, shape.groups, bundles, down, shape.group_channels,
                shape.group_filters, phases * maps.area, dy_area, maps.pitch, rows * columns, sh * columns, sw,
                stream=stream,
            )  # fmt: skip
        add_partials(partials, dw, len(dw), slices, first > 0, stream)


def _lay_out(x: Any, to: Any, maps: int, size: Pair, flat: Flat, stride: Pair, phases: Pair, stream: Any) -> None:
    """Each phase of maps of this size flat."""
    count = phases[0] * phases[1]
    stretches = ceil_div(flat.rows, ROWS)
    total = maps * count * stretches
    launch(conv_vector_lay_out, ceil_div(total, THREADS), x, to, total, stretches, *size, flat.rows, flat.pitch,
           *flat.pad, *stride, count, phases[1], flat.area, stream=stream)  # fmt: skip


def _lay_out_filters(
    w: Any, packed: Any, ours: Registers, groups: int, inputs: int, outputs: int, taps: int, window: Pair,
    order: tuple[int, ...], stream: Any,
) -> None:  # fmt: skip
    """The filters' taps of a phase; `taps` of all phases, and `order` is how they are found."""
    bundles, stretches = ceil_div(outputs, ours.side), ceil_div(inputs, CHANNELS)
    total = groups * bundles * stretches
    launch(conv_vector_lay_out_filters, ceil_div(total, THREADS), w, packed, total, inputs, stretches, outputs, bundles,
           ours.side, ours.side * inputs * taps, *window, len(w) // groups, *order, stream=stream)  # fmt: skip


def _sum_up(
    ours: Registers, maps: Any, packed: Any, b: Any, y: Any, images: int, groups: int, inputs: int, flat_: Flat,
    window: Pair, stride: Pair, outputs: int, size: Pair, stream: Any,
) -> None:  # fmt: skip
    """The sums of `images` images, in maps of this size."""
    strip = ours.across * ours.lanes
    bundles, strips = ceil_div(outputs, ours.side), ceil_div(size[0] * flat_.pitch, strip)
    stretch = max(1, min(strips, CACHED // (inputs * strip)))
    stretches = ceil_div(strips, stretch)
    total = images * groups * stretches * bundles * stretch
    launch(
        ours.sums, ceil_div(total, THREADS), maps, packed, packed if b is None else flat(b), y, int(b is not None),
        total, stretch, bundles, stretches, groups, inputs, flat_.area, flat_.pitch, *window, *stride, outputs, *size,
        stream=stream,
    )  # fmt: skip
