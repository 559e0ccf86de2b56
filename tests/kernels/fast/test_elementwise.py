"""Fill, copy and axpy, and that nothing is written beyond an array's end."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import elementwise
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_arrays_of_any_rank() -> None:
    x = normal(2, 3, 5, 7)
    y = np.empty_like(x)
    elementwise.copy(x, y)
    assert np.array_equal(y, x)
    single = np.zeros((), np.float32)
    elementwise.fill(single, 4)
    assert single == 4


def test_errors() -> None:
    x = normal(4, 3)
    with raises_naming(KernelError, "elementwise.copy", "y", (3, 4), (4, 3)):
        elementwise.copy(x, np.empty((3, 4), np.float32))
    with raises_naming(KernelError, "elementwise.axpy", "y", (12,), (4, 3)):
        elementwise.axpy(1.0, x, x.ravel())
    with raises_naming(KernelError, "elementwise.fill", "x", "float64", "float32"):
        elementwise.fill(np.zeros(3), 1)
