"""Concatenation along the channels and the split that is its gradient."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import concat
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_errors() -> None:
    a, b, y = normal(2, 3, 4, 4), normal(2, 2, 4, 4), normal(2, 5, 4, 4)
    with raises_naming(KernelError, "concat.forward", "inputs", 3, "y", 5):
        concat.forward([a], y)
    with raises_naming(KernelError, "concat.forward", "inputs"):
        concat.forward([], y)
    with raises_naming(KernelError, "inputs[1]", (3, 2, 4, 4), (2, 2, 4, 4)):
        concat.forward([a, normal(3, 2, 4, 4)], y)
    with raises_naming(KernelError, "concat.backward", "dxs[0]", (2, 3, 4, 5), (2, 3, 4, 4)):
        concat.backward(y, [normal(2, 3, 4, 5), b])
    with raises_naming(KernelError, "dxs[1]"):
        concat.backward(y, [a, y[:, 3:]])
    with raises_naming(KernelError, "dxs[1]", (5,)):
        concat.backward(y, [a, normal(5)])
    with raises_naming(KernelError, "y", (5,)):
        concat.forward([normal(5)], normal(5))
