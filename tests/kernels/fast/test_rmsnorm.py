"""RMS normalisation: against NumPy and PyTorch over drawn shapes, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import rmsnorm
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 9), st.integers(1, 9))


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def blank(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


@given(shape=SHAPES, affine=st.booleans())
@example((2, 70, 9, 5), True)  # several blocks of an image, and more values than threads
@example((3, 6, 41, 60), True)  # several chunks
@example((2, 300, 1, 1), True)
def test_forward_and_backward(torch: Any, shape: tuple[int, ...], affine: bool) -> None:
    """Against the oracle, and that against PyTorch in double precision."""
    x, dy, gamma = 2 * drawn(*shape) + np.float32(1), drawn(*shape, seed=1), drawn(shape[1], seed=2)
    weight: Any = gamma if affine else None
    expected, slopes = reference.rmsnorm_forward(x, weight), reference.rmsnorm_backward(x, weight, dy)
    right, factor = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (x, gamma))
    made = torch.nn.functional.rms_norm(right.movedim(1, -1), shape[1:2], factor if affine else None, 1e-6)
    made.movedim(-1, 1).backward(torch.tensor(dy, dtype=torch.float64))
    np.testing.assert_allclose(expected[0], made.detach().movedim(-1, 1).numpy(), rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(slopes, [right, factor], strict=False):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=1e-4, atol=1e-5)

    y, dx, inverse_rms = blank(*shape), blank(*shape), blank(shape[0], shape[2] * shape[3])
    dgamma: Any = blank(shape[1]) if affine else None
    rmsnorm.forward(x, weight, y, inverse_rms)
    workspace = blank(rmsnorm.workspace_bytes(shape) // 4)
    rmsnorm.backward(x, weight, inverse_rms, dy, dx, dgamma, workspace=workspace)
    rmsnorm.backward(x, weight, inverse_rms, dy, dy, dgamma, workspace=workspace)
    assert dy.tobytes() == dx.tobytes()
    for ours, theirs in zip([y, inverse_rms, dx, dgamma], [*expected, *slopes], strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(theirs).max())))


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
