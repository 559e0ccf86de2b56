"""The element-wise kinds of layers: every option, in place and not, against the oracle and against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from time import process_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import gelu
from kernels.targets import emulated
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


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_takes_about_as_long_as_pytorchs(approximate: str, torch: Any) -> None:
    """In turns, in processor seconds: 1 to 1.6 times as long on two CPUs, where the library's erf took 4 to 18."""
    if emulated.active():
        pytest.skip("with an emulated GPU every launch is made twice")
    x, y, dx = (values(1 << 18, seed=seed) for seed in range(3))
    its_x, its_y, its_dx = map(torch.from_numpy, (x, y.copy(), dx.copy()))
    runs: dict[str, Callable[[], Any]] = {
        "forward": lambda: gelu.forward(x, y, approximate=approximate),
        "its forward": lambda: torch.ops.aten.gelu.out(its_x, approximate=approximate, out=its_y),
        "backward": lambda: gelu.backward(x, dx, dx, approximate=approximate),
        "its backward": lambda: torch.ops.aten.gelu_backward.grad_input(
            its_y, its_x, approximate=approximate, grad_input=its_dx
        ),
    }
    taken = dict.fromkeys(runs, float("inf"))
    for _ in range(40):
        for name, run in runs.items():
            start = process_time()
            run()
            taken[name] = min(taken[name], process_time() - start)
            dx.fill(1)
    assert taken["forward"] <= 2.5 * taken["its forward"], taken
    assert taken["backward"] <= 2.5 * taken["its backward"], taken
