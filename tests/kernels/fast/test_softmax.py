"""Softmax, cross-entropy and their gradient: extreme values, NaN, labels out of range."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks import reference
from kernels.fast import softmax

pytestmark = pytest.mark.ptx


def all_three(x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, losses and dx, which have been NaN."""
    y, losses, dx = np.full_like(x, np.nan), np.full(len(x), np.nan, np.float32), np.full_like(x, np.nan)
    softmax.forward(x, y)
    softmax.cross_entropy(y, labels, losses)
    softmax.backward(y, labels, dx)
    return y, losses, dx


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_nothing_overflows() -> None:
    x = np.array([[1e38, -1e38, 0], [-1e38, -1e38, -1e38], [1000, 999, -np.inf]], np.float32)
    y, losses, dx = all_three(x, np.zeros(3, np.int32))
    close(y, reference.softmax_forward(x))
    close(losses, np.array([0, np.log(3), np.log1p(np.exp(-1))], np.float32))
    assert np.isfinite(dx).all()


def test_what_float32_cannot_tell_from_zero() -> None:
    """The loss of an impossible class is infinite, its gradient is not."""
    y, losses, dx = all_three(np.array([[0, 200]], np.float32), np.array([0], np.int32))
    assert y.tolist() == [[0, 1]] and losses.tolist() == [np.inf] and dx.tolist() == [[-1, 1]]


def test_nan_stays_in_its_row() -> None:
    y, losses, dx = all_three(np.array([[0, np.nan, 0], [0, 0, 0]], np.float32), np.array([0, 0], np.int32))
    for part in (y, losses[:, None], dx):
        assert np.isnan(part[0]).all() and np.isfinite(part[1]).all()
