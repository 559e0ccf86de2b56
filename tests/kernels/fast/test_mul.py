"""Products of maps by a gate and by a learnt number a channel, and their gradients, beside NumPy's and PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import mul, scale
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def test_shapes_that_do_not_fit_are_refused() -> None:
    x, wrong = values(2, 3, 4, 4), values(2, 4, 1, 1)
    with raises_naming(KernelError, "mul.forward", "gate", (2, 4, 1, 1), (2, 3, 4, 4), (2, 3, 1, 1)):
        mul.forward(x, wrong, x)
    gate = values(2, 3, 1, 1)
    with raises_naming(KernelError, "mul.backward", "dgate", (2, 4, 1, 1), (2, 3, 1, 1)):
        mul.backward(x, gate, x, x, wrong)
    with raises_naming(KernelError, "scale.forward", "w", (4,), (3,)):
        scale.forward(x, values(4), x)
    with raises_naming(KernelError, "scale.backward", "workspace", 5, 6):
        scale.backward(x, values(3), x, x, values(3), workspace=values(5))
