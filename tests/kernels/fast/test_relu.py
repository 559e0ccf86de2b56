"""The rectifier and its gradient, out of place and in place."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import relu
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """A third of the values are zero, of either sign."""
    rng = np.random.default_rng(seed)
    zeros = rng.choice(np.array([0.0, -0.0, 1.0]), shape)
    return (rng.standard_normal(shape) * zeros).astype(np.float32)


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
