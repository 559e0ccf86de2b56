"""The element-wise kinds of layers: every option, in place and not, against the oracle and against PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pytest

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


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """As wide as an activation's bends: most are within, some far outside."""
    return (3 * np.random.default_rng((seed, *shape)).standard_normal(shape)).astype(np.float32)


def read_by(kind: str, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """The maps that the gradient is computed from."""
    return [{"x": x, "y": y}[name] for name in TRAITS[kind].backward_reads]  # type: ignore[index]


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_an_array_of_another_shape_is_refused(kind: str, form: Mapping[str, Any]) -> None:
    module, right, wrong = import_module(f"kernels.fast.{kind}"), values(4, 3), values(3, 4)
    with raises_naming(KernelError, f"{kind}.forward", "y", (3, 4), (4, 3)):
        module.forward(right, wrong, **form)
    for gradients in ((wrong, right), (right, wrong)):
        with raises_naming(KernelError, f"{kind}.backward", (3, 4), (4, 3)):
            module.backward(*read_by(kind, right, right), *gradients, **form)
