"""The plain kernels: what the fast families' functions do, they do, on drawn shapes.

An operation is a function of a storey's families and of a generator: it draws the arguments, calls the functions, and
gives out what they have filled.  So both storeys get the same arguments, and one list of operations tests the plain
kernels beside the fast ones, beside NumPy, in checked mode and on the emulated GPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernels
from kernels.checks import reference
from kernels.fast import pool as pool_shapes
from kernels.targets import cpu

#: The plain files that have a faster twin.
FAMILIES = sorted(
    {path.stem for path in Path(kernels.__file__).parent.glob("[a-z]*.py")}
    & {path.stem for path in (Path(kernels.__file__).parent / "fast").iterdir()}
)
FAST, PLAIN = (
    SimpleNamespace(**{name: importlib.import_module(f"{package}.{name}") for name in FAMILIES})
    for package in ("kernels.fast", "kernels")
)
Operation = Callable[[Any, np.random.Generator], list[np.ndarray]]


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, dtype=np.float32)


def nothing(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def pair(random: np.random.Generator, least: int, most: int) -> tuple[int, int]:
    return int(random.integers(least, most + 1)), int(random.integers(least, most + 1))


def maps(random: np.random.Generator) -> np.ndarray:
    return normal(random, *(int(random.integers(least, most)) for least, most in ((1, 4), (1, 6), (4, 9), (4, 9))))


# --- Operations ------------------------------------------------------------------------------------------------------


def convolution(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x, filters = maps(random), int(random.integers(1, 7))
    w, b = normal(random, filters, x.shape[1], *pair(random, 1, 3)), normal(random, filters)
    walk = {"stride": pair(random, 1, 3), "pad": pair(random, 0, 2)}
    y = nothing(*reference.conv_output_shape(x.shape, w.shape, **walk))
    dy, dx, dw = normal(random, *y.shape), nothing(*x.shape), nothing(*w.shape)
    storey.conv.forward(x, w, b, y, **walk, algorithm="implicit_gemm")
    storey.conv.backward_data(dy, w, dx, **walk, algorithm="implicit_gemm")
    storey.conv.backward_filter(x, dy, dw, **walk, algorithm="implicit_gemm")
    return [y, dx, dw]


def bias_gradient(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    dy = maps(random)
    db = nothing(dy.shape[1])
    storey.conv.backward_bias(dy, db)
    return [db]


def groups(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    many, depth, each = (int(random.integers(1, 4)) for _ in range(3))
    x, w = normal(random, 2, many * depth, 9, 8), normal(random, many * each, depth, *pair(random, 1, 3))
    walk = {"stride": pair(random, 1, 2), "pad": pair(random, 0, 2), "dilation": pair(random, 1, 2)}
    y = nothing(*reference.conv_output_shape(x.shape, w.shape, **walk))
    dy, dx, dw = normal(random, *y.shape), nothing(*x.shape), nothing(*w.shape)
    storey.conv.forward(x, w, None, y, **walk, algorithm="direct")
    storey.conv.backward_data(dy, w, dx, **walk, algorithm="direct")
    storey.conv.backward_filter(x, dy, dw, **walk, algorithm="direct")
    return [y, dx, dw]


def pooling(mode: str) -> Operation:
    def operation(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
        x, pad = np.round(2 * maps(random)) / 2, pair(random, 0, 2)  # rounded: windows have several largest elements
        window = tuple(int(random.integers(least + 1, 4)) for least in pad)
        walk: dict[str, Any] = {"window": window, "stride": pair(random, 1, 3), "pad": pad}
        walk["ceil"] = bool(random.integers(2))
        y, dx = nothing(*pool_shapes.output_shape(x.shape, **walk)), nothing(*x.shape)
        how = {**walk, "mode": mode, "count_padding": bool(random.integers(2))}
        storey.pool.forward(x, y, **how)
        storey.pool.backward(x, y, normal(random, *y.shape), dx, **how)
        return [y, dx]

    return operation


def fully_connected(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x, outputs = maps(random), int(random.integers(1, 40))
    w, dy = normal(random, outputs, x[0].size), normal(random, len(x), outputs)
    dx, dw, db = nothing(*x.shape), nothing(*w.shape), nothing(outputs)
    storey.fc.backward_data(dy, w, dx, algorithm="coalesced")
    storey.fc.backward_filter(x, dy, dw, algorithm="coalesced")
    storey.fc.backward_bias(dy, db)
    return [dx, dw, db]


def fully_connected_forward(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x, outputs = maps(random), int(random.integers(1, 40))
    w, b, y = normal(random, outputs, x[0].size), normal(random, outputs), nothing(len(x), outputs)
    storey.fc.forward(x, w, b, y, algorithm="coalesced")
    return [y]


def rectified(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x, limit = maps(random), (None, 0.5)[int(random.integers(2))]
    x[0, 0, 0, 0] = np.nan
    y, dx = nothing(*x.shape), nothing(*x.shape)
    storey.relu.forward(x, y, at_most=limit)
    storey.relu.backward(y, normal(random, *x.shape), dx, at_most=limit)
    return [y, dx]


def classified(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x, labels = normal(random, 5, 12), np.array([0, 11, 3, 12, -1], np.int32)
    y, losses, dx = nothing(5, 12), nothing(5), nothing(5, 12)
    storey.softmax.forward(x, y)
    storey.softmax.cross_entropy(y, labels, losses)
    storey.softmax.backward(y, labels, dx)
    return [y, losses, dx]


def normalised(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x = maps(random) + 3
    dy = normal(random, *x.shape)
    channels = x.shape[1]
    gamma, beta = normal(random, channels), normal(random, channels)
    y, dx = nothing(*x.shape), nothing(*x.shape)
    mean, inverse_std, dgamma, dbeta = (nothing(channels) for _ in range(4))
    workspace = np.empty(2 * channels, np.float32)
    storey.batchnorm.forward(x, gamma, beta, y, mean, inverse_std, workspace=workspace)
    storey.batchnorm.backward(x, gamma, mean, inverse_std, dy, dx, dgamma, dbeta, workspace=workspace)
    return [y, mean, inverse_std, dx, dgamma, dbeta]


def responses(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x, how = maps(random), {"size": int(random.integers(1, 8)), "alpha": 0.1}
    y, dx = nothing(*x.shape), normal(random, *x.shape)
    storey.lrn.forward(x, y, **how)
    storey.lrn.backward(x, None, dx, dx, **how)  # in place
    return [y, dx]


def dropped(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x, y = normal(random, 3000), nothing(3000)
    storey.dropout.forward(x, y, probability=0.3, seed=int(random.integers(2**40)), layer=3, iteration=2**33 + 1)
    return [y]


def learnt(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    w, v = normal(random, 300), normal(random, 300)
    storey.sgd.update(w, normal(random, 300), v, rate=0.1, momentum=0.9, decay=1e-3)
    return [w, v]


def joined(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    inputs = [normal(random, 2, channels, 5, 3) for channels in (1, 4, 2)]
    y, dxs = nothing(2, 7, 5, 3), [nothing(*x.shape) for x in inputs]
    storey.concat.forward(inputs, y)
    storey.concat.backward(y, dxs)
    total = nothing(2, 4, 5, 3)
    storey.join.forward([inputs[1], dxs[1], inputs[1]], total)
    return [y, *dxs, total]


def activated(family: str, reads: str, **options: float | str) -> Operation:
    """One whose gradient is computed from x or from y; the gradient in place."""

    def operation(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
        x = 4 * maps(random)
        y, dx = nothing(*x.shape), normal(random, *x.shape)
        getattr(storey, family).forward(x, y, **options)
        getattr(storey, family).backward(x if reads == "x" else normal(random, *x.shape), dx, dx, **options)
        return [y, dx]

    return operation


def averaged(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    w, mean, square = normal(random, 300), normal(random, 300), normal(random, 300) ** 2
    storey.adamw.update(w, normal(random, 300), mean, square, iteration=int(random.integers(9)), rate=0.1, decay=0.1)
    return [w, mean, square]


def clipped(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    gradients, squares, norm = [normal(random, 5000), normal(random, 7)], nothing(3), nothing(1)
    for dw, place in zip(gradients, (0, 2), strict=True):
        storey.clip.square(dw, squares, place=place)
    storey.clip.norm(squares, norm)
    for dw in gradients:
        storey.clip.apply(norm, dw, max_norm=(1.0, 100.0)[int(random.integers(2))])
    return [squares, norm, *gradients]


def moved(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    """Channels shuffled, permuted and taken, maps padded, images dropped: numbers that are copied."""
    x = normal(random, 3, 6, *pair(random, 4, 8))
    made = [nothing(*x.shape) for _ in range(6)]
    groups, order = {"groups": int(random.choice([1, 2, 3, 6]))}, random.permutation(6).astype(np.int32)
    storey.channel_shuffle.forward(x, made[0], **groups)
    storey.channel_shuffle.backward(x, made[1], **groups)
    storey.permute_channels.forward(x, order, made[2])
    storey.permute_channels.backward(x, order, made[3])
    draw = {"probability": 0.5, "seed": int(random.integers(2**40)), "layer": 3, "iteration": 2**33 + 1}
    storey.drop_path.forward(x, made[4], **draw)
    storey.drop_path.backward(x, made[5], **draw)
    for axis in (1, 2):
        start, count = int(random.integers(3)), int(random.integers(1, 3))
        y = nothing(*x.shape[:axis], count, *x.shape[axis + 1 :])
        dy, dx = normal(random, *y.shape), nothing(*x.shape)
        storey.take.forward(x, y, axis=axis, start=start)
        storey.take.backward(dy, dx, axis=axis, start=start)
        made += [y, dx]
    pad = (*pair(random, 0, 2), *pair(random, 0, 2))
    y, dx = nothing(3, 6, x.shape[2] + pad[0] + pad[2], x.shape[3] + pad[1] + pad[3]), nothing(*x.shape)
    storey.pad.forward(x, y, pad=pad, value=0.5)
    storey.pad.backward(normal(random, *y.shape), dx, pad=pad)
    return [*made, y, dx]


def learnt_tokens(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    """A token before an image's own, positions, an embedding whose table has a gradient already, or has none."""
    x, w = maps(random), normal(random, 9)
    images, channels, area = x.shape[0], x.shape[1], x[0, 0].size
    y, dx, dw = nothing(images, channels, 1 + area, 1), nothing(*x.shape), nothing(channels, 1)
    storey.prepend.forward(x, w[:channels].reshape(-1, 1).copy(), y)
    storey.prepend.backward(normal(random, *y.shape), dx, dw)
    placed, dplaces = x.copy(), nothing(*x.shape[1:])
    storey.position.forward(placed, normal(random, *x.shape[1:]), placed)  # in place
    storey.position.backward(x, dplaces)
    tokens = random.integers(-1, 9, (images, area)).astype(np.int32)
    embedded, dtable = nothing(images, channels, area), normal(random, 8, channels)
    storey.embedding.forward(tokens, normal(random, 8, channels), embedded)
    how: dict[str, Any] = {"added": bool(random.integers(2)), "padding": (None, 3)[int(random.integers(2))]}
    workspace = np.empty(2 * tokens.size, np.float32)
    storey.embedding.backward(tokens, normal(random, *embedded.shape), dtable, **how, workspace=workspace)
    return [y, dx, dw, placed, dplaces, embedded, dtable]


def positions_alike(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x = maps(random)
    y, dw = nothing(*x.shape), nothing(x.shape[1])
    storey.position.forward(x, normal(random, x.shape[1]), y)
    storey.position.backward(x, dw)
    return [y, dw]


def gated(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    """By a gate of x's shape, whose gradient has no sum."""
    x, gate, dx = (normal(random, 3, 4, 5, 7) for _ in range(3))
    y, dgate = nothing(*x.shape), nothing(*x.shape)
    storey.mul.forward(x, gate, y)
    storey.mul.backward(x, gate, dx, dx, dgate)
    return [y, dx, dgate]


def scaled(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    """By a number a map, and by a learnt one a channel."""
    x = maps(random)
    gate, w = normal(random, *x.shape[:2], 1, 1), normal(random, x.shape[1])
    y, z, dx, dz = nothing(*x.shape), nothing(*x.shape), normal(random, *x.shape), normal(random, *x.shape)
    dgate, dw = nothing(*gate.shape), nothing(*w.shape)
    storey.mul.forward(x, gate, y)
    storey.mul.backward(x, gate, dx, dx, dgate)
    storey.scale.forward(x, w, z)
    storey.scale.backward(x, w, dz, dz, dw, workspace=np.empty(gate.size, np.float32))
    return [y, dx, dgate, z, dz, dw]


def larger(mode: str) -> Operation:
    def operation(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
        x, how = maps(random), {"mode": mode, "align_corners": mode == "bilinear" and bool(random.integers(2))}
        y, dx = nothing(*x.shape[:2], *pair(random, 1, 12)), nothing(*x.shape)
        storey.upsample.forward(x, y, **how)
        storey.upsample.backward(normal(random, *y.shape), dx, **how)
        return [y, dx]

    return operation


def mean_of(error: str) -> Operation:
    def operation(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
        x = 4 * maps(random)
        targets = random.random(x.shape, dtype=np.float32)
        losses, dx, y = nothing(len(x)), nothing(*x.shape), nothing(*x.shape)
        storey.mean_loss.forward(x, targets, losses, error=error, workspace=np.empty(len(x), np.float32))
        storey.mean_loss.backward(x, targets, dx, error=error, weight=0.5)
        storey.mean_loss.sigmoid(x, y)
        return [losses, dx, y]

    return operation


def segmented(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    """Some pixels do not count, as one class does not; in place."""
    y = 2 * maps(random)
    labels = random.integers(0, y.shape[1], (len(y), *y.shape[2:])).astype(np.int32)
    losses, counted, ignored = nothing(len(y)), nothing(1), {"ignore_index": (0, 255)[int(random.integers(2))]}
    labels[:, 0, 0] = y.shape[1] - 1 or 1 if ignored["ignore_index"] == 0 else 255
    storey.pixel_softmax.forward(y, y)
    probabilities, workspace = y.copy(), np.empty(2 * len(y), np.float32)
    storey.pixel_softmax.cross_entropy(y, labels, losses, counted, **ignored, workspace=workspace)
    storey.pixel_softmax.backward(y, labels, counted, y, **ignored, weight=0.5)
    return [probabilities, losses, counted, y]


def normalised_sets(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    """Of each position, of groups of channels, and by the root of the squares; with weights and without; in place."""
    x, made = normal(random, int(random.integers(1, 4)), 2 * int(random.integers(2, 7)), *pair(random, 1, 5)) + 3, []
    (images, channels), area, affine = x.shape[:2], x[0, 0].size, bool(random.integers(2))
    weights = [normal(random, channels) if affine else None for _ in range(2)]
    for groups in (None, 2):
        slopes = [nothing(channels) if affine else None for _ in range(2)]
        kept = [nothing(images, groups or area) for _ in range(2)]
        y, dx, workspace = nothing(*x.shape), normal(random, *x.shape), np.empty(1000, np.float32)
        storey.layernorm.forward(x, *weights, y, *kept, groups=groups)
        storey.layernorm.backward(x, weights[0], *kept, dx, dx, *slopes, groups=groups, workspace=workspace)
        made += [y, *kept, dx, *slopes]
    y, dx, inverse, dgamma = nothing(*x.shape), normal(random, *x.shape), nothing(images, area), slopes[0]
    storey.rmsnorm.forward(x, weights[0], y, inverse)
    storey.rmsnorm.backward(x, weights[0], inverse, dx, dx, dgamma, workspace=workspace)
    return [array for array in (*made, y, inverse, dx, dgamma) if array is not None]


def turned(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    groups, together, half = (int(random.integers(1, 4)) for _ in range(3))
    packed = bool(random.integers(2))
    heads = groups * together
    x = normal(random, 2, 2 * half * (heads + 2 * groups if packed else heads), int(random.integers(1, 40)), 1)
    how: dict[str, Any] = {"heads": heads, "kv_heads": groups, "packed": packed, "rotated": (None, 2)[half % 2]}
    how["neighbours"] = bool(random.integers(2))
    y, dx = nothing(*x.shape), x.copy()
    storey.rotary.forward(x, y, **how)
    storey.rotary.backward(dx, dx, **how)
    return [y, dx]


def attended(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    """From one map and from three, by heads that share keys."""
    groups, together, width = (int(random.integers(1, 4)) for _ in range(3))
    queries, keys = pair(random, 1, 9)
    heads, packed, causal = groups * together, bool(random.integers(2)), bool(random.integers(2))
    keys = queries if packed or causal else keys
    channels = [(heads + 2 * groups, queries)] if packed else [(heads, queries), (groups, keys), (groups, keys)]
    inputs = [normal(random, 2, count * width, tokens, 1) for count, tokens in channels]
    y, dxs = nothing(2, heads * width, queries, 1), [nothing(*x.shape) for x in inputs]
    how: dict[str, Any] = {"heads": heads, "kv_heads": groups, "causal": causal}
    workspace = np.empty(4 * groups * queries * keys, np.float32)
    storey.attention.forward(inputs, y, **how, workspace=workspace)
    storey.attention.backward(inputs, normal(random, *y.shape), dxs, **how, workspace=workspace)
    return [y, *dxs]


def mixed(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    """Probabilities as a map, and the values that they mix."""
    heads, width, tokens = (int(random.integers(1, most)) for most in (4, 5, 9))
    x, values = normal(random, 2, 2 * heads * width, tokens, 1), normal(random, 2, heads * width, tokens, 1)
    p, y, dx, dvalues = nothing(2, heads, tokens, tokens), *(nothing(*one.shape) for one in (values, x, values))
    causal = {"causal": bool(random.integers(2))}
    storey.scores.forward(x, p, heads=heads, **causal)
    storey.scores.softmax(p, **causal)
    storey.mix.forward(p, values, y, **causal)
    dp = nothing(*p.shape)
    storey.mix.backward(p, values, normal(random, *y.shape), dp, dvalues, **causal)
    storey.scores.softmax_backward(p, dp, **causal)
    storey.scores.backward(x, dp, dx, heads=heads, **causal)
    return [p, y, dp, dx, dvalues]


#: Operations whose sums have one natural order: the bits are those of the fast kernels.
SAME_BITS: dict[str, Operation] = {
    "max": pooling("max"), "average": pooling("average"),
    "fc backward": fully_connected, "relu": rectified, "dropout": dropped, "sgd": learnt, "concat and join": joined,
    "hardsigmoid": activated("hardsigmoid", "y"), "hardswish": activated("hardswish", "x"),
    "leaky_relu": activated("leaky_relu", "y", negative_slope=0.2), "adamw": averaged, "moved": moved,
    "tokens": learnt_tokens, "gate": gated, "nearest": larger("nearest"),
}  # fmt: skip
#: The fast kernels cut these sums into pieces; or LLVM vectorises the products of one of the two, and then it does not
#: fuse them with their sum.
ROUNDED: dict[str, Operation] = {
    "conv": convolution, "groups": groups, "conv bias": bias_gradient, "fc forward": fully_connected_forward,
    "softmax": classified,
    "batchnorm": normalised, "lrn": responses, "clip": clipped, "positions alike": positions_alike, "scale": scaled,
    "bilinear": larger("bilinear"), "squared": mean_of("squared"), "layernorm and rmsnorm": normalised_sets,
    "gelu": activated("gelu", "x"), "gelu by tanh": activated("gelu", "x", approximate="tanh"),
    "silu": activated("silu", "x"), "sigmoid": activated("sigmoid", "y"), "tanh": activated("tanh", "y"),
    "binary": mean_of("binary"), "pixel_softmax": segmented, "rotary": turned, "attention": attended,
    "scores and mix": mixed,
}  # fmt: skip
OPERATIONS = SAME_BITS | ROUNDED
#: Which results of these are the same bits all the same: they are products, sums of two numbers, or counted.
EXACT: dict[str, tuple[int, ...]] = {
    "positions alike": (0,), "scale": (0, 1, 3, 4), "squared": (1,), "sigmoid": (1,), "tanh": (1,),
    "pixel_softmax": (2,),
}  # fmt: skip


@pytest.mark.ptx
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_plain_kernel_comes_to_the_bits_of_its_ptx(name: str) -> None:
    for seed in range(3):
        OPERATIONS[name](PLAIN, np.random.default_rng(seed))


@pytest.mark.parametrize("checked", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_plain_kernels_come_to_what_the_fast_ones_come_to(name: str, checked: bool) -> None:
    for seed in range(3 if checked else 20):
        want = OPERATIONS[name](FAST, np.random.default_rng(seed))
        with cpu.checked(order=seed) if checked else nullcontext():
            got = OPERATIONS[name](PLAIN, np.random.default_rng(seed))
        for place, (plain, fast) in enumerate(zip(got, want, strict=True)):
            if (
                name in SAME_BITS or place in EXACT.get(name, ())
            ) and not checked:  # checked mode fuses fewer products with their sums
                np.testing.assert_array_equal(plain, fast, err_msg=f"seed {seed}")
            else:
                np.testing.assert_allclose(plain, fast, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}")
