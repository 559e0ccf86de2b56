"""The rung after `direct`, for a CPU: straight from the formula, with the sums in vector registers.

    forward          a thread has 8 filters at 32 positions         y[n, k, p, q] sums over c, r, s, ascending
    backward_data    the same: dy in the place of x, and the filters turned by 180°; sums over k, r, s
    backward_filter  a thread has one row of 8 filters' taps        dw[k, c, r, s] sums over the positions

What has changed since `direct`: a map is first laid out *flat*, row after row, each with its padding.  A
step to the right or down is then the same distance in memory for all positions at once, ends of rows included:

    y[f] = sum over c, r, s of  w[c, r, s] * flat[c, f + r·pitch + s]      f = p·pitch + q,  pitch = width + taps - 1

So neighbouring positions are the lanes of a vector register, whatever the map's width; what is computed between two
rows is thrown away (6 % of a map of 32 columns under a 3×3 filter).  `implicit_gemm` has tiles of 32 or 64 filters,
which few filters leave nearly empty; here 8 filters are enough.

**Order of summation.** Forward and backward data: one accumulator, over channels (filters), then taps, ascending.
Backward filter: some images are a slice, and in it every lane sums up its own positions; then the upper half of the
lanes is added to the lower half, until one is left; then the slices, ascending.  The order follows from the shape and
from how many lanes the processor's registers have.

**Workspace** for i images at a time, in floats: the flat maps of x (of dy), and the filters as the kernels read them;
for the filter pass x and dy of whole slices, flat, and one dw a slice.

**Launch.** Blocks of 8 threads; the kernels that lay out have one thread a row.  For the CPU: a GPU runs them too, but
slowly, its threads reading 128 bytes each far apart.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.arguments import LARGEST, flat, place
from kernels.conv.im2col import add_partials
from kernels.conv.shape import ConvShape, Pair
from kernels.conv.winograd import split
from kernels.launch import Floats, Kernel, ceil_div, kernel, launch
from kernels.shim import cuda
from kernels.targets import cpu

SUMMARY = "stride 1, straight from the formula, the sums in a CPU's vector registers"
CPU_ONLY = True  #: nothing chooses it for a GPU
THREADS = 8
FILTERS, POSITIONS = 8, 32  #: multiples of these are laid out
SLICE_POSITIONS, SLICE_IMAGES = 4096, 32  #: of a slice of the filter pass, about and at most
CACHED = 1 << 16  #: floats of the flat maps that all filters read before the next: they stay in a core's cache
ZERO = np.float32(0)


# -- laid out ----------------------------------------------------------------------------------------------------------


@kernel(block=THREADS)
def conv_vector_lay_out(
    x: Floats, flat_x: Floats, rows: int, height: int, width: int, padded_height: int, pitch: int, top: int, left: int,
    area: int,
) -> None:  # fmt: skip
    """One row of a map with its padding, and zeros after the last one; negative padding leaves rows or columns out."""
    i = cuda.grid(1)
    if i < rows:
        m, row = split(i, padded_height)
        h = row - top
        to = m * area + row * pitch
        begin = 0
        end = 0
        if 0 <= h and h < height:
            begin = max(left, 0)
            end = min(left + width, pitch)
            start = (m * height + h) * width - left
            for v in range(begin, end):
                flat_x[np.uint32(to + v)] = x[np.uint32(start + v)]
        for v in range(begin):
            flat_x[np.uint32(to + v)] = ZERO
        for v in range(end, pitch):
            flat_x[np.uint32(to + v)] = ZERO
        if row == padded_height - 1:
            for v in range((row + 1) * pitch, area):
                flat_x[np.uint32(m * area + v)] = ZERO


@kernel(block=THREADS)
def conv_vector_lay_out_filters(
    w: Floats, packed: Floats, total: int, depth: int, filters: int, side: int, taps: int, filter_stride: int,
    channel_stride: int, origin: int, step: int,
) -> None:  # fmt: skip
    """packed[group, c, tap, j]: a tap of `side` filters side by side; a filter that is not there is zero.

    Tap t of filter k and channel c is w[k·filter_stride + c·channel_stride + origin + step·t], as in `winograd`.
    """
    i = cuda.grid(1)
    if i < total:
        group, c = split(i, depth)
        for t in range(taps):
            for j in range(side):
                k = group * side + j
                value = ZERO
                if k < filters:
                    value = w[np.uint32(k * filter_stride + c * channel_stride + origin + step * t)]
                packed[np.uint32((i * taps + t) * side + j)] = value


# -- summed up ---------------------------------------------------------------------------------------------------------


def sums_of(lanes: int, side: int) -> Kernel:
    """Forward and backward data for registers of `lanes` numbers: a thread has `side` filters in two registers each."""
    strip_length = 2 * lanes

    def sums(
        flat_x: Floats, packed: Floats, bias: Floats, y: Floats, with_bias: int, total: int, stretch: int, groups: int,
        stretches: int, channels: int, area: int, pitch: int, taps_h: int, taps_w: int, filters: int, height: int,
        width: int,
    ) -> None:  # fmt: skip
        """Some filters at a strip of flat positions of an image; the map's rows in the strip are stored.

        Threads go through a stretch of strips for the first filters, then for the next: so it stays in the cache.
        """
        left = cuda.local.array((side, lanes), np.float32)
        right = cuda.local.array((side, lanes), np.float32)
        out = cuda.local.array((side, strip_length), np.float32)
        a = cuda.local.array(side, np.float32)
        b = cuda.local.array(lanes, np.float32)
        d = cuda.local.array(lanes, np.float32)
        i = cuda.grid(1)
        rest, strip = split(i, stretch)
        rest, group = split(rest, groups)
        n, first = split(rest, stretches)
        f = (first * stretch + strip) * strip_length
        if i < total and f < height * pitch:
            for k in range(side):
                for j in range(lanes):
                    left[k, j] = ZERO
                    right[k, j] = ZERO
            tap = group * channels * taps_h * taps_w * side
            for c in range(channels):
                for r in range(taps_h):
                    at = (n * channels + c) * area + r * pitch + f
                    for s in range(taps_w):
                        for k in range(side):
                            a[k] = packed[np.uint32(tap + k)]
                        for j in range(lanes):
                            b[j] = flat_x[np.uint32(at + s + j)]
                        for j in range(lanes):
                            d[j] = flat_x[np.uint32(at + s + lanes + j)]
                        for k in range(side):
                            for j in range(lanes):
                                left[k, j] += a[k] * b[j]
                        for k in range(side):
                            for j in range(lanes):
                                right[k, j] += a[k] * d[j]
                        tap += side
            for k in range(side):
                for j in range(lanes):
                    out[k, j] = left[k, j]
                for j in range(lanes):
                    out[k, j + lanes] = right[k, j]
            p, q = split(f, pitch)
            done = 0
            while done < strip_length and p < height:
                for k in range(min(side, filters - group * side)):
                    filter_ = group * side + k
                    value = ZERO
                    if with_bias != 0:
                        value = bias[np.uint32(filter_)]
                    to = ((n * filters + filter_) * height + p) * width + q
                    for j in range(min(strip_length - done, width - q)):
                        y[np.uint32(to + j)] = out[np.uint32(k), np.uint32(done + j)] + value
                done += pitch - q
                p += 1
                q = 0

    return kernel(THREADS, f"conv_vector_sums_{lanes}")(sums)


def gradients_of(lanes: int, taps: int, side: int) -> Kernel:
    """The filter pass for filters `taps` columns wide: a thread has one of their rows for `side` filters."""
    sums_held = side * taps

    def gradients(
        flat_x: Floats, dy: Floats, partials: Floats, total: int, images: int, slice_images: int, groups: int,
        rows: int, channels: int, filters: int, area: int, dy_area: int, pitch: int,
    ) -> None:  # fmt: skip
        """The sums over a slice of images, a lane a position; then over the lanes."""
        sums = cuda.local.array((sums_held, lanes), np.float32)
        out = cuda.local.array((sums_held, lanes), np.float32)
        x = cuda.local.array((taps, lanes), np.float32)
        d = cuda.local.array(lanes, np.float32)
        i = cuda.grid(1)
        if i < total:
            rest, row = split(i, rows)
            rest, c = split(rest, channels)
            slice_, group = split(rest, groups)
            for k in range(sums_held):
                for j in range(lanes):
                    sums[k, j] = ZERO
            first = slice_ * slice_images
            for n in range(first, min(first + slice_images, images)):
                start = (n * channels + c) * area + row * pitch
                for f in range(0, dy_area, lanes):
                    for s in range(taps):
                        for j in range(lanes):
                            x[s, j] = flat_x[np.uint32(start + f + s + j)]
                    for k in range(side):
                        at = (n * filters + min(group * side + k, filters - 1)) * dy_area + f
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
            for k in range(min(side, filters - group * side)):
                to = (((slice_ * filters + group * side + k) * channels + c) * rows + row) * taps
                for s in range(taps):
                    partials[np.uint32(to + s)] = out[np.uint32(k * taps + s), 0]

    return kernel(THREADS, f"conv_vector_gradients_{taps}_wide_{lanes}")(gradients)


@dataclass(frozen=True)
class Registers:
    """The kernels for vector registers of `lanes` numbers, and how many filters a thread has in them."""

    lanes: int
    side: int
    rows: dict[int, int]  #: of the filter pass: a filter's width → filters of a thread
    sums: Kernel
    gradients: dict[int, Kernel]

    @classmethod
    def of(cls, lanes: int, side: int, rows: dict[int, int]) -> Registers:
        gradients = {taps: gradients_of(lanes, taps, filters) for taps, filters in rows.items()}
        return cls(lanes, side, rows, sums_of(lanes, side), gradients)


AVX512 = Registers.of(16, 8, {1: 16, 3: 8, 5: 4, 7: 3})  # 32 registers
AVX2 = Registers.of(8, 4, {1: 8, 3: 3, 5: 2, 7: 1})  # 16 registers


def registers(array: Any) -> Registers:
    """Those of the processor where the array is."""
    return AVX512 if place(array) == "gpu" or cpu.has_avx512() else AVX2


# -- the three passes --------------------------------------------------------------------------------------------------


def why_not(pass_: str, shape: ConvShape) -> str | None:
    """Why this pass cannot be done here; None if it can."""
    if not shape.plain:
        return f"its filters see all channels and are not dilated, these have groups={shape.groups}, {shape.dilation}"
    if shape.stride != (1, 1):
        return f"its stride is (1, 1), this one is {shape.stride}"
    if pass_ == "backward_filter" and shape.filter_width not in AVX512.rows:
        return f"its filter pass is for filters {list(AVX512.rows)} wide, this one is {shape.filter_width}"
    need = _floats(pass_, shape, 1)
    if need > LARGEST:
        return f"the workspace of one step has {need} elements; at most {LARGEST} can be indexed"
    return None


@dataclass(frozen=True)
class Sums:
    """Forward, or backward data as the forward pass that it is: `inputs` maps to `outputs` sums of height × width."""

    inputs: int
    outputs: int
    height: int
    width: int
    pad: Pair
    taps_h: int
    taps_w: int

    @classmethod
    def of(cls, pass_: str, shape: ConvShape) -> Sums:
        window = (shape.filter_height, shape.filter_width)
        if pass_ == "backward_data":
            turned = (window[0] - 1 - shape.pad[0], window[1] - 1 - shape.pad[1])
            return cls(shape.filters, shape.channels, shape.height, shape.width, turned, *window)
        return cls(shape.channels, shape.filters, shape.out_height, shape.out_width, shape.pad, *window)

    @property
    def padded_height(self) -> int:
        return self.height + self.taps_h - 1

    @property
    def pitch(self) -> int:
        """From a row of a flat map to the next."""
        return self.width + self.taps_w - 1

    @property
    def positions(self) -> int:
        """Flat positions that are summed up, a multiple of what a thread has."""
        return ceil_div(self.height * self.pitch, POSITIONS) * POSITIONS

    @property
    def area(self) -> int:
        """From a flat map to the next: the last position has all of its taps, and maps begin where vectors do."""
        return ceil_div(self.positions + (self.taps_h - 1) * self.pitch + self.taps_w - 1, POSITIONS) * POSITIONS

    @property
    def packed(self) -> int:
        """Floats of the filters as they are laid out."""
        return ceil_div(self.outputs, FILTERS) * FILTERS * self.inputs * self.taps_h * self.taps_w


def slice_images(sums: Sums) -> int:
    """Images of a slice of the filter pass."""
    return min(SLICE_IMAGES, ceil_div(SLICE_POSITIONS, sums.positions))


def _floats(pass_: str, shape: ConvShape, images: int) -> int:
    """Elements of workspace for `images` images at a time; the filter pass takes whole slices."""
    sums = Sums.of(pass_, shape)
    if pass_ != "backward_filter":
        return sums.packed + images * sums.inputs * sums.area
    slices = ceil_div(images, slice_images(sums))
    images = min(shape.images, slices * slice_images(sums))
    weights = shape.filters * shape.channels * shape.filter_height * shape.filter_width
    return images * (shape.channels * sums.area + shape.filters * sums.positions) + slices * weights


def _step(pass_: str, shape: ConvShape, floats: int) -> int:
    """Images at a time with a workspace of `floats` elements."""
    every = range(1, shape.images + 1)
    return bisect_right(every, min(floats, LARGEST), key=lambda images: _floats(pass_, shape, images))


def workspace_bytes(pass_: str, shape: ConvShape, images: int | None = None) -> int:
    """Bytes for `images` images at a time (None: the whole batch), or for as many as can be indexed."""
    return 4 * _floats(pass_, shape, min(images or shape.images, _step(pass_, shape, LARGEST)))


def forward(shape: ConvShape, x: Any, w: Any, b: Any, y: Any, workspace: Any, stream: Any) -> None:
    taps = shape.filter_height * shape.filter_width
    _sums("forward", shape, x, w, b, y, (shape.channels * taps, taps, 0, 1), workspace, stream)


def backward_data(shape: ConvShape, dy: Any, w: Any, dx: Any, workspace: Any, stream: Any) -> None:
    """As forward, from dy to dx: filters and channels in each other's place, the taps from the last to the first."""
    taps = shape.filter_height * shape.filter_width
    _sums("backward_data", shape, dy, w, None, dx, (taps, shape.channels * taps, taps - 1, -1), workspace, stream)


def _sums(
    pass_: str, shape: ConvShape, x: Any, w: Any, b: Any, y: Any, order: tuple[int, ...], workspace: Any, stream: Any
) -> None:
    """Sums of x's maps in y; `order` is how the filters' taps are found."""
    sums, ours, step = Sums.of(pass_, shape), registers(x), _step(pass_, shape, workspace.shape[0])
    packed, maps = workspace[: sums.packed], workspace[sums.packed :]
    groups, strips = ceil_div(sums.outputs, ours.side), sums.positions // (2 * ours.lanes)
    stretch = max(1, min(strips, CACHED // (sums.inputs * 2 * ours.lanes)))
    x_image, y_image = x.shape[1] * x.shape[2] * x.shape[3], y.shape[1] * y.shape[2] * y.shape[3]
    size, x, w, y = x.shape[2:], flat(x), flat(w), flat(y)
    launch(
        conv_vector_lay_out_filters, ceil_div(groups * sums.inputs, THREADS), w, packed, groups * sums.inputs,
        sums.inputs, sums.outputs, ours.side, sums.taps_h * sums.taps_w, *order, stream=stream,
    )  # fmt: skip
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        _lay_out(x[first * x_image :], maps, count * sums.inputs, size, sums.padded_height, sums.pitch, sums.pad,
                 sums.area, stream)  # fmt: skip
        stretches = ceil_div(strips, stretch)
        total = count * stretches * groups * stretch
        launch(
            ours.sums, ceil_div(total, THREADS), maps, packed, w if b is None else flat(b), y[first * y_image :],
            int(b is not None), total, stretch, groups, stretches, sums.inputs, sums.area, sums.pitch,
            sums.taps_h, sums.taps_w, sums.outputs, sums.height, sums.width, stream=stream,
        )  # fmt: skip


def backward_filter(shape: ConvShape, x: Any, dy: Any, dw: Any, workspace: Any, stream: Any) -> None:
    """A slice's sums are a partial result of its own; dw collects them slice by slice."""
    sums, ours, step = Sums.of("backward_filter", shape), registers(x), _step("backward_filter", shape, len(workspace))
    groups = ceil_div(shape.filters, ours.rows[shape.filter_width])
    x_image, y_image = shape.channels * shape.height * shape.width, shape.filters * shape.out_height * shape.out_width
    x, dy, dw = flat(x), flat(dy), flat(dw)
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        slices = ceil_div(count, slice_images(sums))
        in_maps, in_gradients = count * shape.channels * sums.area, count * shape.filters * sums.positions
        maps, rest = workspace[:in_maps], workspace[in_maps:]
        gradients, partials = rest[:in_gradients], rest[in_gradients:]
        _lay_out(x[first * x_image :], maps, count * shape.channels, (shape.height, shape.width), sums.padded_height,
                 sums.pitch, shape.pad, sums.area, stream)  # fmt: skip
        _lay_out(dy[first * y_image :], gradients, count * shape.filters, (sums.height, sums.width), sums.height,
                 sums.pitch, (0, 0), sums.positions, stream)  # fmt: skip
        total = slices * groups * shape.channels * shape.filter_height
        launch(
            ours.gradients[shape.filter_width], ceil_div(total, THREADS), maps, gradients, partials, total, count,
            slice_images(sums), groups, shape.filter_height, shape.channels, shape.filters, sums.area, sums.positions,
            sums.pitch, stream=stream,
        )  # fmt: skip
        add_partials(partials, dw, len(dw), slices, first > 0, stream)


def _lay_out(
    x: Any, to: Any, maps: int, size: Pair, height: int, pitch: int, pad: Pair, area: int, stream: Any
) -> None:
    """Maps of this size flat, in `height` rows."""
    grid = ceil_div(maps * height, THREADS)
    launch(conv_vector_lay_out, grid, x, to, maps * height, *size, height, pitch, *pad, area, stream=stream)
