"""The plain kernels: what the fast families' functions do, they do, on drawn shapes.

An operation is a function of a storey's families and of a generator: it draws the arguments, calls the functions, and
gives out what they have filled.  So both storeys get the same arguments, and one list of operations tests the plain
kernels beside the fast ones, beside NumPy, in checked mode and on the emulated GPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.checks import reference
from kernels.fast import pool as pool_shapes
from kernels.targets import cpu

FAMILIES = (
    "batchnorm", "concat", "conv", "dropout", "elementwise", "fc", "join", "lrn", "pool", "relu", "sgd", "softmax",
)  # fmt: skip
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
    storey.conv.forward(x, w, b, y, **walk, algorithm="direct")
    storey.conv.backward_data(dy, w, dx, **walk, algorithm="direct")
    storey.conv.backward_filter(x, dy, dw, **walk, algorithm="direct")
    np.testing.assert_allclose(y, reference.conv_forward(x, w, b, **walk), rtol=1e-4, atol=1e-5)
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
    storey.fc.backward_data(dy, w, dx, algorithm="naive")
    storey.fc.backward_filter(x, dy, dw, algorithm="naive")
    storey.fc.backward_bias(dy, db)
    return [dx, dw, db]


def fully_connected_forward(storey: Any, random: np.random.Generator) -> list[np.ndarray]:
    x, outputs = maps(random), int(random.integers(1, 40))
    w, b, y = normal(random, outputs, x[0].size), normal(random, outputs), nothing(len(x), outputs)
    storey.fc.forward(x, w, b, y, algorithm="naive")
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


#: Operations whose sums have one natural order: the bits are those of the fast kernels.
SAME_BITS: dict[str, Operation] = {
    "conv": convolution, "max": pooling("max"), "average": pooling("average"),
    "fc backward": fully_connected, "relu": rectified, "dropout": dropped, "sgd": learnt, "concat and join": joined,
}  # fmt: skip
#: The fast kernels cut these sums into pieces; or LLVM vectorises the products of one of the two, and then it does not
#: fuse them with their sum.
ROUNDED: dict[str, Operation] = {
    "groups": groups, "conv bias": bias_gradient, "fc forward": fully_connected_forward, "softmax": classified,
    "batchnorm": normalised, "lrn": responses,
}  # fmt: skip
OPERATIONS = SAME_BITS | ROUNDED


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
        for plain, fast in zip(got, want, strict=True):
            if name in SAME_BITS and not checked:  # checked mode fuses fewer products with their sums
                np.testing.assert_array_equal(plain, fast, err_msg=f"seed {seed}")
            else:
                np.testing.assert_allclose(plain, fast, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}")
