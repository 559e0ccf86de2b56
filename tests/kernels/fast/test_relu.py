"""The rectifier and its gradient, out of place and in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import relu
from kernels.targets import cpu
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

SHAPES = st.one_of(
    st.sampled_from([(1,), (255,), (256,), (1023,), (1024,), (1025,), (1, 1, 1, 1), (2, 3, 13, 17), (3, 1500)]),
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
)


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """A third of the values are zero, of either sign."""
    rng = np.random.default_rng(seed)
    zeros = rng.choice(np.array([0.0, -0.0, 1.0]), shape)
    return (rng.standard_normal(shape) * zeros).astype(np.float32)


LIMITS = st.sampled_from([None, 0.5, 6])


@given(shape=SHAPES, at_most=LIMITS)
def test_forward(shape: tuple[int, ...], at_most: float | None) -> None:
    x = values(*shape)
    y = np.full_like(x, np.nan)
    relu.forward(x, y, at_most=at_most)
    assert np.array_equal(y, reference.relu_forward(x, at_most))
    relu.forward(x, x, at_most=at_most)
    assert x.tobytes() == y.tobytes()


@given(shape=SHAPES, at_most=LIMITS)
def test_backward(shape: tuple[int, ...], at_most: float | None) -> None:
    y, dy = reference.relu_forward(values(*shape), at_most), values(*shape, seed=1)
    dx = np.full_like(y, np.nan)
    relu.backward(y, dy, dx, at_most=at_most)
    assert np.array_equal(dx, reference.relu_backward(y, dy, at_most))
    relu.backward(y, dy, dy, at_most=at_most)
    assert dy.tobytes() == dx.tobytes()


@pytest.mark.parametrize("at_most", [None, 1])
def test_as_in_pytorch(torch: Any, at_most: float | None) -> None:
    x, dy = values(3, 700), values(3, 700, seed=1)
    x[0, :6] = np.nan, np.inf, -np.inf, np.float32(1e-45), 1, -1
    given = torch.tensor(x, requires_grad=True)
    expected = torch.relu(given) if at_most is None else torch.nn.functional.hardtanh(given, 0, at_most)
    expected.backward(torch.tensor(dy))
    y, dx = np.empty_like(x), np.empty_like(x)
    relu.forward(x, y, at_most=at_most)
    relu.backward(y, dy, dx, at_most=at_most)
    assert np.array_equal(y, expected.detach().numpy(), equal_nan=True)
    assert np.array_equal(dx, given.grad.numpy())


@pytest.mark.parametrize("order", ["forward", "reverse", 5])
def test_every_index_is_inside(order: str | int) -> None:
    x, dy = values(1025), values(1025, seed=1)
    y, dx = np.empty_like(x), np.empty_like(x)
    with cpu.checked(order):
        relu.forward(x, y)
        relu.backward(y, dy, dx)
    assert np.array_equal(y, reference.relu_forward(x))
    assert np.array_equal(dx, reference.relu_backward(y, dy))


def test_errors() -> None:
    x, other = values(4, 3), values(3, 4)
    with raises_naming(KernelError, "relu.forward", "y", (3, 4), (4, 3)):
        relu.forward(x, other)
    with raises_naming(KernelError, "relu.backward", "dy", (3, 4), (4, 3)):
        relu.backward(x, other, x)
    with raises_naming(KernelError, "relu.backward", "dx", (3, 4), (4, 3)):
        relu.backward(x, x, other)
    with raises_naming(KernelError, "relu.forward", "x", (1, 4)):
        relu.forward(other.T, x)
    with raises_naming(KernelError, "relu.forward", "at_most", 0):
        relu.forward(x, x, at_most=0)
