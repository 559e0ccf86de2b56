"""Pooling: against NumPy and PyTorch over drawn windows, slopes, ties, NaN, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import pool
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

Pair = tuple[int, int]
Options = dict[str, Any]


def places(options: Options) -> Options:
    """The options that place the windows."""
    return {name: options[name] for name in ("window", "stride", "pad", "ceil")}


@st.composite
def cases(draw: Callable[..., Any]) -> tuple[tuple[int, ...], Options]:
    shape = *draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), *draw(st.tuples(*[st.integers(1, 13)] * 2))
    window = draw(st.tuples(*[st.integers(1, 5)] * 2))
    options: dict[str, Any] = {
        "window": window,
        "stride": draw(st.tuples(*[st.integers(1, 6)] * 2)),
        "pad": draw(st.tuples(*[st.integers(0, length - 1) for length in draw(st.sampled_from([1, 2])) * window])),
        "ceil": draw(st.booleans()),
        "mode": draw(st.sampled_from(pool.MODES)),
        "count_padding": draw(st.booleans()),
    }
    assume(min(reference.pool_output_shape(shape, **places(options))) > 0)
    return shape, options


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


@given(
    shape=st.tuples(st.just(1), st.integers(1, 2), st.integers(1, 9), st.sampled_from([1, 2, 5, 8, 64, 65, 131])),
    square=st.sampled_from(pool.SQUARE),
    pad=st.tuples(*[st.integers(0, 2)] * 4),
    ceil=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_map_at_a_time_gives_the_same_bits(
    shape: tuple[int, ...], square: Pair, pad: tuple[int, ...], ceil: bool, seed: int
) -> None:
    """On a CPU, beside the kernels for a GPU; zeros of either sign, and some NaN."""
    window, stride = square
    options: Options = {
        "window": (window,) * 2,
        "stride": (stride,) * 2,
        "pad": pad,
        "ceil": ceil,
        "mode": "max",
    }
    assume(max(pad) < window and min(reference.pool_output_shape(shape, **places(options))) > 0)
    rng = np.random.default_rng(seed)
    x = rng.choice(np.array([-1, -0.0, 0, 1, 2, np.nan], np.float32), shape, p=[0.2, 0.2, 0.2, 0.2, 0.18, 0.02])
    assert pool.by_map("cpu", options["window"], options["stride"]) == square
    found = both(x, options, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "by_map", lambda *_: None)
        expected = both(x, options, seed)
    assert [one.tobytes() for one in found] == [one.tobytes() for one in expected]


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


THREE_BY_TWO: Options = {
    "window": (3, 3),
    "stride": (2, 2),
    "pad": (1, 1),
    "ceil": False,
    "mode": "max",
    "count_padding": True,
}


@given(case=cases())
@example(((1, 1, 1, 1), {**THREE_BY_TWO, "mode": "average"}))  # a window larger than the map
@example(((1, 1, 2, 2), {**THREE_BY_TWO, "window": (5, 4), "pad": (4, 3)}))  # nearly all of a window is padding
@example(((2, 3, 31, 37), {**THREE_BY_TWO, "ceil": True}))  # several blocks
@example(((1, 2, 7, 7), {**THREE_BY_TWO, "stride": (5, 6), "pad": (0, 0)}))  # some elements are in no window
def test_against_the_reference(case: tuple[tuple[int, ...], Options]) -> None:
    shape, options = case
    x = with_ties(shape)
    y, dy, dx = both(x, options)
    assert y.shape == reference.pool_output_shape(shape, **places(options))
    close(y, reference.pool_forward(x, **options))
    close(dx, reference.pool_backward(x, y, dy, **options))


@given(case=cases())
def test_against_pytorch(torch: Any, case: tuple[tuple[int, ...], Options]) -> None:
    shape, options = case
    assume(all(2 * pad <= length for pad, length in zip(options["pad"], options["window"], strict=False)))
    assume(len(options["pad"]) == 2)
    x = with_ties(shape)
    y, dy, dx = both(x, options)
    tensor, where = torch.tensor(x, requires_grad=True), (options["window"], options["stride"], options["pad"])
    if options["mode"] == "max":
        expected = torch.nn.functional.max_pool2d(tensor, *where, ceil_mode=options["ceil"])
    else:
        expected = torch.nn.functional.avg_pool2d(tensor, *where, options["ceil"], options["count_padding"])
    assert tuple(expected.shape) == y.shape
    expected.backward(torch.tensor(dy))
    close(y, expected.detach().numpy())
    close(dx, tensor.grad.numpy())


@given(case=cases())
def test_the_gradient_is_the_slope(case: tuple[tuple[int, ...], Options]) -> None:
    """Pooling is linear as long as no other value becomes the largest: whole numbers, no two alike, and small steps."""
    shape, options = case
    rng = np.random.default_rng(2)
    x = rng.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    y, dy, dx = both(x, options)
    step = rng.choice(np.array([-0.25, 0, 0.25], np.float32), shape)
    upper, lower = np.empty_like(y), np.empty_like(y)
    pool.forward(x + step, upper, **options)
    pool.forward(x - step, lower, **options)
    slope = np.sum(dy.astype(np.float64) * (upper.astype(np.float64) - lower)) / 2
    assert slope == pytest.approx(np.sum(dx.astype(np.float64) * step), abs=1e-6 * y.size * x.size)


@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 13), st.integers(1, 13)),
    out=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    mode=st.sampled_from(pool.MODES),
)
def test_pooling_to_a_size(shape: tuple[int, ...], out: Pair, mode: str) -> None:
    """Smaller, larger or the same; as PyTorch's adaptive pooling where that is at hand."""
    x = with_ties(shape)
    y = np.full((*shape[:2], *out), np.nan, np.float32)
    pool.forward_to(x, y, out=out, mode=mode)
    dy, dx = np.random.default_rng(0).standard_normal(y.shape).astype(np.float32), np.full_like(x, np.nan)
    pool.backward_to(x, y, dy, dx, out=out, mode=mode)
    close(y, reference.pool_forward_to(x, out, mode))
    close(dx, reference.pool_backward_to(x, y, dy, out, mode))
    if find_spec("torch") is None:
        return
    import torch

    functional = torch.nn.functional
    adaptive = {"max": functional.adaptive_max_pool2d, "average": functional.adaptive_avg_pool2d}[mode]
    tensor = torch.tensor(x, requires_grad=True)
    expected = adaptive(tensor, out)
    expected.backward(torch.tensor(dy))
    close(y, expected.detach().numpy())
    close(dx, tensor.grad.numpy())


def test_of_equal_values_the_first_gets_the_gradient() -> None:
    x, dy, dx = (
        np.zeros((1, 1, 3, 3), np.float32),
        np.array([[[[1, 2], [3, 4]]]], np.float32),
        np.empty((1, 1, 3, 3), np.float32),
    )
    pool.backward(x, np.zeros_like(dy), dy, dx, window=(2, 2), stride=(1, 1))
    assert dx[0, 0].tolist() == [[1, 2, 0], [3, 4, 0], [0, 0, 0]]


def test_infinities_are_values_like_others() -> None:
    x = np.full((1, 1, 2, 4), -np.inf, np.float32)
    x[0, 0, 1, 3] = np.inf
    y, dy, dx = both(x, {**THREE_BY_TWO, "window": (2, 2), "pad": (0, 0)})
    assert y.tolist() == [[[[-np.inf, np.inf]]]]
    assert dx[0, 0].tolist() == [[dy[0, 0, 0, 0], 0, 0, 0], [0, 0, 0, dy[0, 0, 0, 1]]]


@pytest.mark.parametrize("place", range(4))
def test_nan_is_the_largest_value_and_stops_the_gradient(place: int) -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    x[0, 0, place // 2, place % 2] = np.nan
    y, dy, dx = both(x, {**THREE_BY_TWO, "window": (2, 2), "pad": (0, 0)})
    assert np.isnan(y[0, 0, 0, 0]) and y[0, 0, 0, 1] == 7
    assert dx[0, 0].tolist() == [[0, 0, 0, 0], [0, 0, 0, dy[0, 0, 0, 1]]]


@pytest.mark.parametrize("mode", pool.MODES)
def test_the_same_bits_every_time(mode: str) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 29, 31)).astype(np.float32)
    runs = [both(x, {**THREE_BY_TWO, "window": (5, 5), "mode": mode}) for _ in range(2)]
    assert [part.tobytes() for part in runs[0]] == [part.tobytes() for part in runs[1]]


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
