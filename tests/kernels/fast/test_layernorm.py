"""Layer, group and instance normalisation: against NumPy and PyTorch over drawn shapes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import layernorm
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("where", "groups", "area", "chosen"), [
    ("cpu", 2, 16, True), ("cpu", 2, 15, False), ("gpu", 2, 16, False), ("cpu", None, 16, False),
])  # fmt: skip
def test_a_cpu_takes_the_channels_of_groups_one_by_one(where: str, groups: int | None, area: int, chosen: bool) -> None:
    assert layernorm.by_channel(where, layernorm.Sets.of("", (3, 4, area), groups)) == chosen


def test_what_cannot_be_is_refused() -> None:
    x, gamma, kept = drawn(2, 6, 3, 3), drawn(6), drawn(2, 9)
    with raises_naming(KernelError, "layernorm.forward", 6, "channels", 4, "groups"):
        layernorm.forward(x, gamma, gamma, x, kept, kept, groups=4)
    with raises_naming(KernelError, "layernorm.forward", "mean", (2, 9), (2, 3)):
        layernorm.forward(x, gamma, gamma, x, kept, kept, groups=3)
    with raises_naming(KernelError, "layernorm.forward", "gamma, beta"):
        layernorm.forward(x, gamma, None, x, kept, kept)
    with raises_naming(KernelError, "layernorm.backward", "workspace", 0, 48):
        layernorm.backward(x, gamma, kept, kept, x, x, gamma, gamma)
