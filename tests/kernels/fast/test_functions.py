"""exp, erf, tanh and the sigmoid beside the same in double precision, over every number that they can be given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels.checks.reference import erf
from kernels.fast import functions
from kernels.targets.declare import Kernel
from kernels.targets.launch import Floats, ceil_div, launch
from kernels.targets.shim import cuda

pytestmark = pytest.mark.ptx


def computed(name: str, x: np.ndarray) -> np.ndarray:
    of = getattr(functions, name)

    def apply(x: Floats, y: Floats, n: int) -> None:
        i = cuda.grid(1)
        if i < n:
            y[np.uint32(i)] = of(x[np.uint32(i)])

    y = np.empty_like(x)
    launch(Kernel(apply, f"{name}_alone", (256, 1, 1), {}), ceil_div(x.size, 256), x, y, x.size)
    return y


def numbers(least: float, most: float) -> np.ndarray:
    """From `least` to `most`, of every size: as many small ones as large ones."""
    sizes = np.concatenate([np.linspace(0, 1, 40_000), np.geomspace(1e-30, 1, 40_000)])
    return np.concatenate([sizes * least, sizes * most]).astype(np.float32)


def of_a_sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("name", "exact", "least", "most", "room"),
    [
        ("exp", np.exp, -87.3, 0, 2e-7), ("sigmoid", of_a_sigmoid, -87.3, 100, 3e-7),
        ("tanh", np.tanh, -100, 100, 4e-7), ("erf", erf, -100, 100, 4e-7),
    ],
)  # fmt: skip
def test_the_error_is_as_the_table_says(
    name: str, exact: Callable[[Any], Any], least: float, most: float, room: float
) -> None:
    x = numbers(least, most)
    expected = exact(x.astype(np.float64))
    error = np.abs(computed(name, x) - expected) / np.maximum(np.abs(expected), 1e-45)
    assert error.max() <= room, f"{error.max():.2e} at {x[error.argmax()]}"


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "erf"])
def test_at_the_ends(name: str) -> None:
    """Far out they are what they tend to; not-a-number stays not-a-number."""
    x = np.array([-math.inf, -1e30, -88, math.nan, -0.0], np.float32)
    least = {"exp": 0, "sigmoid": 0, "tanh": -1, "erf": -1}[name]
    middle = {"exp": 1, "sigmoid": 0.5, "tanh": 0, "erf": 0}[name]
    np.testing.assert_array_equal(computed(name, x), np.array([least] * 3 + [np.nan, middle], np.float32))
