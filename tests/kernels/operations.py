"""One list of operations for all rungs: what is drawn, which functions are called, and which arrays they have filled.

An operation is a function of a rung's families and of a generator.  A rung is `PLAIN` (`kernels`), `FAST`
(`kernels.fast`, where it has the family) or `NUMPY` (`kernels.checks.reference`), with the same arguments.  So each
gets the same arrays, and one list tests the fast kernels beside the plain ones, and these beside NumPy.

The first generators draw awkward shapes: see `AWKWARD`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pkgutil import walk_packages
from typing import Any
from unittest import mock

import numpy as np

import kernels.fast
from kernels import pool_position, relu_sign
from kernels.checks import arguments, reference
from kernels.clip import PART
from kernels.fast import attention, gemm, pool
from kernels.rungs import module_of
from kernels.targets import cpu

#: Images, channels, height, width: a single number; many channels, and several blocks of an image; several chunks of a
#: sum; one number more than a chunk; many images of few numbers.
AWKWARD = ((1, 1, 1, 1), (2, 70, 5, 9), (3, 2, 53, 67), (1, 3, 17, 241), (300, 2, 1, 2))
#: A number; a tile of four a thread and one more; several; a block and one number less or more; many blocks.
LENGTHS = (1, 1025, 4099, 255, 257, 1023, 1024, 70_000)
LARGE = 1_000  #: the generator that draws maps and rows of numbers that fill a GPU


class Draw(np.random.Generator):
    """A generator that knows its number: the first ones draw awkward sizes, a negative one small sizes, LARGE large."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(abs(seed)))
        self.seed, self.small = seed, seed < 0


def normal(random: Draw, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, dtype=np.float32)


def nothing(*shape: int) -> np.ndarray:
    """An output: what a kernel leaves unwritten stays visible."""
    return np.full(shape, np.nan, np.float32)


def like(*arrays: np.ndarray) -> list[np.ndarray]:
    return [nothing(*array.shape) for array in arrays]


def between(random: Draw, least: int, most: int) -> int:
    return int(random.integers(least, most + 1))


def pair(random: Draw, least: int, most: int) -> tuple[int, int]:
    return between(random, least, most), between(random, least, most)


def either(random: Draw) -> bool:
    return bool(random.integers(2))


def one_of(random: Draw, *values: Any) -> Any:
    return values[random.integers(len(values))]


def size(random: Draw, *values: Any) -> Any:
    """One of these sizes, in ascending order."""
    return one_of(random, *values[: 2 if random.small else None])


def maps(random: Draw) -> np.ndarray:
    if random.seed == LARGE:
        return normal(random, 8, 64, 57, 55)
    if 0 <= random.seed < len(AWKWARD):
        return normal(random, *AWKWARD[random.seed])
    return normal(random, between(random, 1, 3), between(random, 1, 6), *pair(random, 1, 6 if random.small else 13))


def numbers(random: Draw) -> np.ndarray:
    if random.seed == LARGE:
        return normal(random, 1 << 22)
    if 0 <= random.seed < len(LENGTHS):
        return normal(random, LENGTHS[random.seed])
    return normal(random, between(random, 1, 300 if random.small else 5000))


Operation = Callable[[Any, Draw], list[np.ndarray]]


# --- Convolution, pooling and fully connected layers ------------------------------------------------------------------


def convolution(rung: Any, random: Draw) -> list[np.ndarray]:
    """As `implicit_gemm` computes it; all algorithms are in `tests/kernels/fast/test_conv.py`."""
    x, walk = maps(random), {"stride": pair(random, 1, 3), "pad": pair(random, 0, 2)}
    filters = [
        between(random, 1, min(3, length + 2 * pad)) for length, pad in zip(x.shape[2:], walk["pad"], strict=True)
    ]
    w, b = normal(random, between(random, 1, 7), x.shape[1], *filters), normal(random, 7)
    return passes(rung, random, x, w, b[: len(w)].copy(), walk)


def groups(rung: Any, random: Draw) -> list[np.ndarray]:
    many, depth, each = (between(random, 1, 3) for _ in range(3))
    x, w = normal(random, 2, many * depth, 9, 8), normal(random, many * each, depth, *pair(random, 1, 3))
    walk = {"stride": pair(random, 1, 2), "pad": pair(random, 0, 2), "dilation": pair(random, 1, 2)}
    return passes(rung, random, x, w, None, walk | {"algorithm": "direct"})


def passes(rung: Any, random: Draw, x: Any, w: Any, b: Any, walk: dict[str, Any]) -> list[np.ndarray]:
    places = {name: walk[name] for name in ("stride", "pad", "dilation") if name in walk}
    y = nothing(*reference.conv_output_shape(x.shape, w.shape, **places))
    dy, (dx, dw) = normal(random, *y.shape), like(x, w)
    rung.conv.forward(x, w, b, y, **walk)
    rung.conv.backward_data(dy, w, dx, **walk)
    rung.conv.backward_filter(x, dy, dw, **walk)
    return [y, dx, dw]


def biases(rung: Any, random: Draw) -> list[np.ndarray]:
    y = maps(random)
    db = nothing(y.shape[1])
    rung.conv.backward_bias(y, db)
    rung.conv.add_bias(normal(random, y.shape[1]), y)
    return [y, db]


def pooling(mode: str) -> Operation:
    """With windows of a CPU's own kernels, too; rounded, so windows have several largest elements; some NaN."""

    def operation(rung: Any, random: Draw) -> list[np.ndarray]:
        x, out = np.round(2 * maps(random)) / 2, pair(random, 1, 9)
        x[random.random(x.shape) < 0.02] = np.nan
        walk: dict[str, Any] = {"stride": pair(random, 1, 6), "ceil": either(random)}
        if mode == "max" and either(random):
            window, stride = one_of(random, *pool.SQUARE)
            walk |= {"window": (window, window), "stride": (stride, stride)}
            walk["pad"] = tuple(between(random, 0, window - 1) for _ in range(4))
        else:
            walk["window"] = pair(random, 1, 5)
            walk["pad"] = tuple(between(random, 0, length - 1) for length in walk["window"] * one_of(random, 1, 2))
        made = []
        if min(reference.pool_output_shape(x.shape, **walk)) > 0:
            y, (dx,) = nothing(*reference.pool_output_shape(x.shape, **walk)), like(x)
            how = {**walk, "mode": mode, "count_padding": either(random)}
            rung.pool.forward(x, y, **how)
            rung.pool.backward(x, y, normal(random, *y.shape), dx, **how)
            made += [y, dx]
        y, (dx,) = nothing(*x.shape[:2], *out), like(x)
        rung.pool.forward_to(x, y, out=out, mode=mode)
        rung.pool.backward_to(x, y, normal(random, *y.shape), dx, out=out, mode=mode)
        return [*made, y, dx]

    return operation


def positioned(rung: Any, random: Draw) -> list[np.ndarray]:
    """With several largest elements in a window, and some NaN; windows that overlap, and that begin in the padding."""
    x, window, stride = np.round(2 * maps(random)) / 2, pair(random, 1, 5), pair(random, 1, 6)
    if either(random):
        window, stride = ((one, one) for one in one_of(random, *pool.SQUARE))
    x[random.random(x.shape) < 0.02] = np.nan
    if rectified := either(random):
        x = np.where(x <= 0, np.float32(0), x)
    pad = tuple(between(random, 0, length - 1) for length in window * one_of(random, 1, 2))
    walk: dict[str, Any] = {"window": window, "stride": stride, "pad": pad, "ceil": either(random)}
    if min(shape := reference.pool_output_shape(x.shape, **walk)) < 1:
        return []
    y, (dx,), positions = nothing(*shape), like(x), np.full(pool_position.positions_shape(shape), -1, np.int32)
    rung.pool_position.forward(x, y, positions, rectified=rectified, **walk)
    dy = normal(random, *shape)
    rung.pool_position.backward(positions, dy, dx, **walk)
    if rung is not NUMPY:  # the bits of max pooling, and of the ReLU before it
        for other in (PLAIN, FAST):
            other.pool.forward(x, same := nothing(*shape), **walk)
            other.pool.backward(x, same, dy, (alike := nothing(*x.shape)), **walk)
            if rectified:
                other.relu.backward(x, alike, alike)
            assert y.tobytes() == same.tobytes() and dx.tobytes() == alike.tobytes()
    return [y, positions, dx]


def fully_connected(rung: Any, random: Draw) -> list[np.ndarray]:
    x, w, dy, how = layer(random)
    (dx, dw), db = like(x, w), nothing(len(w))
    rung.fc.backward_data(dy, w, dx, **how)
    rung.fc.backward_filter(x, dy, dw, **how)
    rung.fc.backward_bias(dy, db)
    return [dx, dw, db]


def fully_connected_forward(rung: Any, random: Draw) -> list[np.ndarray]:
    x, w, y, how = layer(random)
    rung.fc.forward(x, w, one_of(random, None, normal(random, len(w))), y, **how)
    return [y]


def layer(random: Draw) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """x as maps, w, dy, and the rung of gemm that the fast ones take."""
    x = normal(random, size(random, 1, 5, 31, 32, 33, 67), *(between(random, 1, 6) for _ in range(3)))
    w = normal(random, size(random, 1, 7, 63, 65, 128, 131), x[0].size)
    return x, w, normal(random, len(x), len(w)), {"algorithm": one_of(random, None, "tiled", "skinny", gemm.BEST)}


# --- Element by element -----------------------------------------------------------------------------------------------


def rectified(rung: Any, random: Draw) -> list[np.ndarray]:
    """A third is zero, of either sign; out of place and in place."""
    x, at_most = maps(random), {"at_most": one_of(random, None, 0.5, 6)}
    x[..., ::3] *= one_of(random, 0.0, -0.0)
    if x.size > 5:
        x.flat[:5] = np.nan, np.inf, -np.inf, 1e-45, 0.5
    y, dx = like(x, x)
    rung.relu.forward(x, y, **at_most)
    rung.relu.forward(x, x, **at_most)
    rung.relu.backward(y, dy := normal(random, *x.shape), dx, **at_most)
    rung.relu.backward(y, dy, dy, **at_most)
    return [y, x, dx, dy]


def rectified_by_sign(rung: Any, random: Draw) -> list[np.ndarray]:
    """The bits of ReLU, in the map and in the gradient."""
    x, at_most = maps(random), {"at_most": one_of(random, None, 0.5, 6)}
    x[..., ::3] *= one_of(random, 0.0, -0.0)
    if x.size > 5:
        x.flat[:5] = np.nan, np.inf, -np.inf, 1e-45, 0.5
    y, dx = like(x, x)
    signs, dy = np.full(relu_sign.signs_shape(x.size), -1, np.int32), normal(random, *x.shape)
    rung.relu_sign.forward(x, y, signs, **at_most)
    rung.relu_sign.backward(signs, dy, dx)
    if rung is not NUMPY:
        for other in (PLAIN, FAST):
            same, alike = like(x, x)
            other.relu.forward(x, same, **at_most)
            other.relu.backward(same, dy, alike, **at_most)
            assert y.tobytes() == same.tobytes() and dx.tobytes() == alike.tobytes()
    rung.relu_sign.backward(signs, dy, dy)
    return [y, signs, dx, dy]


def activated(family: str, reads: str, **options: float | str) -> Operation:
    """One whose gradient is computed from x or from y; out of place and in place."""

    def operation(rung: Any, random: Draw) -> list[np.ndarray]:
        x, module = 4 * maps(random), getattr(rung, family)
        dy, (y, dx) = normal(random, *x.shape), like(x, x)
        module.forward(x, y, **options)
        read = x.copy() if reads == "x" else np.clip(np.round(4 * normal(random, *x.shape)) / 4, -1, 1)
        module.backward(read, dy, dx, **options)
        module.backward(read, dy, dy, **options)
        module.forward(x, x, **options)
        return [y, dx, dy, x]

    return operation


def by_element(rung: Any, random: Draw) -> list[np.ndarray]:
    x = numbers(random)
    y, filled = like(x, x)
    rung.elementwise.copy(x, y)
    rung.elementwise.axpy(0.5, x, y)
    rung.elementwise.axpy(2.0, x, x)
    rung.elementwise.fill(filled, one_of(random, 2.0, np.inf, np.nan))
    return [x, y, filled]


def gated(rung: Any, random: Draw) -> list[np.ndarray]:
    """By a gate of x's shape, whose gradient has no sum."""
    x = maps(random)
    gate, dx = normal(random, *x.shape), normal(random, *x.shape)
    y, dgate = like(x, x)
    rung.mul.forward(x, gate, y)
    rung.mul.backward(x, gate, dx, dx, dgate)
    return [y, dx, dgate]


def scaled(rung: Any, random: Draw) -> list[np.ndarray]:
    """By a number a map, and by a learnt one a channel."""
    x = maps(random)
    gate, w = normal(random, *x.shape[:2], *one_of(random, (), (1, 1))), normal(random, x.shape[1])
    (y, z), dx, dz = like(x, x), normal(random, *x.shape), normal(random, *x.shape)
    dgate, dw = like(gate, w)
    rung.mul.forward(x, gate, y)
    rung.mul.backward(x, gate, dx, dx, dgate)
    rung.scale.forward(x, w, z)
    rung.scale.backward(x, w, dz, dz, dw, workspace=nothing(gate.size))
    return [y, dx, dgate, z, dz, dw]


def dropped(rung: Any, random: Draw) -> list[np.ndarray]:
    """What is dropped is zero whatever it was."""
    x = numbers(random)
    x[::7] = np.nan
    y, dx = like(x, x)
    how = {"seed": int(random.integers(2**40)), "layer": between(random, 0, 2**32 - 1), "iteration": 2**33 + 1}
    how["probability"] = one_of(random, 0.0, 0.3, 0.9)
    rung.dropout.forward(x, y, **how)
    rung.dropout.backward(x, dx, **how)
    rung.dropout.forward(x, x, **how)
    return [y, dx, x]


# --- Normalisation ----------------------------------------------------------------------------------------------------


def normalised(rung: Any, random: Draw) -> list[np.ndarray]:
    x = 3 * maps(random) + 2
    channels, (y, z), dx = x.shape[1], like(x, x), normal(random, *x.shape)
    gamma, beta, running = (normal(random, channels) for _ in range(3))
    variance, workspace = 1 + normal(random, channels) ** 2, nothing(200 * channels)
    mean, inverse_std, dgamma, dbeta = (nothing(channels) for _ in range(4))
    rung.batchnorm.forward(x, gamma, beta, y, mean, inverse_std, workspace=workspace)
    rung.batchnorm.backward(x, gamma, mean, inverse_std, dx, dx, dgamma, dbeta, workspace=workspace)
    if x.size > channels:  # of one value the variance is rounding
        rung.batchnorm.update_running(mean, inverse_std, running, variance, count=x.size // channels, momentum=0.3)
    rung.batchnorm.inference(x, gamma, beta, running, variance, z)
    rung.batchnorm.inference(x, gamma, beta, running, variance, x)
    if x.size == channels:
        return [mean, inverse_std, dbeta, z, x]  # the others magnify roundings to 1 / √epsilon times their size
    return [y, mean, inverse_std, dx, dgamma, dbeta, running, variance, z, x]


def responses(rung: Any, random: Draw) -> list[np.ndarray]:
    x, size = maps(random), between(random, 1, 16)
    how = {"size": size, "ahead": one_of(random, None, size // 2, size - 1), "k": one_of(random, 1.0, 2.0)}
    how |= {"alpha": one_of(random, 1e-4, 0.3, 2.0), "beta": one_of(random, 0.5, 0.75, 1.0)}
    y, dx = nothing(*x.shape), normal(random, *x.shape)
    rung.lrn.forward(x, y, **how)
    rung.lrn.backward(x, None, dx, dx, **how)  # in place
    return [y, dx]


def normalised_sets(rung: Any, random: Draw) -> list[np.ndarray]:
    """Of each position, of groups of channels, and by the root of the squares; with weights and without; in place."""
    made: list[np.ndarray | None] = []
    x = np.round(2 * maps(random)) / 2 + 3  # rounded: no variance is so small that it magnifies roundings
    (images, channels), area, affine = x.shape[:2], x[0, 0].size, either(random)
    weights = [normal(random, channels) if affine else None for _ in range(2)]
    workspace = nothing(x.size + 200 * channels)
    for groups in (None, one_of(random, *(one for one in range(1, channels + 1) if channels % one == 0))):
        slopes = [nothing(channels) if affine else None for _ in range(2)]
        kept = [nothing(images, groups or area) for _ in range(2)]
        y, dx = nothing(*x.shape), normal(random, *x.shape)
        rung.layernorm.forward(x, *weights, y, *kept, groups=groups)
        made += [y, *kept]
        if x.size > kept[0].size:  # the gradient of a single value is rounding, magnified
            rung.layernorm.backward(x, weights[0], *kept, dx, dx, *slopes, groups=groups, workspace=workspace)
            made += [dx, *slopes]
    y, dx, inverse, dgamma = nothing(*x.shape), normal(random, *x.shape), nothing(images, area), slopes[0]
    rung.rmsnorm.forward(x, weights[0], y, inverse)
    made += [y, inverse]
    if channels > 1:
        rung.rmsnorm.backward(x, weights[0], inverse, dx, dx, dgamma, workspace=workspace)
        made += [dx, dgamma]
    return [array for array in made if array is not None]


# --- Losses -----------------------------------------------------------------------------------------------------------


def classified(rung: Any, random: Draw) -> list[np.ndarray]:
    """Rows of classes, or maps of as many numbers; labels out of range; in place."""
    x = normal(random, between(random, 3, 9), 4 * size(random, 1, 3, 64, 250)) * 3 + 5
    labels = random.integers(0, x.shape[1], len(x), np.int32)
    labels[:2] = -1, x.shape[1]
    if either(random):
        x = x.reshape(len(x), -1, 2, 2)
    (y,), losses = like(x), nothing(len(x))
    rung.softmax.forward(x, y)
    rung.softmax.forward(x, x)
    rung.softmax.cross_entropy(y, labels, losses)
    rung.softmax.backward(y, labels, y, weight=one_of(random, 1.0, 0.5))
    return [x, losses, y]


def segmented(rung: Any, random: Draw) -> list[np.ndarray]:
    """Some pixels do not count, as one class does not; in place."""
    y = 2 * maps(random)
    labels = random.integers(0, y.shape[1], (len(y), *y.shape[2:])).astype(np.int32)
    losses, counted, ignored = nothing(len(y)), nothing(1), {"ignore_index": one_of(random, 0, 255)}
    labels[random.random(labels.shape) < 0.3] = 255
    labels[labels == 255] = ignored["ignore_index"]
    labels.flat[0] = y.shape[1] - 1
    rung.pixel_softmax.forward(y, y)
    probabilities, workspace = y.copy(), nothing(200 * len(y))
    if y.shape[1] == 1 and ignored["ignore_index"] == 0:
        return [probabilities]  # no pixel counts
    rung.pixel_softmax.cross_entropy(y, labels, losses, counted, **ignored, workspace=workspace)
    rung.pixel_softmax.backward(y, labels, counted, y, **ignored, weight=one_of(random, 1.0, 0.5))
    return [probabilities, losses, counted, y]


def piecewise(rung: Any, random: Draw) -> list[np.ndarray]:
    """One piece a window, or several of which the last is shorter; with a bias and without."""
    x, words = maps(random), between(random, 2, 9)
    images, channels, area = len(x), x.shape[1], x[0, 0].size
    w, b = normal(random, words, channels, 1, 1), one_of(random, normal(random, words), None)
    labels = random.integers(0, words, (images, *x.shape[2:])).astype(np.int32)
    labels[random.random(labels.shape) < 0.3] = -100
    labels.flat[0] = words - 1
    losses, counted, piece = nothing(images), nothing(1), nothing(1, words, -(-area // one_of(random, 1, 2, 3)), 1)
    (dx, dw), db = like(x, w), None if b is None else nothing(words)
    rung.pieces.learn(x, w, b, labels, losses, counted, piece, dx, dw, db)
    return [losses, counted, dx, dw, *([] if db is None else [db])]


def mean_of(error: str) -> Operation:
    def operation(rung: Any, random: Draw) -> list[np.ndarray]:
        x = 4 * maps(random)
        targets = random.random(x.shape, dtype=np.float32)
        losses, (y, dx) = nothing(len(x)), like(x, x)
        rung.mean_loss.forward(x, targets, losses, error=error, workspace=nothing(200 * len(x)))
        rung.mean_loss.backward(x, targets, dx, error=error, weight=one_of(random, 1.0, 0.5))
        rung.mean_loss.sigmoid(x, y)
        return [losses, dx, y]

    return operation


# --- Numbers that are put elsewhere -----------------------------------------------------------------------------------


def joined(rung: Any, random: Draw) -> list[np.ndarray]:
    images, area = between(random, 1, 4), size(random, (), (1,), (5, 3), (31, 37), (1025,))
    inputs = [normal(random, images, between(random, 1, 6), *area) for _ in range(between(random, 1, 5))]
    y, dxs = nothing(images, sum(x.shape[1] for x in inputs), *area), like(*inputs)
    rung.concat.forward(inputs, y)
    rung.concat.backward(y, dxs)
    length = numbers(random).size
    summed = [normal(random, length) * np.float32(10.0 ** (i % 3)) for i in range(between(random, 1, 9))]
    total, *copies = like(*(summed[0] for _ in range(5)))
    rung.join.forward(summed, total)
    rung.join.fork_backward(summed, summed[0])  # the first may be the sum itself
    rung.join.backward(total, copies[:2])
    rung.join.fork_forward(total, copies[2:])
    return [y, *dxs, total, summed[0], *copies]


def moved(rung: Any, random: Draw) -> list[np.ndarray]:
    """Channels shuffled, permuted and taken, maps padded, images dropped: numbers that are copied."""
    x = maps(random)
    made, channels = like(*[x] * 6), x.shape[1]
    groups = {"groups": one_of(random, *(one for one in range(1, channels + 1) if channels % one == 0))}
    order = random.permutation(channels).astype(np.int32)
    rung.channel_shuffle.forward(x, made[0], **groups)
    rung.channel_shuffle.backward(x, made[1], **groups)
    rung.permute_channels.forward(x, order, made[2])
    rung.permute_channels.backward(x, order, made[3])
    draw = {"seed": int(random.integers(2**40)), "layer": 3, "iteration": 2**33 + 1}
    draw["probability"] = one_of(random, 0.0, 0.3, 0.9)
    rung.drop_path.forward(x, made[4], **draw)
    rung.drop_path.backward(x, made[5], **draw)
    for axis in (1, 2):
        start = between(random, 0, x.shape[axis] - 1)
        count = between(random, 1, x.shape[axis] - start)
        y, dx = nothing(*x.shape[:axis], count, *x.shape[axis + 1 :]), nothing(*x.shape)
        rung.take.forward(x, y, axis=axis, start=start)
        rung.take.backward(normal(random, *y.shape), dx, axis=axis, start=start)
        made += [y, dx]
    pad, value = (*pair(random, 0, 3), *pair(random, 0, 3)), {"value": one_of(random, 0.0, -1.5)}
    y, dx = nothing(*x.shape[:2], x.shape[2] + pad[0] + pad[2], x.shape[3] + pad[1] + pad[3]), nothing(*x.shape)
    rung.pad.forward(x, y, pad=pad, **value)
    rung.pad.backward(normal(random, *y.shape), dx, pad=pad, **value)
    rung.drop_path.forward(x, x, **draw)
    return [*made, y, dx, x]


def larger(mode: str) -> Operation:
    def operation(rung: Any, random: Draw) -> list[np.ndarray]:
        x, how = maps(random), {"mode": mode, "align_corners": mode == "bilinear" and either(random)}
        y, dx = nothing(*x.shape[:2], *pair(random, 1, 31)), nothing(*x.shape)
        rung.upsample.forward(x, y, **how)
        rung.upsample.backward(normal(random, *y.shape), dx, **how)
        return [y, dx]

    return operation


# --- Tokens -----------------------------------------------------------------------------------------------------------


def learnt_tokens(rung: Any, random: Draw) -> list[np.ndarray]:
    """A token before an image's own, positions, an embedding whose table has a gradient already, or has none."""
    x = maps(random)
    images, channels, area = x.shape[0], x.shape[1], x[0, 0].size
    y, dx, dw = nothing(images, channels, 1 + area, 1), nothing(*x.shape), nothing(channels, 1)
    rung.prepend.forward(x, normal(random, channels, 1), y)
    rung.prepend.backward(normal(random, *y.shape), dx, dw)
    placed, dplaces = x.copy(), nothing(*x.shape[1:])
    rung.position.forward(placed, normal(random, *x.shape[1:]), placed)  # in place
    rung.position.backward(x, dplaces)
    words = size(random, 5, 17, 300)
    tokens, (embedded,) = random.integers(-1, words + 1, (images, area), np.int32), like(x)
    rung.embedding.forward(tokens, normal(random, words, channels), embedded)
    dtable, dy = normal(random, words, channels), normal(random, *x.shape)
    how: dict[str, Any] = {"added": either(random), "padding": one_of(random, None, 3)}
    rung.embedding.backward(tokens, dy, dtable, **how)
    return [y, dx, dw, placed, dplaces, embedded, dtable]


def positions_alike(rung: Any, random: Draw) -> list[np.ndarray]:
    x = maps(random)
    y, dw = nothing(*x.shape), nothing(x.shape[1])
    rung.position.forward(x, normal(random, x.shape[1]), y)
    rung.position.backward(x, dw)
    return [y, dw]


def turned(rung: Any, random: Draw) -> list[np.ndarray]:
    groups, together, half = between(random, 1, 3), between(random, 1, 3), size(random, 1, 3, 6, 64)
    packed = either(random)
    heads, tokens = groups * together, size(random, 1, 33, 70, 257)
    x = normal(random, 2, 2 * half * (heads + 2 * groups if packed else heads), tokens, 1)
    how: dict[str, Any] = {"heads": heads, "packed": packed, "neighbours": either(random)}
    how |= {"kv_heads": groups} if packed else {}
    how |= {"rotated": one_of(random, None, 2, 2 * half), "base": one_of(random, 10000.0, 500000.0, 3.0)}
    y, dx = nothing(*x.shape), x.copy()
    rung.rotary.forward(x, y, **how)
    rung.rotary.backward(dx, dx, **how)
    return [y, dx]


#: Heads of queries, heads of keys, channels of a head, queries, keys, causal, packed: whole and ragged tiles.
LONG = (
    (2, 2, 8, 197, 197, False, True), (1, 1, 5, 257, 257, True, True), (16, 4, 2, 70, 70, True, True),
    (4, 2, 3, 7, 150, False, False), (2, 1, 4, 129, 129, True, False),
)  # fmt: skip


def attended(rung: Any, random: Draw) -> list[np.ndarray]:
    """From one map and from three, by heads that share keys; with room for one image or for both."""
    if 0 <= random.seed < len(LONG):
        heads, groups, width, queries, keys, causal, packed = LONG[random.seed]
    else:
        groups, together, width = between(random, 1, 3), between(random, 1, 3), between(random, 1, 7)
        (queries, keys), heads, packed, causal = (
            pair(random, 1, 9 if random.small else 40),
            groups * together,
            either(random),
            either(random),
        )
        keys = queries if packed or causal else keys
    channels = [(heads + 2 * groups, queries)] if packed else [(heads, queries), (groups, keys), (groups, keys)]
    inputs = [normal(random, 2, count * width, tokens, 1) for count, tokens in channels]
    y, dxs = nothing(2, heads * width, queries, 1), like(*inputs)
    how: dict[str, Any] = {"heads": heads, "kv_heads": groups, "causal": causal}
    shapes, images = [x.shape for x in inputs], between(random, 1, 2)
    forward, backward = (
        nothing(attention.workspace_bytes(pass_, shapes, **how, images=images) // 4) for pass_ in attention.MATRICES
    )
    rung.attention.forward(inputs, y, **how, workspace=forward)
    rung.attention.backward(inputs, normal(random, *y.shape), dxs, **how, workspace=backward)
    return [y, *dxs]


def mixed(rung: Any, random: Draw) -> list[np.ndarray]:
    """Probabilities as a map, and the values that they mix."""
    heads, width, tokens = between(random, 1, 4), between(random, 1, 7), size(random, 1, 9, 40, 150)
    x, values = normal(random, 2, 2 * heads * width, tokens, 1), normal(random, 2, heads * width, tokens, 1)
    p, dp = (nothing(2, heads, tokens, tokens) for _ in range(2))
    y, dx, dvalues = like(values, x, values)
    causal = {"causal": either(random)}
    rung.scores.forward(x, p, heads=heads, **causal)
    rung.scores.softmax(p, **causal)
    rung.mix.forward(p, values, y, **causal)
    rung.mix.backward(p, values, normal(random, *y.shape), dp, dvalues, **causal)
    rung.scores.softmax_backward(p, dp, **causal)
    rung.scores.backward(x, dp, dx, heads=heads, **causal)
    return [p, y, dx, dvalues]


# --- The optimisers ---------------------------------------------------------------------------------------------------


def learnt(rung: Any, random: Draw) -> list[np.ndarray]:
    w = numbers(random)
    dw, v = normal(random, w.size), normal(random, w.size)
    rung.sgd.update(w, dw, v, rate=0.1, momentum=one_of(random, 0.0, 0.9), decay=one_of(random, 0.0, 1e-3))
    return [w, v]


def averaged(rung: Any, random: Draw) -> list[np.ndarray]:
    w = numbers(random)
    mean, square = normal(random, w.size), normal(random, w.size) ** 2
    how = {"iteration": one_of(random, 0, 1, 10_000), "beta1": one_of(random, 0.8, 0.9)}
    rung.adamw.update(w, normal(random, w.size), mean, square, **how, rate=0.1, decay=one_of(random, 0.0, 0.1))
    return [w, mean, square]


def clipped(rung: Any, random: Draw) -> list[np.ndarray]:
    gradients, place = [numbers(random), normal(random, 7), normal(random, size(random, 5, 300, 5000))], 0
    squares, norm = nothing(sum(-(-dw.size // PART) for dw in gradients)), nothing(1)
    for dw in gradients:
        rung.clip.square(dw, squares, place=place)
        place += -(-dw.size // PART)
    rung.clip.norm(squares, norm)
    for dw in gradients:
        rung.clip.apply(norm, dw, max_norm=one_of(random, 1.0, 1e6))
    return [squares, norm, *gradients]


#: By the families that they call.
OPERATIONS: dict[str, Operation] = {
    "conv": convolution, "conv groups": groups, "conv bias": biases, "pool max": pooling("max"),
    "pool average": pooling("average"), "pool_position": positioned, "fc": fully_connected,
    "fc forward": fully_connected_forward,
    "relu": rectified, "relu_sign": rectified_by_sign,
    "elementwise": by_element, "mul gate": gated, "mul and scale": scaled, "dropout": dropped,
    "hardsigmoid": activated("hardsigmoid", "y"), "hardswish": activated("hardswish", "x"),
    "leaky_relu": activated("leaky_relu", "y", negative_slope=0.2), "gelu": activated("gelu", "x"),
    "gelu by tanh": activated("gelu", "x", approximate="tanh"), "silu": activated("silu", "x"),
    "sigmoid": activated("sigmoid", "y"), "tanh": activated("tanh", "y"), "batchnorm": normalised, "lrn": responses,
    "layernorm and rmsnorm": normalised_sets, "softmax": classified, "pixel_softmax": segmented, "pieces": piecewise,
    "mean_loss squared": mean_of("squared"), "mean_loss binary": mean_of("binary"), "concat and join": joined,
    "channel_shuffle, permute_channels, drop_path, take and pad": moved, "upsample nearest": larger("nearest"),
    "upsample bilinear": larger("bilinear"), "embedding, position and prepend": learnt_tokens,
    "position alike": positions_alike, "rotary": turned, "attention": attended,
    "scores and mix": mixed, "sgd": learnt, "adamw": averaged, "clip": clipped,
}  # fmt: skip

#: Those of families that have no fast kernels.
PLAIN_ALONE = {
    "relu_sign", "hardsigmoid", "leaky_relu", "tanh", "mean_loss squared", "mean_loss binary",
    "channel_shuffle, permute_channels, drop_path, take and pad", "upsample nearest", "upsample bilinear",
    "embedding, position and prepend", "position alike", "rotary", "scores and mix", "adamw", "clip",
}  # fmt: skip
WITH_FAST_KERNELS = [name for name in OPERATIONS if name not in PLAIN_ALONE]


# --- Rungs ------------------------------------------------------------------------------------------------------------


class Rung:
    """The families of a rung, by name."""

    def __init__(self, rung: str) -> None:
        self.rung = rung

    def __getattr__(self, family: str) -> Any:
        return importlib.import_module(module_of(family, self.rung))


class Numpy:
    """The functions of `kernels.checks.reference`: they return their results, and here fill them, as the others do."""

    def __init__(self, family: str = "") -> None:
        self.family = family

    def __getattr__(self, name: str) -> Any:
        return partial(by_numpy, self.family, name) if self.family else Numpy(name)


PLAIN, FAST, NUMPY = Rung("plain"), Rung("fast"), Numpy()
FAMILIES = [importlib.import_module(module.name) for module in walk_packages(kernels.fast.__path__, "kernels.fast.")]


@contextlib.contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """The families choose the kernels that they would choose for arrays on a GPU."""
    with contextlib.ExitStack() as patches:
        for module in FAMILIES:
            for name in [name for name, one in vars(module).items() if one is arguments.place]:
                patches.enter_context(mock.patch.object(module, name, lambda array: "gpu"))
        yield


@contextlib.contextmanager
def with_other_vectors() -> Iterator[None]:
    """The families choose the kernels of a processor that has AVX-512, if this one has not, or has not, if it has."""
    has = cpu.has_avx512()
    with mock.patch.object(cpu, "has_avx512", lambda: not has):
        yield


#: Outputs of those that read them before, or that are given more than the NumPy function reads.
OUTPUTS = {
    "conv_add_bias": ("y",), "sgd_update": ("w", "momentum_buffer"), "adamw_update": ("w", "exp_avg", "exp_avg_sq"),
    "batchnorm_update_running": ("running_mean", "running_variance"), "layernorm_backward": ("dx", "dgamma", "dbeta"),
    "rmsnorm_backward": ("dx", "dgamma"), "pixel_softmax_backward": ("dx",), "clip_apply": ("dw",),
    "scores_backward": ("dx",), "pieces_learn": ("losses", "counted", "dx", "dw", "db"),
    "elementwise_fill": ("x",), "elementwise_axpy": ("y",), "rotary_forward": ("y",), "rotary_backward": ("dx",),
}  # fmt: skip
#: Arguments of the NumPy functions that follow from the kernels' outputs.
SHAPES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "x_shape": lambda given: given["dx"].shape,
    "w_shape": lambda given: given["dw"].shape,
    "words": lambda given: len(given["dw"]),
    "alike": lambda given: given["dw"].ndim == 1,
    "out": lambda given: given["y"].shape[2:],
    "size": lambda given: given["dx"].shape[2:],
    "count": lambda given: given["y"].shape[given["axis"]] if "axis" in given else len(listed(given)),
    "channels": lambda given: [dx.shape[1] for dx in given["dxs"]],
    "dp": lambda given: given["dy"],
}


def listed(given: dict[str, Any]) -> list[np.ndarray]:
    """The arrays of the argument that is a list of them."""
    return next(value for value in given.values() if isinstance(value, list))


def by_numpy(family: str, function: str, *given: Any, **named: Any) -> None:
    """One call; the softmax of `scores` is part of its forward and backward there."""
    name = f"{family}_{function}"
    if name in ("scores_softmax", "scores_softmax_backward"):
        return
    bound = inspect.signature(getattr(getattr(PLAIN, family), function)).bind(*given, **named)
    bound.apply_defaults()
    arguments = dict(bound.arguments) | bound.arguments.get("how", {})
    if name == "lrn_backward":
        by_numpy("lrn", "forward", arguments["x"], y := np.empty_like(arguments["x"]), **named)
        arguments["y"] = y
    twin = getattr(reference, name)
    taken = inspect.signature(twin).parameters
    if family == "rotary":
        found = twin(given[0], **named)
    else:
        arguments |= {one: follows(arguments) for one, follows in SHAPES.items() if one in {*taken} - {*arguments}}
        found = twin(**{one: arguments[one] for one in taken if one in arguments})
    outputs = OUTPUTS.get(name) or [one for one in arguments if one not in taken and one != "workspace"]
    results = found if isinstance(found, (tuple, list)) else (found,)
    if name == "clip_square":
        arguments["squares"] = arguments["squares"][arguments["place"] :][: len(results[0])]
    for array, result in zip(arrays([arguments[one] for one in outputs]), results, strict=False):
        weighted = np.reshape(result, array.shape) * np.float32(arguments.get("weight", 1))
        array[...] = weighted + array if arguments.get("added") else weighted


def arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from arrays(one)
    elif isinstance(value, np.ndarray):
        yield value
