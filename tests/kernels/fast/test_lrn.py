"""Local response normalisation: oracles, slopes, every size, and in place against out of place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import lrn
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

Case = tuple[tuple[int, ...], dict[str, Any]]


@st.composite
def cases(draw: Callable[..., Any]) -> Case:
    """More channels than slots, fewer channels than a window, any number of further axes; a strong normalisation."""
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 40)), *draw(st.lists(st.integers(1, 7), max_size=3))
    strength = {"alpha": draw(st.sampled_from([1e-4, 0.3, 2.0])), "beta": draw(st.sampled_from([0.5, 0.75, 1.0]))}
    size = draw(st.integers(1, lrn.SLOTS))
    ahead = draw(st.sampled_from([None, size // 2, size - 1]))  # ONNX's even sizes look size // 2 channels ahead
    return shape, {"size": size, "ahead": ahead, "k": draw(st.sampled_from([1.0, 2.0])), **strength}


def normal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def both(x: np.ndarray, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, a gradient for it, and dx; the outputs have been NaN."""
    y, dy, dx = np.full_like(x, np.nan), normal(x.shape, seed=1), np.full_like(x, np.nan)
    lrn.forward(x, y, **options)
    lrn.backward(x, y, dy, dx, **options)
    return y, dy, dx


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


ALEXNET = {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0}


@given(case=cases())
@example(((1, 1, 1, 1), ALEXNET))
@example(((3, 96, 11, 13), ALEXNET))  # several blocks
def test_against_the_reference(case: Case) -> None:
    shape, options = case
    x = normal(shape)
    y, dy, dx = both(x, options)
    close(y, reference.lrn_forward(x, **options))
    close(dx, reference.lrn_backward(x, y, dy, **options))


@pytest.mark.parametrize("size", range(1, lrn.SLOTS + 1))
def test_every_size_as_in_pytorch(torch: Any, size: int) -> None:
    x, options = normal((2, 19, 3, 2)), {"size": size, "alpha": 0.5, "beta": 0.75, "k": 2.0}
    y, dy, dx = both(x, options)
    tensor = torch.tensor(x, requires_grad=True)
    expected = torch.nn.functional.local_response_norm(tensor, **options)
    expected.backward(torch.tensor(dy))
    close(y, expected.detach().numpy())
    close(dx, tensor.grad.numpy())


@given(case=cases())
def test_the_gradient_is_the_slope(case: Case) -> None:
    shape, options = case
    x = normal(shape)
    _, dy, dx = both(x, options)
    direction = np.random.default_rng(2).choice(np.array([-1, 1], np.float32), shape)
    upper, lower = (both(x + step * direction, options)[0] for step in np.array([1 / 128, -1 / 128], np.float32))
    slope = np.sum(dy.astype(np.float64) * (upper.astype(np.float64) - lower)) * 64
    assert slope == pytest.approx(np.sum(dx.astype(np.float64) * direction), abs=1e-3 * max(1, np.sqrt(x.size)))


@given(case=cases())
def test_in_place(case: Case) -> None:
    shape, options = case
    x = normal(shape)
    y, dy, dx = both(x, options)
    again = x.copy()
    lrn.forward(again, again, **options)
    assert again.tobytes() == y.tobytes()
    lrn.backward(x, None, dy, dy, **options)
    assert dy.tobytes() == dx.tobytes()


def test_the_same_bits_every_time() -> None:
    x = normal((2, 33, 9, 10))
    first, second = both(x, ALEXNET), both(x, ALEXNET)
    assert [part.tobytes() for part in first] == [part.tobytes() for part in second]


def test_what_is_refused() -> None:
    x = normal((2, 3, 4))
    for size in (0, lrn.SLOTS + 1):
        with raises_naming(KernelError, size, 1, lrn.SLOTS):
            lrn.forward(x, x, size=size)
    with raises_naming(KernelError, "y", "(1, 3, 4)", "(2, 3, 4)", "lrn.forward"):
        lrn.forward(x, x[:1])
    with raises_naming(KernelError, "dy"):
        lrn.backward(x, None, x[:1], x)
    with raises_naming(KernelError, "axes"):
        lrn.forward(x[0, 0], x[0, 0])
