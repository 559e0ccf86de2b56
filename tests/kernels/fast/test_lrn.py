"""Local response normalisation: oracles, slopes, every size, and in place against out of place."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import lrn
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def normal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 4, 5, lrn.SLOTS])
def test_in_place(size: int) -> None:
    x, dy = normal((2, 19, 5, 7)), normal((2, 19, 5, 7), seed=1)
    y, dx, again = np.empty_like(x), np.empty_like(x), x.copy()
    lrn.forward(x, y, size=size, alpha=0.5)
    lrn.backward(x, y, dy, dx, size=size, alpha=0.5)
    lrn.forward(again, again, size=size, alpha=0.5)
    lrn.backward(x, None, dy, dy, size=size, alpha=0.5)
    assert (again.tobytes(), dy.tobytes()) == (y.tobytes(), dx.tobytes())


def test_what_is_refused() -> None:
    x = normal((2, 3, 4))
    for size in (0, lrn.SLOTS + 1):
        with raises_naming(KernelError, size, 1, lrn.SLOTS):
            lrn.forward(x, x, size=size)
    with raises_naming(KernelError, "y", "(1, 3, 4)", "(2, 3, 4)", "lrn.forward"):
        lrn.forward(x, x[:1])
    with raises_naming(KernelError, "dy"):
        lrn.backward(x, None, x[:1], x)
    with raises_naming(KernelError, "axes"):
        lrn.forward(x[0, 0], x[0, 0])
