"""Products of maps by a gate and by a learnt number a channel, and their gradients, beside NumPy's and PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import mul, scale
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

#: Images, channels, height and width: maps of one number, of less than a CPU's vector, and of more than a block.
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 13), st.integers(1, 13)) | st.sampled_from(
    [(1, 1, 1, 1), (2, 3, 1, 1), (1, 2, 16, 8), (2, 1, 43, 3), (1, 300, 2, 2)]
)


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def gate_for(shape: tuple[int, ...], form: str) -> np.ndarray:
    return values(*{"whole": shape, "a map": (*shape[:2], 1, 1), "a row": shape[:2]}[form], seed=2)


@pytest.mark.parametrize("form", ["whole", "a map", "a row"])
@given(shape=SHAPES)
def test_a_gate(form: str, shape: tuple[int, ...]) -> None:
    x, gate, dy = values(*shape), gate_for(shape, form), values(*shape, seed=1)
    y, dx, dgate = np.full_like(x, np.nan), np.full_like(x, np.nan), np.full_like(gate, np.nan)
    mul.forward(x, gate, y)
    assert np.array_equal(y, reference.mul_forward(x, gate))
    mul.backward(x, gate, dy, dx, dgate)
    expected_dx, expected_dgate = reference.mul_backward(x, gate, dy)
    assert np.array_equal(dx, expected_dx)
    np.testing.assert_allclose(dgate, expected_dgate, rtol=1e-5, atol=1e-5 * np.abs(dy).max())
    again = np.full_like(gate, np.nan)
    mul.backward(x, gate, dy, dy, again)
    assert (dy.tobytes(), again.tobytes()) == (dx.tobytes(), dgate.tobytes())


@given(shape=SHAPES, is_matrix=st.booleans())
def test_a_number_a_channel(shape: tuple[int, ...], is_matrix: bool) -> None:
    shape = shape[:2] if is_matrix else shape
    x, w, dy = values(*shape), values(shape[1], seed=2), values(*shape, seed=1)
    y, dx, dw = np.full_like(x, np.nan), np.full_like(x, np.nan), np.full_like(w, np.nan)
    workspace = np.full(scale.workspace_bytes(shape) // 4, np.nan, np.float32)
    scale.forward(x, w, y)
    assert np.array_equal(y, reference.scale_forward(x, w))
    scale.backward(x, w, dy, dx, dw, workspace=workspace)
    expected_dx, expected_dw = reference.scale_backward(x, w, dy)
    assert np.array_equal(dx, expected_dx)
    np.testing.assert_allclose(dw, expected_dw, rtol=1e-5, atol=1e-5 * len(x) * np.abs(dy).max())
    again = np.full_like(w, np.nan)
    scale.backward(x, w, dy, dy, again, workspace=workspace)
    assert (dy.tobytes(), again.tobytes()) == (dx.tobytes(), dw.tobytes())


@pytest.mark.parametrize("form", ["whole", "a map", "a channel"])
def test_the_oracle_is_pytorchs(form: str, torch: Any) -> None:
    x, dy = values(3, 5, 4, 6), values(3, 5, 4, 6, seed=1)
    factor = values(5, seed=2) if form == "a channel" else gate_for(x.shape, form)
    theirs = [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (x, factor)]
    made = theirs[0] * (theirs[1].reshape(-1, 1, 1) if form == "a channel" else theirs[1])
    made.backward(torch.tensor(dy))
    forward, backward = (
        (reference.scale_forward, reference.scale_backward)
        if form == "a channel"
        else (reference.mul_forward, reference.mul_backward)
    )
    np.testing.assert_allclose(forward(x, factor), made.detach().numpy(), rtol=1e-6)
    for ours, their in zip(backward(x, factor, dy), theirs, strict=True):
        np.testing.assert_allclose(ours, their.grad.numpy(), rtol=1e-5, atol=1e-6)


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
