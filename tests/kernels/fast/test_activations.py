"""The element-wise kinds of layers: every option, in place and not, against the oracle and against PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from refimpl.network.kinds import TRAITS
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx
FORMS = [
    pytest.param(kind, form, id="-".join((kind, *form)))
    for kind, traits in TRAITS.items()
    if traits.elementwise
    for form in traits.forms
]
SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple) | st.sampled_from([(1024,), (1025,)])


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """As wide as an activation's bends: most are within, some far outside."""
    return (3 * np.random.default_rng((seed, *shape)).standard_normal(shape)).astype(np.float32)


def read_by(kind: str, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """The maps that the gradient is computed from."""
    return [{"x": x, "y": y}[name] for name in TRAITS[kind].backward_reads]  # type: ignore[index]


@pytest.mark.parametrize(("kind", "form"), FORMS)
@given(shape=SHAPES)
def test_forward_and_backward(kind: str, form: Mapping[str, Any], shape: tuple[int, ...]) -> None:
    module, x, dy = import_module(f"kernels.fast.{kind}"), values(*shape), values(*shape, seed=1)
    y, dx = np.full_like(x, np.nan), np.full_like(x, np.nan)
    module.forward(x, y, **form)
    module.backward(*read_by(kind, x, y), dy, dx, **form)
    np.testing.assert_allclose(y, getattr(reference, f"{kind}_forward")(x, **form), rtol=1e-5, atol=1e-5)
    expected = getattr(reference, f"{kind}_backward")(*read_by(kind, x, y), dy, **form)
    np.testing.assert_allclose(dx, expected, rtol=1e-5, atol=1e-5 * np.abs(dy).max())
    module.backward(*read_by(kind, x, y), dy, dy, **form)
    module.forward(x, x, **form)
    assert (x.tobytes(), dy.tobytes()) == (y.tobytes(), dx.tobytes())


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_the_oracle_is_pytorchs(kind: str, form: Mapping[str, Any], torch: Any) -> None:
    from refimpl.studies.bench.pytorch import elementwise

    x, dy = values(3, 700), values(3, 700, seed=1)
    there = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    made = elementwise(kind, there, form)
    made.backward(torch.tensor(dy))
    y = getattr(reference, f"{kind}_forward")(x, **form)
    np.testing.assert_allclose(y, made.detach().numpy(), rtol=1e-6, atol=1e-6)
    dx = getattr(reference, f"{kind}_backward")(*read_by(kind, x, y), dy, **form)
    np.testing.assert_allclose(dx, there.grad.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_an_array_of_another_shape_is_refused(kind: str, form: Mapping[str, Any]) -> None:
    module, right, wrong = import_module(f"kernels.fast.{kind}"), values(4, 3), values(3, 4)
    with raises_naming(KernelError, f"{kind}.forward", "y", (3, 4), (4, 3)):
        module.forward(right, wrong, **form)
    for gradients in ((wrong, right), (right, wrong)):
        with raises_naming(KernelError, f"{kind}.backward", (3, 4), (4, 3)):
            module.backward(*read_by(kind, right, right), *gradients, **form)


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_the_oracles_gradient_is_that_of_its_values(kind: str, form: Mapping[str, Any]) -> None:
    """By finite differences, away from where a slope jumps."""
    x, apart = np.linspace(-5, 5, 1777).astype(np.float32), np.float32(2**-7)
    bends = np.abs(x[:, None] - np.array([-3, 0, 0.5, 3], np.float32)).min(axis=1)
    x = x[bends > 2 * apart]
    forward = getattr(reference, f"{kind}_forward")
    rise = forward(x + apart, **form).astype(np.float64) - forward(x - apart, **form)
    y, dy = forward(x, **form), np.ones_like(x)
    found = getattr(reference, f"{kind}_backward")(*read_by(kind, x, y), dy, **form)
    np.testing.assert_allclose(found, rise / (2 * apart), rtol=0, atol=1e-4)
