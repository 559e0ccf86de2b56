"""SGD: against the reference, and against PyTorch's optimiser over several steps, the first one included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import sgd
from kernels.targets import cpu
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

RATES = {"rate": 0.1, "momentum": 0.9, "decay": 5e-4}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@given(
    n=st.one_of(st.sampled_from([1, 255, 1024, 1025, 4099]), st.integers(1, 5000)),
    rate=st.floats(0, 1),
    momentum=st.floats(0, 1),
    decay=st.floats(0, 0.1),
)
def test_one_step(n: int, rate: float, momentum: float, decay: float) -> None:
    w, dw, v = normal(n), normal(n, seed=1), normal(n, seed=2)
    options = {"rate": rate, "momentum": momentum, "decay": decay}
    expected_w, expected_v = reference.sgd_update(w, dw, v, **options)
    again_w, again_v, gradient = w.copy(), v.copy(), dw.copy()
    sgd.update(w, dw, v, **options)
    np.testing.assert_allclose(w, expected_w, rtol=0, atol=3e-6)
    np.testing.assert_allclose(v, expected_v, rtol=0, atol=3e-6)
    assert np.array_equal(dw, gradient)
    sgd.update(again_w, dw, again_v, **options)
    assert again_w.tobytes() == w.tobytes() and again_v.tobytes() == v.tobytes()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_steps_as_in_pytorch(torch: Any, momentum: float, decay: float) -> None:
    """PyTorch starts its momentum with the first gradient, we start with zeros: the same from the first step on."""
    w, v = normal(7, 150), np.zeros((7, 150), np.float32)
    theirs = torch.nn.Parameter(torch.tensor(w))
    optimiser = torch.optim.SGD([theirs], lr=0.1, momentum=momentum, weight_decay=decay)
    for step in range(5):
        dw = normal(7, 150, seed=step + 1)
        theirs.grad = torch.tensor(dw)
        optimiser.step()
        sgd.update(w, dw, v, rate=0.1, momentum=momentum, decay=decay)
        np.testing.assert_allclose(w, theirs.detach().numpy(), rtol=0, atol=2e-6)


def test_without_momentum_and_decay_it_is_plain_descent() -> None:
    w, dw, v = normal(1500), normal(1500, seed=1), np.zeros(1500, np.float32)
    before = w.copy()
    sgd.update(w, dw, v, rate=0.5)
    assert np.array_equal(w, before - np.float32(0.5) * dw)  # halving is exact, fused or not
    assert np.array_equal(v, dw)


@pytest.mark.parametrize("order", ["forward", "reverse", 5])
def test_every_index_is_inside(order: str | int) -> None:
    w, dw, v = normal(1025), normal(1025, seed=1), normal(1025, seed=2)
    expected_w, expected_v = reference.sgd_update(w, dw, v, **RATES)
    with cpu.checked(order):
        sgd.update(w, dw, v, **RATES)
    np.testing.assert_allclose(w, expected_w, rtol=0, atol=3e-6)
    np.testing.assert_allclose(v, expected_v, rtol=0, atol=3e-6)


def test_errors() -> None:
    w, other = normal(4, 3), normal(3, 4)
    with raises_naming(KernelError, "sgd.update", "dw", (3, 4), (4, 3)):
        sgd.update(w, other, w, **RATES)
    with raises_naming(KernelError, "sgd.update", "momentum_buffer", (3, 4), (4, 3)):
        sgd.update(w, w, other, **RATES)
    with raises_naming(KernelError, "sgd.update", "dw", "float64"):
        sgd.update(w, w.astype(np.float64), w, **RATES)
