"""Upsampling: against NumPy and PyTorch over drawn sizes, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import upsample
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

SIZES = st.tuples(*[st.integers(1, 11)] * 2)
HOWS: Any = st.sampled_from([{}, {"mode": "bilinear"}, {"mode": "bilinear", "align_corners": True}])


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


@given(planes=st.tuples(st.integers(1, 2), st.integers(1, 3)), size=SIZES, out=SIZES, how=HOWS)
@example((1, 2), (9, 14), (27, 31), {"mode": "bilinear"})  # several blocks
def test_forward_and_backward(torch: Any, planes: Any, size: Any, out: Any, how: dict[str, Any]) -> None:
    """Against the oracle, and that against PyTorch in double precision."""
    x, dy = drawn(*planes, *size), drawn(*planes, *out)
    y, dx = np.full_like(dy, np.nan), np.full_like(x, np.nan)
    upsample.forward(x, y, **how)
    upsample.backward(dy, dx, **how)
    expected, slopes = reference.upsample_forward(x, out, **how), reference.upsample_backward(dy, size, **how)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(dx, slopes, rtol=0, atol=1e-5 * max(1, np.abs(slopes).max()))

    there = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    aligned = how.get("align_corners") if how else None
    made = torch.nn.functional.interpolate(there, out, mode=how.get("mode", "nearest"), align_corners=aligned)
    made.backward(torch.tensor(dy, dtype=torch.float64))
    np.testing.assert_allclose(expected, made.detach().numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slopes, there.grad.numpy(), rtol=1e-6, atol=1e-6)


def test_what_cannot_be_is_refused() -> None:
    x, y = drawn(2, 3, 4, 4), drawn(2, 3, 8, 8)
    with raises_naming(KernelError, "upsample.forward", "mode", "cubic", "nearest, bilinear"):
        upsample.forward(x, y, mode="cubic")
    with raises_naming(KernelError, "upsample.backward", (2, 3, 8, 8), (2, 4, 4, 4)):
        upsample.backward(y, drawn(2, 4, 4, 4))
    long = np.broadcast_to(np.float32(0), (1, 1, 1, 1 << 16)).copy()
    with raises_naming(KernelError, "upsample.forward", 1 << 16):
        upsample.forward(long, long)
