"""Fill, copy and axpy, and that nothing is written beyond an array's end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import elementwise
from kernels.targets import cpu
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

SIZES = st.one_of(st.sampled_from([1, 2, 255, 256, 257, 1023, 1024, 1025, 2048, 4099]), st.integers(1, 5000))
GUARD = np.float32(-77)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def guarded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same values in the middle of a larger buffer, and that buffer."""
    buffer = np.full(values.size + 2048, GUARD)
    middle = buffer[1024 : 1024 + values.size].reshape(values.shape)
    middle[...] = values
    return middle, buffer


def untouched(buffer: np.ndarray) -> bool:
    return bool((buffer[:1024] == GUARD).all() and (buffer[-1024:] == GUARD).all())


@given(n=SIZES, value=st.floats(width=32))
def test_fill(n: int, value: float) -> None:
    x, buffer = guarded(normal(n))
    elementwise.fill(x, value)
    assert np.array_equal(x, reference.fill((n,), value), equal_nan=True)
    assert untouched(buffer)


@given(n=SIZES)
def test_copy(n: int) -> None:
    x, (y, buffer) = normal(n), guarded(normal(n, seed=1))
    elementwise.copy(x, y)
    assert np.array_equal(y, x)
    assert untouched(buffer)


@given(n=SIZES, alpha=st.floats(-2, 2, width=32))
def test_axpy(n: int, alpha: float) -> None:
    x, before = normal(n), normal(n, seed=1)
    y, buffer = guarded(before)
    elementwise.axpy(alpha, x, y)
    np.testing.assert_allclose(y, reference.axpy(alpha, x, before), rtol=0, atol=3e-7 * 10)
    assert untouched(buffer)
    again = before.copy()
    elementwise.axpy(alpha, x, again)
    assert np.array_equal(again, y)


def test_axpy_of_an_array_with_itself() -> None:
    x = normal(1500)
    expected = 3 * x
    elementwise.axpy(2.0, x, x)
    assert np.array_equal(x, expected)


def test_arrays_of_any_rank() -> None:
    x = normal(2, 3, 5, 7)
    y = np.empty_like(x)
    elementwise.copy(x, y)
    assert np.array_equal(y, x)
    single = np.zeros((), np.float32)
    elementwise.fill(single, 4)
    assert single == 4


@pytest.mark.parametrize("order", ["forward", "reverse", 5])
def test_every_index_is_inside(order: str | int) -> None:
    x, y = normal(1025), normal(1025, seed=1)
    expected = reference.axpy(1.0, x, y)
    with cpu.checked(order):
        elementwise.axpy(1.0, x, y)
        assert np.array_equal(y, expected)
        elementwise.copy(x, y)
        assert np.array_equal(y, x)
        elementwise.fill(y, 2)
    assert (y == 2).all()


def test_errors() -> None:
    x = normal(4, 3)
    with raises_naming(KernelError, "elementwise.copy", "y", (3, 4), (4, 3)):
        elementwise.copy(x, np.empty((3, 4), np.float32))
    with raises_naming(KernelError, "elementwise.axpy", "y", (12,), (4, 3)):
        elementwise.axpy(1.0, x, x.ravel())
    with raises_naming(KernelError, "elementwise.fill", "x", "float64", "float32"):
        elementwise.fill(np.zeros(3), 1)
