"""Winograd's fast convolution for 3×3 filters with stride 1: 16 multiplications where the direct way needs 36.

**One dimension.** F(2, 3) computes two neighbouring outputs of a filter with three taps, y₀ = d₀g₀ + d₁g₁ + d₂g₂ and
y₁ = d₁g₀ + d₂g₁ + d₃g₂, from four inputs with four multiplications instead of six:

    m₀ = (d₀ - d₂)·g₀                      m₁ = (d₁ + d₂)·(g₀ + g₁ + g₂)/2
    m₃ = (d₁ - d₃)·g₂                      m₂ = (d₂ - d₁)·(g₀ - g₁ + g₂)/2
    y₀ = m₀ + m₁ + m₂                      y₁ = m₁ - m₂ - m₃

(Put the m's in: m₁ + m₂ = d₁g₁ + d₂g₀ + d₂g₂ and m₁ - m₂ = d₁g₀ + d₁g₂ + d₂g₁.)  In matrices, y = Aᵀ·[(G·g) ⊙ (Bᵀ·d)]
with ⊙ element by element and

         ⎡1  0 -1  0⎤        ⎡ 1   0   0 ⎤
    Bᵀ = ⎢0  1  1  0⎥    G = ⎢ ½   ½   ½ ⎥    Aᵀ = ⎡1  1  1  0⎤
         ⎢0 -1  1  0⎥        ⎢ ½  -½   ½ ⎥         ⎣0  1 -1 -1⎦
         ⎣0  1  0 -1⎦        ⎣ 0   0   1 ⎦

**Two dimensions.** F(2×2, 3×3) does the same along rows and columns of a 4×4 input tile d and a 3×3 filter g, and gives
a 2×2 output tile Y = Aᵀ·[(G·g·Gᵀ) ⊙ (Bᵀ·d·B)]·A.  Neighbouring tiles overlap by two inputs.

**Many channels.** An output adds up over the channels, and Aᵀ…A is linear: so the products are added up first, and
transformed back once.  At each of the 16 points of the 4×4 domain that sum is a matrix product:

    U[point] (filters × channels)         G·g·Gᵀ of every filter            (kernel winograd_filter)
    V[point] (channels × tiles)           Bᵀ·d·B of every tile              (kernel winograd_data)
    M[point] = U[point] · V[point]        16 products in one batched gemm
    output tiles                          Aᵀ·M·A                            (kernel winograd_output)

**Backward data** is the same with dy in the place of x, the filters turned by 180° with filters and channels swapped,
and padding 2 - pad; this is where the limit of two rows of padding comes from.

**Backward filter** turns the roles round: nine outputs dw[r, s] = sum of d[r + i, s + j]·dy[i, j] of a "filter" dy of
2×2 taps.  F(3×3, 2×2) has the same four inputs along an axis, the same Bᵀ, and

         ⎡ 1   0 ⎤
    G' = ⎢ ½   ½ ⎥         ⎡1  1  1  0⎤
         ⎢ ½  -½ ⎥   A'ᵀ = ⎢0  1 -1  0⎥
         ⎣ 0   1 ⎦         ⎣0  1  1 -1⎦

The sum over tiles is the inner dimension of the 16 products M[point] (filters × channels) = (G'·dy·G'ᵀ)[point] ·
V[point]ᵀ.  Every image's product is kept apart, and they are added in ascending order before the one transform back to
dw (kernels winograd_gradient and winograd_filter_gradient).

**Order of summation.** Forward: over the channels, backward data: over the filters, ascending, at each point of a tile.
Backward filter: over the tiles of an image, then over the images, ascending.  How many images the workspace holds does
not change a bit.

**Workspace** for i images at a time, in bytes, with K filters, C channels and T = ⌈height/2⌉·⌈width/2⌉ tiles an image,
of y (for backward data: of dx):

    forward, backward data    4·16·(P(K·C) + P(i·T·K) + P(i·T·C))
    backward filter           4·16·(P(K·C) + i·(P(K·C) + P(T·K) + P(T·C)))

where P(size) is `size` rounded up to an odd number of 16-element lines: see `plane`.

**Cost.** The products take 2·16·K·C·T operations an image, 2¼ times fewer than the direct 2·36·K·C·T.  The transforms
add, a tile and map, 32 for data, 24 for gradients and 24 for outputs; a filter and channel, 35 for filters and 35 for
their gradients.  Bytes an image: the data transform reads about 16·T·C (its tiles overlap, the cache serves the rest)
and writes 64·T·C; the products read and write at least 64·(T·(K + C) + K·C); the transform back reads 64·T·K and writes
16·T·K.  The sum over K or C inside a product must be long to pay for those bytes: with few channels the saved
multiplications are lost again.

**Rounding** is about that of the direct way: the transforms lose a little, shorter sums win it back.  But an infinite
or NaN input can spoil outputs of its tile that the direct way would not compute from it.

**Launch.** Every transform has one thread a tile (or a filter) and channel, with its 16 points in registers, and blocks
of 256 in one dimension; neighbouring threads have neighbouring tiles, so that the 16 writes (reads) of a warp are 128
bytes each.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from kernels.checks.arguments import LARGEST, flat
from kernels.checks.conv_shape import ConvShape, Pair
from kernels.fast import gemm
from kernels.fast.conv import bias
from kernels.fast.conv.im2col import add_partials, images_at_a_time
from kernels.targets.launch import Floats, ceil_div, device, kernel, launch
from kernels.targets.shim import cuda

SUMMARY = "3×3, stride 1: F(2×2, 3×3) forward and backward data, F(3×3, 2×2) backward filter, by 16 products"
POINTS = 16  #: of the 4×4 domain in which convolution is element by element
ZERO = np.float32(0)
HALF = np.float32(0.5)

Quad = tuple[float, float, float, float]


@device
def data_points(d0: float, d1: float, d2: float, d3: float) -> Quad:
    """Bᵀ·d."""
    return d0 - d2, d1 + d2, d2 - d1, d1 - d3


@device
def filter_points(g0: float, g1: float, g2: float) -> Quad:
    """G·g, for the three taps of a filter."""
    outer = HALF * (g0 + g2)
    inner = HALF * g1
    return g0, outer + inner, outer - inner, g2


@device
def gradient_points(g0: float, g1: float) -> Quad:
    """G'·g, for two neighbouring gradients."""
    return g0, HALF * (g0 + g1), HALF * (g0 - g1), g1


@device
def two_outputs(m0: float, m1: float, m2: float, m3: float) -> tuple[float, float]:
    """Aᵀ·m."""
    return m0 + m1 + m2, m1 - m2 - m3


@device
def three_outputs(m0: float, m1: float, m2: float, m3: float) -> tuple[float, float, float]:
    """A'ᵀ·m."""
    return m0 + m1 + m2, m1 - m2, m1 + m2 - m3


@device
def split(i: int, size: int) -> tuple[int, int]:
    """i // size and i mod size, for 0 <= i < 2³¹: a 32-bit division is several times cheaper than a 64-bit one."""
    quotient = np.int64(np.uint32(i) // np.uint32(size))
    return quotient, i - quotient * size


@kernel(block=256)
def winograd_filter(
    w: Floats, u: Floats, rows: int, columns: int, row_stride: int, column_stride: int, origin: int, step: int,
    point_stride: int,
) -> None:  # fmt: skip
    """u[point, row, column] = G·g·Gᵀ of a filter; its tap t = 0 … 8 is w[row·row_stride + column·column_stride + origin
    + step·t].  A step of -1 from origin = 8 turns the filter by 180°."""
    i = cuda.grid(1)
    if i < rows * columns:
        g = cuda.local.array((4, 3), np.float32)
        row, column = split(i, columns)
        at = row * row_stride + column * column_stride + origin
        for s in range(3):
            g[0, s], g[1, s], g[2, s], g[3, s] = filter_points(
                w[np.uint32(at + step * s)], w[np.uint32(at + step * (3 + s))], w[np.uint32(at + step * (6 + s))]
            )
        for r in range(4):
            u0, u1, u2, u3 = filter_points(g[r, 0], g[r, 1], g[r, 2])
            u[np.uint32((4 * r + 0) * point_stride + i)] = u0
            u[np.uint32((4 * r + 1) * point_stride + i)] = u1
            u[np.uint32((4 * r + 2) * point_stride + i)] = u2
            u[np.uint32((4 * r + 3) * point_stride + i)] = u3


@kernel(block=256)
def winograd_data(
    x: Floats, v: Floats, images: int, channels: int, height: int, width: int, tiles_high: int, tiles_wide: int,
    pad_h: int, pad_w: int, point_stride: int, channel_stride: int, image_stride: int,
) -> None:  # fmt: skip
    """v[point, channel, image, tile] = Bᵀ·d·B of a tile's 4×4 inputs, zero outside; the strides place it in v."""
    i = cuda.grid(1)
    tiles = tiles_high * tiles_wide
    if i < channels * images * tiles:
        d = cuda.local.array((4, 4), np.float32)
        rest, tile = split(i, tiles)
        channel, image = split(rest, images)
        tile_row, tile_column = split(tile, tiles_wide)
        top = 2 * tile_row - pad_h
        left = 2 * tile_column - pad_w
        corner = ((image * channels + channel) * height + top) * width + left
        whole = 0 <= top and top + 4 <= height and 0 <= left and left + 4 <= width
        for r in range(4):
            row_inside = 0 <= top + r < height
            for s in range(4):
                value = ZERO
                if whole or (row_inside and 0 <= left + s < width):
                    value = x[np.uint32(corner + r * width + s)]
                d[r, s] = value
        for s in range(4):
            d[0, s], d[1, s], d[2, s], d[3, s] = data_points(d[0, s], d[1, s], d[2, s], d[3, s])
        to = channel * channel_stride + image * image_stride + tile
        for r in range(4):
            v0, v1, v2, v3 = data_points(d[r, 0], d[r, 1], d[r, 2], d[r, 3])
            v[np.uint32((4 * r + 0) * point_stride + to)] = v0
            v[np.uint32((4 * r + 1) * point_stride + to)] = v1
            v[np.uint32((4 * r + 2) * point_stride + to)] = v2
            v[np.uint32((4 * r + 3) * point_stride + to)] = v3


@kernel(block=256)
def winograd_output(
    m: Floats, y: Floats, images: int, channels: int, height: int, width: int, tiles_high: int, tiles_wide: int,
    point_stride: int,
) -> None:  # fmt: skip
    """The 2×2 outputs Aᵀ·M·A of m[point, channel, image, tile]; what is below or right of the map is dropped."""
    i = cuda.grid(1)
    tiles = tiles_high * tiles_wide
    if i < channels * images * tiles:
        half = cuda.local.array((2, 4), np.float32)
        for s in range(4):
            half[0, s], half[1, s] = two_outputs(
                m[np.uint32(s * point_stride + i)], m[np.uint32((4 + s) * point_stride + i)],
                m[np.uint32((8 + s) * point_stride + i)], m[np.uint32((12 + s) * point_stride + i)],
            )  # fmt: skip
        rest, tile = split(i, tiles)
        channel, image = split(rest, images)
        tile_row, tile_column = split(tile, tiles_wide)
        right_inside = 2 * tile_column + 1 < width
        for r in range(2):
            row = 2 * tile_row + r
            if row < height:
                y0, y1 = two_outputs(half[r, 0], half[r, 1], half[r, 2], half[r, 3])
                at = ((image * channels + channel) * height + row) * width + 2 * tile_column
                y[np.uint32(at)] = y0
                if right_inside:
                    y[np.uint32(at + 1)] = y1


@kernel(block=256)
def winograd_gradient(
    dy: Floats, v: Floats, images: int, channels: int, height: int, width: int, tiles_high: int, tiles_wide: int,
    point_stride: int, channel_stride: int, image_stride: int,
) -> None:  # fmt: skip
    """v[point, channel, image, tile] = G'·g·G'ᵀ of a tile's 2×2 gradients, zero outside; the strides place it in v."""
    i = cuda.grid(1)
    tiles = tiles_high * tiles_wide
    if i < channels * images * tiles:
        g = cuda.local.array((4, 2), np.float32)
        rest, tile = split(i, tiles)
        channel, image = split(rest, images)
        tile_row, tile_column = split(tile, tiles_wide)
        at = ((image * channels + channel) * height + 2 * tile_row) * width + 2 * tile_column
        low_inside = 2 * tile_row + 1 < height
        for s in range(2):
            high = ZERO
            low = ZERO
            if 2 * tile_column + s < width:
                high = dy[np.uint32(at + s)]
                if low_inside:
                    low = dy[np.uint32(at + width + s)]
            g[0, s], g[1, s], g[2, s], g[3, s] = gradient_points(high, low)
        to = channel * channel_stride + image * image_stride + tile
        for r in range(4):
            v0, v1, v2, v3 = gradient_points(g[r, 0], g[r, 1])
            v[np.uint32((4 * r + 0) * point_stride + to)] = v0
            v[np.uint32((4 * r + 1) * point_stride + to)] = v1
            v[np.uint32((4 * r + 2) * point_stride + to)] = v2
            v[np.uint32((4 * r + 3) * point_stride + to)] = v3


@kernel(block=256)
def winograd_filter_gradient(m: Floats, dw: Floats, pairs: int, point_stride: int) -> None:
    """The 3×3 gradients A'ᵀ·M·A' of m[point, pair], one thread a pair of filter and channel."""
    i = cuda.grid(1)
    if i < pairs:
        part = cuda.local.array((3, 4), np.float32)
        for s in range(4):
            part[0, s], part[1, s], part[2, s] = three_outputs(
                m[np.uint32(s * point_stride + i)], m[np.uint32((4 + s) * point_stride + i)],
                m[np.uint32((8 + s) * point_stride + i)], m[np.uint32((12 + s) * point_stride + i)],
            )  # fmt: skip
        for r in range(3):
            g0, g1, g2 = three_outputs(part[r, 0], part[r, 1], part[r, 2], part[r, 3])
            at = 9 * i + 3 * r
            dw[np.uint32(at)] = g0
            dw[np.uint32(at + 1)] = g1
            dw[np.uint32(at + 2)] = g2


def plane(size: int) -> int:
    """Elements from one point's matrix of `size` elements to the next point's: an odd number of 64-byte lines.

    Every transform touches all 16 points at once.  Were they a multiple of 4096 bytes apart, as is usual with 64
    channels or more, they would all fall into the same few places of a CPU's first cache and push each other out.
    """
    return 16 * (ceil_div(size, 16) | 1)


def _tiles(pass_: str, shape: ConvShape) -> Pair:
    """Rows and columns of 2×2 tiles that cover one map of y, or of dx for backward data."""
    if pass_ == "backward_data":
        return ceil_div(shape.height, 2), ceil_div(shape.width, 2)
    return ceil_div(shape.out_height, 2), ceil_div(shape.out_width, 2)


def _blocks(tiles: int) -> int:
    """Blocks of a transform that one channel's tiles take; 0 if some blocks have tiles of two channels."""
    return 0 if tiles % 256 else tiles // 256


def _floats(pass_: str, shape: ConvShape, images: int) -> int:
    """Elements of workspace for this many images at a time."""
    tiles, pairs = prod(_tiles(pass_, shape)), plane(shape.filters * shape.channels)
    if pass_ == "backward_filter":
        an_image = pairs + plane(tiles * shape.filters) + plane(tiles * shape.channels)
        return POINTS * (pairs + images * an_image)
    return POINTS * (pairs + plane(images * tiles * shape.filters) + plane(images * tiles * shape.channels))


def _step(pass_: str, shape: ConvShape, floats: int) -> int:
    """Images at a time with this many elements of workspace."""
    matrices = POINTS if pass_ == "backward_filter" else 1  # the other passes have POINTS matrices for all images
    return images_at_a_time(shape.images, matrices, floats, lambda images: _floats(pass_, shape, images))


def why_not(pass_: str, shape: ConvShape) -> str | None:
    """Why this pass cannot be done by Winograd's algorithm; None if it can."""
    if (shape.filter_height, shape.filter_width) != (3, 3):
        return f"its filters are 3×3, these are {shape.filter_height}×{shape.filter_width}"
    if shape.groups > 1:
        return f"its filters see all channels, these are in {shape.groups} groups"
    if shape.dilation != (1, 1):
        return f"its taps are neighbours, these are {shape.dilation} apart"
    if shape.stride != (1, 1):
        return f"its stride is 1, this one is {shape.stride}"
    if max(shape.pad) > 2:
        return f"it pads by at most 2, not by {shape.pad}"
    need = _floats(pass_, shape, 1)
    if need > LARGEST:
        return f"the workspace of one image has {need} elements; at most {LARGEST} can be indexed"
    return None


def workspace_bytes(pass_: str, shape: ConvShape, images: int | None = None) -> int:
    """Bytes for `images` images at a time (None: the whole batch), or for as many as can be indexed."""
    return 4 * _floats(pass_, shape, min(images or shape.images, _step(pass_, shape, LARGEST)))


def forward(shape: ConvShape, x: Any, w: Any, b: Any, y: Any, workspace: Any, stream: Any) -> None:
    """The 16 products over all tiles of the images in the workspace."""
    by_filter = (shape.filters, shape.channels, 9 * shape.channels, 9, 0, 1)
    _convolve("forward", shape, x, w, by_filter, shape.pad, y, workspace, stream)
    if b is not None:
        bias.add_bias(b, y, stream)


def backward_data(shape: ConvShape, dy: Any, w: Any, dx: Any, workspace: Any, stream: Any) -> None:
    """The convolution of dy with the filters turned by 180°, filters and channels swapped, padded by 2 - pad."""
    by_channel = (shape.channels, shape.filters, 9, 9 * shape.channels, 8, -1)
    pad = (2 - shape.pad[0], 2 - shape.pad[1])
    _convolve("backward_data", shape, dy, w, by_channel, pad, dx, workspace, stream)


def _convolve(
    pass_: str, shape: ConvShape, x: Any, w: Any, order: tuple[int, ...], pad: Pair, y: Any,
    workspace: Any, stream: Any,
) -> None:  # fmt: skip
    """y = x convolved with w; `order` is how winograd_filter finds the filters."""
    _, depth, height, width = x.shape
    _, filters, out_height, out_width = y.shape
    tiles, pairs = _tiles(pass_, shape), filters * depth
    x, y = flat(x), flat(y)
    x_image, y_image = depth * height * width, filters * out_height * out_width
    u, rest = workspace[: POINTS * plane(pairs)], workspace[POINTS * plane(pairs) :]
    launch(winograd_filter, ceil_div(pairs, 256), flat(w), u, *order, plane(pairs), stream=stream)
    step = _step(pass_, shape, workspace.shape[0])
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        row = count * prod(tiles)  # a row of V and of M: the tiles of all `count` images
        blocks = _blocks(row)
        v_plane, m_plane = plane(depth * row), plane(filters * row)
        v, m = rest[: POINTS * v_plane], rest[POINTS * v_plane : POINTS * (v_plane + m_plane)]
        launch(
            winograd_data, ceil_div(depth * row, 256), x[first * x_image : (first + count) * x_image], v,
            count, depth, height, width, *tiles, *pad, v_plane, row, prod(tiles), stream=stream, columns=blocks,
        )  # fmt: skip
        gemm.strided(
            u, v, m, m=filters, n=row, k=depth, lda=depth, ldb=row, ldc=row,
            batch=POINTS, stride_a=plane(pairs), stride_b=v_plane, stride_c=m_plane, stream=stream, by_columns=True,
        )  # fmt: skip
        launch(
            winograd_output, ceil_div(filters * row, 256), m, y[first * y_image : (first + count) * y_image],
            count, filters, out_height, out_width, *tiles, m_plane, stream=stream, columns=blocks,
        )  # fmt: skip


def backward_filter(shape: ConvShape, x: Any, dy: Any, dw: Any, workspace: Any, stream: Any) -> None:
    """16 products an image, each with its tiles as the inner dimension; added image by image, then transformed back."""
    tiles = _tiles("backward_filter", shape)
    channels, filters, row = shape.channels, shape.filters, prod(tiles)  # a row: the tiles of one image
    pairs = filters * channels
    x, dy, dw = flat(x), flat(dy), flat(dw)
    x_image, y_image = channels * shape.height * shape.width, filters * shape.out_height * shape.out_width
    g_plane, v_plane, m_plane = plane(filters * row), plane(channels * row), plane(pairs)
    total, rest = workspace[: POINTS * m_plane], workspace[POINTS * m_plane :]
    step = _step("backward_filter", shape, workspace.shape[0])
    for first in range(0, shape.images, step):
        count = min(step, shape.images - first)
        planes = POINTS * count
        v_start, m_start = planes * g_plane, planes * (g_plane + v_plane)
        g, v, m = rest[:v_start], rest[v_start:m_start], rest[m_start : m_start + planes * m_plane]
        launch(
            winograd_gradient, ceil_div(filters * count * row, 256), dy[first * y_image : (first + count) * y_image], g,
            count, filters, shape.out_height, shape.out_width, *tiles,
            g_plane, row, POINTS * g_plane, stream=stream, columns=_blocks(count * row),
        )  # fmt: skip
        launch(
            winograd_data, ceil_div(channels * count * row, 256), x[first * x_image : (first + count) * x_image], v,
            count, channels, shape.height, shape.width, *tiles, *shape.pad,
            v_plane, row, POINTS * v_plane, stream=stream, columns=_blocks(count * row),
        )  # fmt: skip
        gemm.strided(
            g, v, m, m=filters, n=channels, k=row, lda=row, ldb=row, ldc=channels, trans_b=True,
            batch=planes, stride_a=g_plane, stride_b=v_plane, stride_c=m_plane, stream=stream,
        )  # fmt: skip
        add_partials(m, total, POINTS * m_plane, count, first > 0, stream)  # the gaps too, which are never read
    launch(winograd_filter_gradient, ceil_div(pairs, 256), total, dw, pairs, m_plane, stream=stream)
