"""The slow, obvious twin of every kernel: plain NumPy, written to be read, and the oracle of the kernels' tests.

One function for each public function of the families, `family_function`.  It takes the inputs as the kernel does,
*returns* the outputs instead of filling them, computes in float64 and rounds to float32 once at the end.  Nothing
here is shared with the kernels, so that a mistake in one is not a mistake in both.  Where there is a choice of
convention, it is PyTorch's.

Loops run over filter taps, windows or channels; what is left inside is one line of NumPy over the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float32]
Doubles = NDArray[np.float64]
Pair = tuple[int, int]


def wide(array: ArrayLike) -> Doubles:
    """To float64: what every function computes in."""
    return np.asarray(array, dtype=np.float64)


def rounded(array: ArrayLike) -> Array:
    """To float32: what every function returns."""
    return np.asarray(array, dtype=np.float32)


# -- gemm --------------------------------------------------------------------------------------------------------------


def gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Array:
    """alpha·op(A)·op(B) + beta·C for matrices, or for batches of them (3-D).  With beta = 0, C is not looked at."""
    left = np.swapaxes(a, -1, -2) if trans_a else a
    right = np.swapaxes(b, -1, -2) if trans_b else b
    product = alpha * (wide(left) @ wide(right))
    return rounded(product if c is None or beta == 0 else product + beta * wide(c))


# -- convolution: the filter is not flipped (a cross-correlation), as everywhere in deep learning ----------------------


def taps(w_shape: Sequence[int]) -> Iterator[Pair]:
    """Row and column of every tap of a filter."""
    for r in range(w_shape[2]):
        for s in range(w_shape[3]):
            yield r, s


def seen_by(tap: Pair, out: Sequence[int], stride: Pair, dilation: Pair) -> tuple[slice, slice, slice, slice]:
    """The part of the padded images that one tap of the filter meets as it slides over all `out` positions."""
    first = [t * apart for t, apart in zip(tap, dilation, strict=True)]
    rows, columns = (slice(t, t + step * (n - 1) + 1, step) for t, n, step in zip(first, out, stride, strict=True))
    return slice(None), slice(None), rows, columns


def four_sides(pad: Sequence[int]) -> tuple[int, ...]:
    """Padding as (top, left, bottom, right)."""
    return tuple(pad) if len(pad) == 4 else (*pad, *pad)


def padded(x: ArrayLike, pad: Sequence[int], value: float = 0.0) -> Doubles:
    top, left, bottom, right = four_sides(pad)
    return np.pad(wide(x), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def conv_output_shape(
    x_shape: Sequence[int], w_shape: Sequence[int], stride: Pair, pad: Sequence[int], dilation: Pair = (1, 1)
) -> tuple[int, ...]:
    sides = four_sides(pad)
    rows, columns = (
        (x_shape[2 + i] + sides[i] + sides[2 + i] - dilation[i] * (w_shape[2 + i] - 1) - 1) // stride[i] + 1
        for i in (0, 1)
    )
    return x_shape[0], w_shape[0], rows, columns


def in_groups(x: ArrayLike, groups: int) -> Doubles:
    """The channels (filters) as two axes: group, and channel of the group."""
    maps = wide(x)
    return maps.reshape(len(maps), groups, -1, *maps.shape[2:])


def tap_in_groups(w: Array, tap: Pair, groups: int) -> Doubles:
    """One tap of all filters: group, filter of the group, channel of the group."""
    return wide(w[:, :, tap[0], tap[1]]).reshape(groups, -1, w.shape[1])


def conv_forward(
    x: Array,
    w: Array,
    b: Array | None = None,
    stride: Pair = (1, 1),
    pad: Sequence[int] = (0, 0),
    dilation: Pair = (1, 1),
) -> Array:
    """y[n,k,p,q] = b[k] + sum over c, r, s of w[k,c,r,s] · x[n, c, p·stride + r·dilation - pad, q·stride + s·…].

    With groups, c counts the channels of the group of filter k.
    """
    y = np.zeros(conv_output_shape(x.shape, w.shape, stride, pad, dilation))
    out, groups = y.shape[2:], x.shape[1] // w.shape[1]
    image = padded(x, pad)
    for tap in taps(w.shape):
        met = in_groups(image[seen_by(tap, out, stride, dilation)], groups)
        y += np.einsum("ngchw,gkc->ngkhw", met, tap_in_groups(w, tap, groups), optimize=True).reshape(y.shape)
    if b is not None:
        y += wide(b)[None, :, None, None]
    return rounded(y)


def conv_backward_data(
    dy: Array,
    w: Array,
    x_shape: Sequence[int],
    stride: Pair = (1, 1),
    pad: Sequence[int] = (0, 0),
    dilation: Pair = (1, 1),
) -> Array:
    """The gradient of x: each tap gives back what it took, where it took it."""
    image = padded(np.zeros(x_shape), pad)
    groups = x_shape[1] // w.shape[1]
    for tap in taps(w.shape):
        part = image[seen_by(tap, dy.shape[2:], stride, dilation)]
        weights = tap_in_groups(w, tap, groups)
        part += np.einsum("ngkhw,gkc->ngchw", in_groups(dy, groups), weights, optimize=True).reshape(part.shape)
    (height, width), (top, left, _, _) = x_shape[2:], four_sides(pad)
    return rounded(image[:, :, top : top + height, left : left + width])


def conv_backward_filter(
    x: Array,
    dy: Array,
    w_shape: Sequence[int],
    stride: Pair = (1, 1),
    pad: Sequence[int] = (0, 0),
    dilation: Pair = (1, 1),
) -> Array:
    """The gradient of w: for each tap, what it met times what became of it."""
    dw = np.zeros(w_shape)
    groups = x.shape[1] // w_shape[1]
    image = padded(x, pad)
    for r, s in taps(w_shape):
        met = in_groups(image[seen_by((r, s), dy.shape[2:], stride, dilation)], groups)
        gradient = np.einsum("ngkhw,ngchw->gkc", in_groups(dy, groups), met, optimize=True)
        dw[:, :, r, s] = gradient.reshape(w_shape[:2])
    return rounded(dw)


def conv_backward_bias(dy: Array) -> Array:
    return rounded(wide(dy).sum(axis=(0, 2, 3)))


def conv_add_bias(b: Array, y: Array) -> Array:
    return rounded(wide(y) + per_channel(b, y))


# -- pooling -----------------------------------------------------------------------------------------------------------


def pool_output_shape(
    x_shape: Sequence[int], window: Pair, stride: Pair, pad: Sequence[int] = (0, 0), ceil: bool = False
) -> tuple[int, ...]:
    """With `ceil` a last window may hang over the edge, but it never starts in the padding beyond it."""
    out = []
    sides = four_sides(pad)
    for size, length, step, before, after in zip(x_shape[2:], window, stride, sides[:2], sides[2:], strict=True):
        room = size + before + after - length
        count = (-(-room // step) if ceil else room // step) + 1
        if ceil and (count - 1) * step >= size + before:
            count -= 1
        out.append(count)
    return x_shape[0], x_shape[1], *out


def pool_windows(
    x_shape: Sequence[int], window: Pair, stride: Pair, pad: Sequence[int], ceil: bool
) -> Iterator[tuple[int, int, slice, slice, int]]:
    """Every window: its output row and column, the rows and columns of x that it covers, and its area with padding.

    The area counts the padding on all sides, but not what a window of ceiling mode hangs over beyond it.
    """
    _, _, rows, columns = pool_output_shape(x_shape, window, stride, pad, ceil)
    height, width = x_shape[2:]
    above, before, below, after = four_sides(pad)
    for p in range(rows):
        top = p * stride[0] - above
        bottom = min(top + window[0], height + below)
        for q in range(columns):
            left = q * stride[1] - before
            right = min(left + window[1], width + after)
            covered = slice(max(top, 0), min(bottom, height)), slice(max(left, 0), min(right, width))
            yield p, q, *covered, (bottom - top) * (right - left)


def pool_forward(
    x: Array,
    window: Pair,
    stride: Pair,
    pad: Sequence[int] = (0, 0),
    mode: str = "max",
    ceil: bool = False,
    count_padding: bool = True,
) -> Array:
    """The largest value or the average of every window; padding never is the largest, and counts as zeros if asked."""
    y = np.zeros(pool_output_shape(x.shape, window, stride, pad, ceil))
    for p, q, rows, columns, area in pool_windows(x.shape, window, stride, pad, ceil):
        seen = wide(x[:, :, rows, columns])
        if mode == "max":
            y[:, :, p, q] = seen.max(axis=(2, 3))
        else:
            y[:, :, p, q] = seen.sum(axis=(2, 3)) / (area if count_padding else seen.shape[2] * seen.shape[3])
    return rounded(y)


def pool_backward(
    x: Array,
    y: Array,
    dy: Array,
    window: Pair,
    stride: Pair,
    pad: Sequence[int] = (0, 0),
    mode: str = "max",
    ceil: bool = False,
    count_padding: bool = True,
) -> Array:
    """The gradient of x.  Of several largest values in a window, the first (row by row) gets all."""
    dx = np.zeros(x.shape)
    image, channel = np.indices(x.shape[:2])
    for p, q, rows, columns, area in pool_windows(x.shape, window, stride, pad, ceil):
        seen, given = dx[:, :, rows, columns], wide(dy[:, :, p, q])
        if mode == "max":
            largest = x[:, :, rows, columns] == y[:, :, p, q, None, None]  # nowhere, if it is not a number
            first = largest.reshape(*x.shape[:2], -1).argmax(axis=2)
            row, column = np.unravel_index(first, seen.shape[2:])
            seen[image, channel, row, column] += given * largest.any(axis=(2, 3))
        else:
            seen += given[:, :, None, None] / (area if count_padding else seen.shape[2] * seen.shape[3])
    return rounded(dx)


def pool_position_forward(
    x: Array, window: Pair, stride: Pair, pad: Sequence[int] = (0, 0), ceil: bool = False, rectified: bool = False
) -> tuple[Array, np.ndarray]:
    """The largest value of every window, and which element that is, as a byte: 127 if it is not a number.

    127, too, where it is 0, if x is rectified.
    """
    y = pool_forward(x, window, stride, pad, ceil=ceil)
    above, before, *_ = four_sides(pad)
    found = np.zeros((*x.shape[:2], -(-y[0, 0].size // 4) * 4), np.uint8)
    for p, q, rows, columns, _ in pool_windows(x.shape, window, stride, pad, ceil):
        largest = x[:, :, rows, columns] == y[:, :, p, q, None, None]
        largest &= ~(rectified & (y[:, :, p, q, None, None] == 0))
        row, column = np.unravel_index(largest.reshape(*x.shape[:2], -1).argmax(axis=2), largest.shape[2:])
        row, column = row + rows.start - p * stride[0] + above, column + columns.start - q * stride[1] + before
        found[:, :, p * y.shape[3] + q] = np.where(largest.any(axis=(2, 3)), row * window[1] + column, 127)
    return y, found.view("<i4")


def pool_position_backward(
    positions: np.ndarray, dy: Array, x_shape: Sequence[int], window: Pair, stride: Pair, pad: Sequence[int] = (0, 0)
) -> Array:
    """The gradient of x: each dy goes to the element at its position."""
    dx, bytes_ = np.zeros(x_shape), np.ascontiguousarray(positions).view(np.uint8)
    for p, q in np.ndindex(*dy.shape[2:]):
        position = bytes_[:, :, p * dy.shape[3] + q].astype(int)
        image, channel = np.nonzero(position != 127)
        row, column = np.divmod(position[image, channel], window[1])
        row, column = row + p * stride[0] - pad[0], column + q * stride[1] - pad[1]
        dx[image, channel, row, column] += wide(dy[image, channel, p, q])
    return rounded(dx)


def pool_to_windows(x_shape: Sequence[int], out: Pair) -> Iterator[tuple[int, int, slice, slice]]:
    """Output row and column, and the rows and columns of x: parts of the map, each rounded outwards."""

    def parts(size: int, count: int) -> list[slice]:
        return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]

    for p, rows in enumerate(parts(x_shape[2], out[0])):
        for q, columns in enumerate(parts(x_shape[3], out[1])):
            yield p, q, rows, columns


def pool_forward_to(x: Array, out: Pair, mode: str = "average") -> Array:
    """Pooling to maps of a given size."""
    y = np.zeros((*x.shape[:2], *out))
    for p, q, rows, columns in pool_to_windows(x.shape, out):
        seen = wide(x[:, :, rows, columns])
        y[:, :, p, q] = seen.max(axis=(2, 3)) if mode == "max" else seen.mean(axis=(2, 3))
    return rounded(y)


def pool_backward_to(x: Array, y: Array, dy: Array, out: Pair, mode: str = "average") -> Array:
    """The gradient of x.  Of several largest values in a window, the first (row by row) gets all."""
    dx = np.zeros(x.shape)
    image, channel = np.indices(x.shape[:2])
    for p, q, rows, columns in pool_to_windows(x.shape, out):
        seen, given = dx[:, :, rows, columns], wide(dy[:, :, p, q])
        if mode == "max":
            largest = x[:, :, rows, columns] == y[:, :, p, q, None, None]
            first = largest.reshape(*x.shape[:2], -1).argmax(axis=2)
            row, column = np.unravel_index(first, seen.shape[2:])
            seen[image, channel, row, column] += given * largest.any(axis=(2, 3))
        else:
            seen += given[:, :, None, None] / (seen.shape[2] * seen.shape[3])
    return rounded(dx)


# -- upsampling --------------------------------------------------------------------------------------------------------


def upsample_weights(size: int, out: int, mode: str, align_corners: bool) -> Doubles:
    """A row an output: the weight of each of `size` values."""
    weights = np.zeros((out, size))
    for p in range(out):
        if mode == "nearest":
            weights[p, p * size // out] = 1
            continue
        place = p * (size - 1) / max(out - 1, 1) if align_corners else max((p + 0.5) * size / out - 0.5, 0)
        before = min(int(place + 1e-9), size - 1)
        weights[p, before] += 1 - (place - before)
        weights[p, min(before + 1, size - 1)] += place - before
    return weights


def upsample_forward(x: Array, out: Sequence[int], mode: str = "nearest", align_corners: bool = False) -> Array:
    rows, columns = (upsample_weights(*sizes, mode, align_corners) for sizes in zip(x.shape[2:], out, strict=True))
    return rounded(rows @ wide(x) @ columns.T)


def upsample_backward(dy: Array, size: Sequence[int], mode: str = "nearest", align_corners: bool = False) -> Array:
    rows, columns = (upsample_weights(*sizes, mode, align_corners) for sizes in zip(size, dy.shape[2:], strict=True))
    return rounded(rows.T @ wide(dy) @ columns)


# -- fully connected: w is (outputs, inputs); x may have any shape after the batch -------------------------------------


def fc_forward(x: Array, w: Array, b: Array | None = None) -> Array:
    y = wide(x).reshape(len(x), -1) @ wide(w).T
    return rounded(y if b is None else y + wide(b))


def fc_backward_data(dy: Array, w: Array) -> Array:
    return rounded(wide(dy) @ wide(w))


def fc_backward_filter(x: Array, dy: Array) -> Array:
    return rounded(wide(dy).T @ wide(x).reshape(len(x), -1))


def fc_backward_bias(dy: Array) -> Array:
    return rounded(wide(dy).sum(axis=0))


# -- relu --------------------------------------------------------------------------------------------------------------


def relu_forward(x: Array, at_most: float | None = None) -> Array:
    return rounded(np.clip(wide(x), 0, at_most))


def relu_backward(y: Array, dy: Array, at_most: float | None = None) -> Array:
    """y serves as well as x would: it is inside where x is.  (Where y is not a number the gradient passes.)"""
    above = False if at_most is None else wide(y) >= at_most
    return rounded(np.where((wide(y) <= 0) | above, 0, wide(dy)))


def relu_sign_forward(x: Array, at_most: float | None = None) -> tuple[Array, np.ndarray]:
    """y, and a bit an element: whether its gradient passes."""
    y = relu_forward(x, at_most)
    bits = relu_backward(y, np.ones_like(y), at_most).ravel() == 1
    return y, np.packbits(np.pad(bits, (0, -bits.size % 32)), bitorder="little").view("<i4")


def relu_sign_backward(signs: np.ndarray, dy: Array) -> Array:
    bits = np.unpackbits(np.ascontiguousarray(signs).view(np.uint8), count=dy.size, bitorder="little")
    return rounded(np.where(bits.reshape(dy.shape) == 1, wide(dy), 0))


# -- smooth activations, and the leaky rectifier -----------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu_forward(x: Array, approximate: str = "none") -> Array:
    return rounded(wide(x) * _gelu_share(wide(x), approximate)[0])


def gelu_backward(x: Array, dy: Array, approximate: str = "none") -> Array:
    share, slope = _gelu_share(wide(x), approximate)
    return rounded(wide(dy) * (share + wide(x) * slope))


def _gelu_share(x: NDArray[np.float64], approximate: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Φ(x), or its tanh formula, and its derivative."""
    if approximate == "none":
        return (1 + erf(x / np.sqrt(2))) / 2, np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return (1 + t) / 2, (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x) / 2


def sigmoid_forward(x: Array) -> Array:
    return rounded(_sigmoid(x))


def sigmoid_backward(y: Array, dy: Array) -> Array:
    return rounded(wide(dy) * wide(y) * (1 - wide(y)))


def _sigmoid(x: Array) -> NDArray[np.float64]:
    return (1 + np.tanh(wide(x) / 2)) / 2  # no exponential that overflows


def tanh_forward(x: Array) -> Array:
    return rounded(np.tanh(wide(x)))


def tanh_backward(y: Array, dy: Array) -> Array:
    return rounded(wide(dy) * (1 - wide(y) ** 2))


def silu_forward(x: Array) -> Array:
    return rounded(wide(x) * _sigmoid(x))


def silu_backward(x: Array, dy: Array) -> Array:
    share = _sigmoid(x)
    return rounded(wide(dy) * (share + wide(x) * share * (1 - share)))


def hardsigmoid_forward(x: Array) -> Array:
    return rounded(np.clip(wide(x) / 6 + 0.5, 0, 1))


def hardsigmoid_backward(y: Array, dy: Array) -> Array:
    return rounded(np.where((wide(y) <= 0) | (wide(y) >= 1), 0, wide(dy) / 6))


def hardswish_forward(x: Array) -> Array:
    return rounded(wide(x) * np.clip(wide(x) / 6 + 0.5, 0, 1))


def hardswish_backward(x: Array, dy: Array) -> Array:
    slope = np.where(wide(x) < -3, 0, np.where(wide(x) > 3, 1, wide(x) / 3 + 0.5))
    return rounded(wide(dy) * slope)


def leaky_relu_forward(x: Array, negative_slope: float) -> Array:
    return rounded(np.where(wide(x) > 0, wide(x), np.float32(negative_slope) * wide(x)))


def leaky_relu_backward(y: Array, dy: Array, negative_slope: float) -> Array:
    return rounded(np.where(wide(y) > 0, wide(dy), np.float32(negative_slope) * wide(dy)))


# -- products: a gate has x's shape or one number a map ----------------------------------------------------------------


def mul_forward(x: Array, gate: Array) -> Array:
    return rounded(wide(x) * _wide_gate(x, gate))


def mul_backward(x: Array, gate: Array, dy: Array) -> tuple[Array, Array]:
    dx, dgate = wide(dy) * _wide_gate(x, gate), wide(dy) * wide(x)
    if gate.shape != x.shape:
        dgate = dgate.sum(axis=tuple(range(2, x.ndim))).reshape(gate.shape)
    return rounded(dx), rounded(dgate)


def _wide_gate(x: Array, gate: Array) -> Doubles:
    return wide(gate if gate.shape == x.shape else gate.reshape(*x.shape[:2], *(1 for _ in x.shape[2:])))


def scale_forward(x: Array, w: Array) -> Array:
    return rounded(wide(x) * _by_channel(x, w))


def scale_backward(x: Array, w: Array, dy: Array) -> tuple[Array, Array]:
    dw = (wide(dy) * wide(x)).sum(axis=tuple(axis for axis in range(x.ndim) if axis != 1))
    return rounded(wide(dy) * _by_channel(x, w)), rounded(dw)


def _by_channel(x: Array, w: Array) -> Doubles:
    return wide(w).reshape(1, -1, *(1 for _ in x.shape[2:]))


# -- tokens ------------------------------------------------------------------------------------------------------------


def embedding_forward(tokens: NDArray[np.int32], w: Array) -> Array:
    """Every token's row of w, as channels; NaN for what is no token."""
    rows = np.where(is_token(tokens, len(w))[..., None], w.reshape(len(w), -1)[tokens % len(w)], np.nan)
    return rounded(np.moveaxis(rows, -1, 1))


def is_token(tokens: NDArray[np.int32], words: int) -> NDArray[np.bool_]:
    return (tokens >= 0) & (tokens < words)


def embedding_backward(tokens: NDArray[np.int32], dy: Array, words: int, padding: int | None = None) -> Array:
    """A row for every word: the sum over its places; none for the word of padding."""
    rows = np.moveaxis(wide(dy).reshape(*dy.shape[:2], -1), 1, -1).reshape(tokens.size, -1)
    dw = np.zeros((words, rows.shape[1]))
    known = is_token(tokens, words).reshape(-1)
    np.add.at(dw, tokens.reshape(-1)[known], rows[known])
    if padding is not None:
        dw[padding] = 0
    return rounded(dw)


def position_forward(x: Array, w: Array) -> Array:
    return rounded(wide(x) + wide(w).reshape(*w.shape, *(1 for _ in x.shape[1 + w.ndim :])))


def position_backward(dy: Array, alike: bool = False) -> Array:
    return rounded(wide(dy).sum(axis=(0, 2, 3) if alike else 0))


# -- local response normalisation, across channels ---------------------------------------------------------------------


def across(values: Doubles, before: int, after: int) -> Doubles:
    """For every channel c, the sum over the channels from c - before to c + after that exist."""
    channels = values.shape[1]
    sums = [values[:, max(c - before, 0) : min(c + after, channels - 1) + 1].sum(axis=1) for c in range(channels)]
    return np.stack(sums, axis=1)


def lrn_denominator(x: Array, size: int, alpha: float, k: float, ahead: int) -> Doubles:
    """k + alpha/size · (sum of the squares of `size` neighbouring channels, `ahead` of them further on)."""
    return k + alpha / size * across(wide(x) ** 2, before=size - 1 - ahead, after=ahead)


def lrn_ahead(size: int, ahead: int | None) -> int:
    """An even size looks one channel further back than forward, unless something else is asked."""
    return (size - 1) // 2 if ahead is None else ahead


def lrn_forward(
    x: Array, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, ahead: int | None = None
) -> Array:
    return rounded(wide(x) / lrn_denominator(x, size, alpha, k, lrn_ahead(size, ahead)) ** beta)


def lrn_backward(
    x: Array,
    y: Array,
    dy: Array,
    size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    ahead: int | None = None,
) -> Array:
    """x[i] is in the numerator of y[i] and in the denominators of the channels that look at i: the window mirrored."""
    after = lrn_ahead(size, ahead)
    denominator = lrn_denominator(x, size, alpha, k, after)
    through = across(wide(dy) * wide(y) / denominator, before=after, after=size - 1 - after)
    return rounded(wide(dy) / denominator**beta - 2 * alpha * beta / size * wide(x) * through)


# -- batch normalisation: statistics per channel (axis 1) --------------------------------------------------------------


def per_channel(values: ArrayLike, like: Array) -> Doubles:
    """Shaped so that it broadcasts against `like`, one value a channel."""
    return wide(values).reshape(1, -1, *(1,) * (like.ndim - 2))


def over_channels(x: Array) -> tuple[int, ...]:
    """All axes but that of the channels."""
    return 0, *range(2, x.ndim)


def batchnorm_statistics(x: Array, epsilon: float = 1e-5) -> tuple[Array, Array]:
    """Mean and 1 / sqrt(variance + epsilon), the variance divided by the count (biased)."""
    axes = over_channels(x)
    return rounded(wide(x).mean(axis=axes)), rounded(1 / np.sqrt(wide(x).var(axis=axes) + epsilon))


def batchnorm_forward(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-5) -> tuple[Array, Array, Array]:
    """y, mean and inverse standard deviation."""
    mean, variance = wide(x).mean(axis=over_channels(x)), wide(x).var(axis=over_channels(x))
    return batchnorm_inference(x, gamma, beta, mean, variance, epsilon), *batchnorm_statistics(x, epsilon)


def batchnorm_update_running(
    mean: Array,
    inverse_std: Array,
    running_mean: Array,
    running_variance: Array,
    count: int,
    momentum: float = 0.1,
    epsilon: float = 1e-5,
) -> tuple[Array, Array]:
    """The running statistics, moved by `momentum` towards the batch's; the variance as an estimate (unbiased).

    `count` is the number of values a channel has; the variance of a single one is zero, not 0/0.
    """
    variance = 1 / wide(inverse_std) ** 2 - epsilon
    unbiased = variance * count / max(count - 1, 1)
    return (
        rounded((1 - momentum) * wide(running_mean) + momentum * wide(mean)),
        rounded((1 - momentum) * wide(running_variance) + momentum * unbiased),
    )


def batchnorm_inference(
    x: Array,
    gamma: Array,
    beta: Array,
    running_mean: ArrayLike,
    running_variance: ArrayLike,
    epsilon: float = 1e-5,
) -> Array:
    normal = (wide(x) - per_channel(running_mean, x)) / np.sqrt(per_channel(running_variance, x) + epsilon)
    return rounded(per_channel(gamma, x) * normal + per_channel(beta, x))


def batchnorm_backward(
    x: Array, gamma: Array, mean: Array, inverse_std: Array, dy: Array
) -> tuple[Array, Array, Array]:
    """dx, dgamma, dbeta.  The mean and the variance depend on x too, hence the two terms taken off dy."""
    axes, count = over_channels(x), x.size // x.shape[1]
    normal = (wide(x) - per_channel(mean, x)) * per_channel(inverse_std, x)
    dbeta = wide(dy).sum(axis=axes)
    dgamma = (wide(dy) * normal).sum(axis=axes)
    centred = wide(dy) - per_channel(dbeta, x) / count - normal * per_channel(dgamma, x) / count
    return rounded(per_channel(gamma, x) * per_channel(inverse_std, x) * centred), rounded(dgamma), rounded(dbeta)


# -- dropout: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011) -------


def in_sets(x: ArrayLike, groups: int | None) -> Doubles:
    """x with the axes of a set last: (images, positions, channels), or (images, groups, values)."""
    flat = wide(x).reshape(*np.shape(x)[:2], -1)
    return flat.transpose(0, 2, 1) if groups is None else flat.reshape(len(flat), groups, -1)


def out_of_sets(sets: Doubles, x: Array, groups: int | None) -> Doubles:
    """Back in x's shape."""
    return (sets.transpose(0, 2, 1) if groups is None else sets).reshape(x.shape)


def layernorm_forward(
    x: Array, gamma: Array | None, beta: Array | None, groups: int | None = None, epsilon: float = 1e-5
) -> tuple[Array, Array, Array]:
    """y, mean and inverse_std; groups=None: over the channels of each position."""
    sets = in_sets(x, groups)
    mean, inverse_std = sets.mean(axis=2), 1 / np.sqrt(sets.var(axis=2) + epsilon)
    y = out_of_sets((sets - mean[..., None]) * inverse_std[..., None], x, groups)
    if gamma is not None and beta is not None:
        y = y * per_channel(gamma, x) + per_channel(beta, x)
    return rounded(y), rounded(mean), rounded(inverse_std)


def layernorm_backward(
    x: Array, gamma: Array | None, dy: Array, groups: int | None = None, epsilon: float = 1e-5
) -> list[Array]:
    """dx, and with gamma dgamma and dbeta."""
    sets = in_sets(x, groups)
    inverse_std = 1 / np.sqrt(sets.var(axis=2, keepdims=True) + epsilon)
    normal = (sets - sets.mean(axis=2, keepdims=True)) * inverse_std
    given = wide(dy) if gamma is None else wide(dy) * per_channel(gamma, x)
    g = in_sets(given, groups)
    dx = inverse_std * (g - g.mean(axis=2, keepdims=True) - normal * (g * normal).mean(axis=2, keepdims=True))
    slopes = [] if gamma is None else [wide(dy) * out_of_sets(normal, x, groups), wide(dy)]
    axes = over_channels(x)
    return [rounded(out_of_sets(dx, x, groups)), *(rounded(slope.sum(axis=axes)) for slope in slopes)]


def rmsnorm_forward(x: Array, gamma: Array | None, epsilon: float = 1e-6) -> tuple[Array, Array]:
    """y and inverse_rms."""
    sets = in_sets(x, None)
    inverse_rms = 1 / np.sqrt((sets * sets).mean(axis=2) + epsilon)
    y = out_of_sets(sets * inverse_rms[..., None], x, None)
    return rounded(y if gamma is None else y * per_channel(gamma, x)), rounded(inverse_rms)


def rmsnorm_backward(x: Array, gamma: Array | None, dy: Array, epsilon: float = 1e-6) -> list[Array]:
    """dx, and with gamma dgamma."""
    sets = in_sets(x, None)
    inverse_rms = 1 / np.sqrt((sets * sets).mean(axis=2, keepdims=True) + epsilon)
    normal = sets * inverse_rms
    g = in_sets(wide(dy) if gamma is None else wide(dy) * per_channel(gamma, x), None)
    dx = out_of_sets(inverse_rms * (g - normal * (g * normal).mean(axis=2, keepdims=True)), x, None)
    slopes = [] if gamma is None else [wide(dy) * out_of_sets(normal, x, None)]
    return [rounded(dx), *(rounded(slope.sum(axis=over_channels(x))) for slope in slopes)]


def rotated(
    x: Array, heads: int, kv_heads: int | None = None, packed: bool = True, rotated: int | None = None,
    neighbours: bool = False, base: float = 10000.0, back: bool = False,
) -> Array:  # fmt: skip
    """Queries and keys turned by angles that grow with the token's place, or back."""
    groups = (kv_heads or heads) if packed else heads
    members = heads // groups + 2 if packed else 1
    y = wide(x).reshape(len(x), groups, members, x.shape[1] // groups // members, -1).copy()
    turned = y[:, :, : members - 1] if packed else y
    count = rotated or y.shape[3]
    angles = np.outer(base ** (-2 * np.arange(count // 2) / count), np.arange(y.shape[4])) * (-1 if back else 1)
    first = slice(0, count, 2) if neighbours else slice(0, count // 2)
    other = slice(1, count, 2) if neighbours else slice(count // 2, count)
    across, along = turned[..., first, :].copy(), turned[..., other, :].copy()
    turned[..., first, :] = across * np.cos(angles) - along * np.sin(angles)
    turned[..., other, :] = along * np.cos(angles) + across * np.sin(angles)
    return rounded(y.reshape(x.shape))


def rotary_forward(x: Array, **how: Any) -> Array:
    """Options as of `rotated`."""
    return rotated(x, **how)


def rotary_backward(dy: Array, **how: Any) -> Array:
    """The gradient of x."""
    return rotated(dy, **how, back=True)


def attended(inputs: Sequence[Array], heads: int, kv_heads: int | None = None, causal: bool = False) -> list[Doubles]:
    """Queries, keys, values and probabilities: images × groups × queries of a group × … ; the last axis is the tokens'.

    Args:
        inputs: one map that has them group by group, or three maps.
        heads: of the queries.
        kv_heads: groups; None: as many as heads.
        causal: whether a query sees the keys up to its own.
    """
    groups = kv_heads or heads
    rows = [wide(x).reshape(len(x), groups, -1, int(np.prod(x.shape[2:]))) for x in inputs]
    if len(rows) == 1:
        width = rows[0].shape[2] // (heads // groups + 2)
        rows = np.split(rows[0], [width * (heads // groups), width * (heads // groups + 1)], axis=2)
    keys, values = (x[:, :, None] for x in rows[1:])
    queries = rows[0].reshape(*rows[0].shape[:2], heads // groups, keys.shape[3], -1)
    scores = np.einsum("ngrdi,ngsdj->ngrij", queries, keys) / np.sqrt(keys.shape[3])
    if causal:
        scores[..., ~np.tri(scores.shape[-1], dtype=bool)] = -np.inf
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return [queries, keys, values, grown / grown.sum(axis=-1, keepdims=True)]


def attention_forward(inputs: Sequence[Array], heads: int, kv_heads: int | None = None, causal: bool = False) -> Array:
    """Every query's mean of the values, with the softmax of its products with the keys as weights."""
    _, _, values, p = attended(inputs, heads, kv_heads, causal)
    y = np.einsum("ngsdj,ngrij->ngrdi", values, p)
    return rounded(y.reshape(len(y), -1, *inputs[0].shape[2:]))


def attention_backward(
    inputs: Sequence[Array], dy: Array, heads: int, kv_heads: int | None = None, causal: bool = False
) -> list[Array]:
    """The gradients of the inputs."""
    queries, keys, values, p = attended(inputs, heads, kv_heads, causal)
    given = wide(dy).reshape(queries.shape)
    dp = np.einsum("ngrdi,ngsdj->ngrij", given, values)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)) / np.sqrt(keys.shape[3])
    dq = np.einsum("ngsdj,ngrij->ngrdi", keys, ds).reshape(*queries.shape[:2], -1, queries.shape[-1])
    dk, dv = np.einsum("ngrdi,ngrij->ngdj", queries, ds), np.einsum("ngrdi,ngrij->ngdj", given, p)
    slopes = [dq, dk, dv] if len(inputs) == 3 else [np.concatenate([dq, dk, dv], axis=2)]
    return [rounded(slope.reshape(x.shape)) for slope, x in zip(slopes, inputs, strict=True)]


def scores_forward(x: Array, heads: int, causal: bool = False) -> Array:
    """The probabilities of every query's keys, head by head, from queries and keys."""
    queries, keys = np.moveaxis(wide(x).reshape(len(x), heads, 2, -1, int(np.prod(x.shape[2:]))), 2, 0)
    values = np.zeros_like(keys)
    maps = [rounded(one.reshape(len(x), -1, one.shape[-1])) for one in (queries, keys, values)]
    return rounded(attended(maps, heads, causal=causal)[3][:, :, 0])


def scores_backward(x: Array, dp: Array, heads: int, causal: bool = False) -> Array:
    """The gradient of queries and keys."""
    queries, keys = np.moveaxis(wide(x).reshape(len(x), heads, 2, -1, int(np.prod(x.shape[2:]))), 2, 0)
    p = wide(scores_forward(x, heads, causal))
    ds = p * (wide(dp) - (p * wide(dp)).sum(axis=-1, keepdims=True)) / np.sqrt(queries.shape[2])
    both = np.einsum("nhdj,nhij->nhdi", keys, ds), np.einsum("nhdi,nhij->nhdj", queries, ds)
    return rounded(np.stack(both, axis=2).reshape(x.shape))


def mix_forward(p: Array, x: Array) -> Array:
    """Every query's mean of the values in x, weighted by its probabilities."""
    values = wide(x).reshape(*p.shape[:2], -1, p.shape[3])
    return rounded(np.einsum("nhdj,nhij->nhdi", values, wide(p)).reshape(len(p), -1, p.shape[2], 1))


def mix_backward(p: Array, x: Array, dy: Array) -> list[Array]:
    """The gradients of probabilities and values."""
    values = wide(x).reshape(*p.shape[:2], -1, p.shape[3])
    given = wide(dy).reshape(*values.shape[:3], -1)
    dx = np.einsum("nhdi,nhij->nhdj", given, wide(p)).reshape(x.shape)
    return [rounded(np.einsum("nhdi,nhdj->nhij", given, values)), rounded(dx)]


def philox(counter: ArrayLike, key: ArrayLike) -> NDArray[np.uint32]:
    """Four random words for every counter (…, 4) under a key of two words: ten rounds of multiply, swap and xor."""
    low_half, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, x2, x3 = np.moveaxis(np.asarray(counter, dtype=np.uint64), -1, 0)
    k0, k1 = np.asarray(key, dtype=np.uint64)
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * x0, np.uint64(0xCD9E8D57) * x2
        x0, x1, x2, x3 = (
            (second >> shift) ^ x1 ^ k0,
            second & low_half,
            (first >> shift) ^ x3 ^ k1,
            first & low_half,
        )
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low_half, (k1 + np.uint64(0xBB67AE85)) & low_half
    return np.stack([x0, x1, x2, x3], axis=-1).astype(np.uint32)


def dropout_mask(
    shape: int | Sequence[int], probability: float, seed: int, layer: int, iteration: int
) -> NDArray[np.bool_]:
    """Which elements are kept: those whose random word is at least probability · 2³².

    Element i takes word i // 256 % 4 of the counter (i // 1024 · 256 + i % 256, layer, iteration's low half, its high
    half), so that four elements that are 256 apart share a counter; the key is the seed.
    """
    size = int(np.prod(shape))
    counter = np.zeros((-(-size // 1024) * 256, 4), dtype=np.uint64)
    counter[:, 0] = np.arange(len(counter))
    counter[:, 1:] = layer, iteration % 2**32, iteration // 2**32
    groups = philox(counter, (seed % 2**32, seed // 2**32)).reshape(-1, 256, 4)
    words = groups.swapaxes(1, 2).reshape(-1)[:size]
    return (words >= np.uint64(int(probability * 2**32))).reshape(shape)


def dropout_forward(x: Array, probability: float, seed: int, layer: int, iteration: int) -> Array:
    """Dropped elements are zero, the others scaled so that the expectation stays."""
    kept = dropout_mask(x.shape, probability, seed, layer, iteration)
    return rounded(np.where(kept, wide(x) / (1 - probability), 0))


def dropout_backward(dy: Array, probability: float, seed: int, layer: int, iteration: int) -> Array:
    """The same elements dropped and scaled: the layer is linear."""
    return dropout_forward(dy, probability, seed, layer, iteration)


def drop_path_forward(x: Array, probability: float, seed: int, layer: int, iteration: int) -> Array:
    """Dropped images are zero, the others scaled; image n takes word 0 of the counter (n, layer, iteration)."""
    counter = np.zeros((len(x), 4), dtype=np.uint64)
    counter[:, 0] = np.arange(len(x))
    counter[:, 1:] = layer, iteration % 2**32, iteration // 2**32
    kept = philox(counter, (seed % 2**32, seed // 2**32))[:, 0] >= np.uint64(int(probability * 2**32))
    return rounded(np.where(kept.reshape(-1, *(1 for _ in x.shape[1:])), wide(x) / (1 - probability), 0))


def drop_path_backward(dy: Array, probability: float, seed: int, layer: int, iteration: int) -> Array:
    return drop_path_forward(dy, probability, seed, layer, iteration)


# -- channels and rows in other places ---------------------------------------------------------------------------------


def channel_shuffle_forward(x: Array, groups: int) -> Array:
    return x.reshape(len(x), groups, x.shape[1] // groups, -1).swapaxes(1, 2).reshape(x.shape)


def channel_shuffle_backward(dy: Array, groups: int) -> Array:
    return channel_shuffle_forward(dy, dy.shape[1] // groups)


def permute_channels_forward(x: Array, order: Sequence[int]) -> Array:
    return x[:, np.asarray(order)]


def permute_channels_backward(dy: Array, order: Sequence[int]) -> Array:
    return dy[:, np.argsort(order)]


def prepend_forward(x: Array, w: Array) -> Array:
    tokens = x.reshape(*x.shape[:2], -1, 1)
    return np.concatenate([np.broadcast_to(w[None, :, :, None], (*x.shape[:2], 1, 1)), tokens], 2)


def prepend_backward(dy: Array, x_shape: Sequence[int]) -> tuple[Array, Array]:
    """dx and dw."""
    return dy[:, :, 1:].reshape(x_shape), rounded(wide(dy)[:, :, 0].sum(0))


def take_forward(x: Array, count: int, axis: int = 1, start: int = 0) -> Array:
    return np.take(x, range(start, start + count), axis)


def take_backward(dy: Array, x_shape: Sequence[int], axis: int = 1, start: int = 0) -> Array:
    dx = np.zeros(x_shape, np.float32)
    np.moveaxis(dx, axis, 0)[start : start + dy.shape[axis]] = np.moveaxis(dy, axis, 0)
    return dx


def pad_forward(x: Array, pad: Sequence[int], value: float = 0.0) -> Array:
    return rounded(padded(x, pad, value))


def pad_backward(dy: Array, pad: Sequence[int], value: float = 0.0) -> Array:
    top, left, bottom, right = pad
    return dy[:, :, top : dy.shape[2] - bottom, left : dy.shape[3] - right]


# -- softmax and cross-entropy, over rows ------------------------------------------------------------------------------


def softmax_forward(x: Array) -> Array:
    """A row is an image: a row of a matrix, or all its maps."""
    axes = tuple(range(1, x.ndim))
    grown = np.exp(wide(x) - wide(x).max(axis=axes, keepdims=True))
    return rounded(grown / grown.sum(axis=axes, keepdims=True))


def softmax_cross_entropy(y: Array, labels: NDArray[np.int32]) -> Array:
    """One loss a row: minus the logarithm of the right class's probability; NaN if there is no such class."""
    rows = wide(y).reshape(len(y), -1)
    is_class = (labels >= 0) & (labels < rows.shape[1])
    with np.errstate(divide="ignore"):  # a probability of zero is an infinite loss
        return rounded(-np.log(np.where(is_class, rows[np.arange(len(y)), labels * is_class], np.nan)))


def softmax_backward(y: Array, labels: NDArray[np.int32]) -> Array:
    """The gradient of the *mean* loss with respect to the softmax's input."""
    wanted = (np.arange(y[0].size) == labels[:, None]).reshape(y.shape)
    return rounded((wide(y) - wanted) / len(y))


# -- the other losses --------------------------------------------------------------------------------------------------


def pixel_softmax_forward(x: Array) -> Array:
    """A softmax over the channels of every pixel."""
    grown = np.exp(wide(x) - wide(x).max(axis=1, keepdims=True))
    return rounded(grown / grown.sum(axis=1, keepdims=True))


def pixel_softmax_cross_entropy(y: Array, labels: NDArray[np.int32], ignore_index: int = -100) -> tuple[Array, int]:
    """A loss an image, whose mean is that over the pixels that count; and their number."""
    counts = labels != ignore_index
    right = np.take_along_axis(wide(y), np.where(counts, labels, 0)[:, None], axis=1)[:, 0]
    with np.errstate(divide="ignore"):
        each = np.where(counts, -np.log(right), 0).reshape(len(y), -1)
    return rounded(each.sum(axis=1) * len(y) / counts.sum()), int(counts.sum())


def pixel_softmax_backward(y: Array, labels: NDArray[np.int32], ignore_index: int = -100) -> Array:
    """The gradient of the mean loss with respect to the softmax's input."""
    counts = labels != ignore_index
    wanted = np.zeros(y.shape)
    np.put_along_axis(wanted, np.where(counts, labels, 0)[:, None], 1, axis=1)
    return rounded(counts[:, None] * (wide(y) - wanted) / counts.sum())


def pieces_learn(
    x: Array, w: Array, b: Array | None, labels: NDArray[np.int32], ignore_index: int = -100
) -> tuple[Array, int, Array, Array, Array]:
    """Losses, their number, and the gradients of x, w and b, of all logits at once."""
    h, matrix, said = wide(x).reshape(*x.shape[:2], -1), wide(w).reshape(w.shape[:2]), labels.reshape(len(x), -1)
    logits = np.einsum("kc,nct->nkt", matrix, h) + (0 if b is None else wide(b)[:, None])
    grown = np.exp(logits - logits.max(axis=1, keepdims=True))
    y = grown / grown.sum(axis=1, keepdims=True)
    counts = said != ignore_index
    wanted = np.zeros(y.shape)
    np.put_along_axis(wanted, np.where(counts, said, 0)[:, None], 1, axis=1)
    each = np.where(counts, -np.log(np.where(wanted == 1, y, 0).sum(axis=1)), 0)
    dy = counts[:, None] * (y - wanted) / counts.sum()
    dx, dw = np.einsum("kc,nkt->nct", matrix, dy), np.einsum("nkt,nct->kc", dy, h)
    losses = each.sum(axis=1) * len(x) / counts.sum()
    return rounded(losses), int(counts.sum()), rounded(dx), rounded(dw), rounded(dy.sum(axis=(0, 2)))


def mean_loss_forward(x: Array, targets: Array, error: str) -> Array:
    """A loss an image: the mean of its numbers' squared errors, or binary cross-entropies."""
    a, b = wide(x), wide(targets)
    each = (a - b) ** 2 if error == "squared" else np.maximum(a, 0) - a * b + np.log1p(np.exp(-abs(a)))
    return rounded(each.reshape(len(x), -1).mean(axis=1))


def mean_loss_backward(x: Array, targets: Array, error: str) -> Array:
    """The gradient of the mean over all numbers."""
    return rounded(
        (2 * (wide(x) - wide(targets)) if error == "squared" else mean_loss_sigmoid(x) - wide(targets)) / x.size
    )


def mean_loss_sigmoid(x: Array) -> NDArray[np.float64]:
    return np.asarray((1 + np.tanh(wide(x) / 2)) / 2)


# -- concatenation along the channels, join (sum) and fork -------------------------------------------------------------


def concat_forward(inputs: Sequence[Array]) -> Array:
    return np.concatenate(inputs, axis=1)


def concat_backward(dy: Array, channels: Sequence[int]) -> list[Array]:
    """dy, cut into one piece for each number in `channels`."""
    return np.split(dy, np.cumsum(channels)[:-1], axis=1)


def join_forward(inputs: Sequence[Array]) -> Array:
    return rounded(sum(wide(x) for x in inputs))


def join_backward(dy: Array, count: int) -> list[Array]:
    """Each of the `count` summands gets the whole gradient."""
    return [dy.copy() for _ in range(count)]


def join_fork_forward(x: Array, count: int) -> list[Array]:
    """A tensor that several layers read."""
    return [x.copy() for _ in range(count)]


def join_fork_backward(dys: Sequence[Array]) -> Array:
    return rounded(sum(wide(dy) for dy in dys))


# -- element by element, and the optimiser -----------------------------------------------------------------------------


def elementwise_fill(x: Array, value: float) -> Array:
    return np.full_like(x, value)


def elementwise_copy(x: Array) -> Array:
    return x.copy()


def elementwise_axpy(alpha: float, x: Array, y: Array) -> Array:
    return rounded(alpha * wide(x) + wide(y))


def sgd_update(
    w: Array, dw: Array, momentum_buffer: Array, rate: float, momentum: float = 0.0, decay: float = 0.0
) -> tuple[Array, Array]:
    """The new weights and momentum: v = momentum · v + (dw + decay · w), then w = w - rate · v.  v starts as zeros."""
    v = momentum * wide(momentum_buffer) + wide(dw) + decay * wide(w)
    return rounded(wide(w) - rate * v), rounded(v)


def adamw_update(
    w: Array, dw: Array, exp_avg: Array, exp_avg_sq: Array, iteration: int, rate: float,
    beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, decay: float = 0.0,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The new weights and both averages of step `iteration`, counted from 0."""
    mean = beta1 * wide(exp_avg) + (1 - beta1) * wide(dw)
    square = beta2 * wide(exp_avg_sq) + (1 - beta2) * wide(dw) ** 2
    corrected = mean / (1 - beta1 ** (iteration + 1))
    root = np.sqrt(square / (1 - beta2 ** (iteration + 1)))
    return rounded(wide(w) * (1 - rate * decay) - rate * corrected / (root + epsilon)), rounded(mean), rounded(square)


CLIP_PART = 4096  #: numbers whose squares are added up to one number


def clip_square(dw: Array) -> Array:
    """The sum of the squares of each part of a gradient."""
    return rounded(np.add.reduceat(wide(dw).ravel() ** 2, [*range(0, dw.size, CLIP_PART)]))


def clip_norm(squares: Array) -> Array:
    """The norm of all numbers together, one number."""
    return rounded(np.sqrt(wide(squares).sum(keepdims=True)))


def clip_apply(norm: Array, dw: Array, max_norm: float) -> Array:
    """A gradient, scaled so that the norm of all together is at most this."""
    return rounded(wide(dw) * min(1.0, max_norm / (float(norm[0]) + 1e-6)))
