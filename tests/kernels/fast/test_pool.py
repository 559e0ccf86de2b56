"""Pooling: infinities, gradients without x and y, and what is refused; `test_plain` draws ties and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import pool
from tests.messages import raises_naming

Options = dict[str, Any]


def places(options: Options) -> Options:
    """The options that place the windows."""
    return {name: options[name] for name in ("window", "stride", "pad", "ceil")}


def both(x: np.ndarray, options: Options, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, a gradient for it, and dx, the outputs having been NaN."""
    y = np.full(pool.output_shape(x.shape, **places(options)), np.nan, np.float32)
    pool.forward(x, y, **options)
    dy = np.random.default_rng(seed).standard_normal(y.shape).astype(np.float32)
    dx = np.full_like(x, np.nan)
    pool.backward(x, y, dy, dx, **options)
    return y, dy, dx


def with_ties(shape: tuple[int, ...]) -> np.ndarray:
    """Few different values: most windows have several largest ones."""
    return np.random.default_rng(1).integers(-2, 3, shape).astype(np.float32)


THREE_BY_TWO: Options = {
    "window": (3, 3),
    "stride": (2, 2),
    "pad": (1, 1),
    "ceil": False,
    "mode": "max",
    "count_padding": True,
}


def test_infinities_are_values_like_others() -> None:
    x = np.full((1, 1, 2, 4), -np.inf, np.float32)
    x[0, 0, 1, 3] = np.inf
    y, dy, dx = both(x, {**THREE_BY_TWO, "window": (2, 2), "pad": (0, 0)})
    assert y.tolist() == [[[[-np.inf, np.inf]]]]
    assert dx[0, 0].tolist() == [[dy[0, 0, 0, 0], 0, 0, 0], [0, 0, 0, dy[0, 0, 0, 1]]]


def test_the_gradient_of_an_average_needs_neither_x_nor_y() -> None:
    x, options = with_ties((2, 1, 5, 6)), {**THREE_BY_TWO, "mode": "average"}
    _, dy, expected = both(x, options)
    dx = np.empty_like(x)
    pool.backward(None, None, dy, dx, **options)
    assert dx.tobytes() == expected.tobytes()


def array(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "median"}, ("median",)),
        ({"window": (2, 0)}, ("(2, 0)", "window")),
        ({"stride": (0, 1)}, ("(0, 1)", "stride")),
        ({"pad": (0, -1)}, ("(0, -1)", "pad")),
        ({"pad": (2, 0)}, ("(2, 0)", "(2, 2)")),
        ({"stride": (2, 2**31)}, ("(2, 2)", "(2, 2147483648)", "(0, 0)")),
        ({"window": (5, 2)}, ("(5, 2)", "(4, 4)", "(0, 0)")),
        ({"stride": (1, 1)}, ("y", "(1, 1, 2, 2)", "(1, 1, 3, 3)")),
    ],
)
def test_what_is_refused(options: Options, message: tuple[object, ...]) -> None:
    good: Options = {"window": (2, 2), "stride": (2, 2), "pad": (0, 0)}
    x, y = array(1, 1, 4, 4), array(1, 1, 2, 2)
    with raises_naming(KernelError, *message):
        pool.forward(x, y, **{**good, **options})
    with raises_naming(KernelError, *message):
        pool.backward(x, y, y, x, **{**good, **options})


def test_more_of_what_is_refused() -> None:
    where: Options = {"window": (2, 2), "stride": (2, 2)}
    x, y = array(1, 1, 4, 4), array(1, 1, 2, 2)
    with raises_naming(KernelError, "axes"):
        pool.forward(array(4, 4), y, **where)
    with raises_naming(KernelError, "float64"):
        pool.forward(x.astype(np.float64), y, **where)
    with raises_naming(KernelError, "dy"):
        pool.backward(x, y, x, array(1, 1, 4, 4), **where)
    with raises_naming(KernelError, "pool.backward", "x", "y"):
        pool.backward(None, y, y, x, **where)
