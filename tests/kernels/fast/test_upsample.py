"""Upsampling: against NumPy and PyTorch over drawn sizes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import upsample
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def test_what_cannot_be_is_refused() -> None:
    x, y = drawn(2, 3, 4, 4), drawn(2, 3, 8, 8)
    with raises_naming(KernelError, "upsample.forward", "mode", "cubic", "nearest, bilinear"):
        upsample.forward(x, y, mode="cubic")
    with raises_naming(KernelError, "upsample.backward", (2, 3, 8, 8), (2, 4, 4, 4)):
        upsample.backward(y, drawn(2, 4, 4, 4))
    long = np.broadcast_to(np.float32(0), (1, 1, 1, 1 << 16)).copy()
    with raises_naming(KernelError, "upsample.forward", 1 << 16):
        upsample.forward(long, long)
