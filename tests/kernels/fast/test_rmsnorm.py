"""RMS normalisation: against NumPy and PyTorch over drawn shapes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import rmsnorm
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def test_what_cannot_be_is_refused() -> None:
    x, gamma, kept = drawn(2, 6, 3, 3), drawn(6), drawn(2, 9)
    with raises_naming(KernelError, "rmsnorm.forward", "inverse_rms", (2, 9), (2, 3)):
        rmsnorm.forward(x, gamma, x, drawn(2, 3))
    with raises_naming(KernelError, "rmsnorm.forward", "gamma", 5, 6):
        rmsnorm.forward(x, drawn(5), x, kept)
    with raises_naming(KernelError, "rmsnorm.backward", "gamma, dgamma"):
        rmsnorm.backward(x, gamma, kept, x, x)
    with raises_naming(KernelError, "rmsnorm.backward", "workspace", 0, 24):
        rmsnorm.backward(x, gamma, kept, x, x, gamma)
