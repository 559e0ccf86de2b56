"""Concatenation along the channels and the split that is its gradient."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import concat
from kernels.targets import cpu
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


MAPS = st.one_of(
    st.sampled_from([(), (1,), (1, 1), (13, 13), (32, 32), (31, 37), (1025,)]),
    st.lists(st.integers(1, 9), max_size=3).map(tuple),
)


@given(images=st.integers(1, 4), channels=st.lists(st.integers(1, 6), min_size=1, max_size=5), maps=MAPS)
def test_forward_and_backward(images: int, channels: list[int], maps: tuple[int, ...]) -> None:
    parts = [normal(images, c, *maps, seed=i) for i, c in enumerate(channels)]
    y = np.full((images, sum(channels), *maps), np.nan, np.float32)
    concat.forward(parts, y)
    assert np.array_equal(y, reference.concat_forward(parts))
    back = [np.full_like(part, np.nan) for part in parts]
    concat.backward(y, back)
    for found, expected in zip(back, reference.concat_backward(y, channels), strict=True):
        assert np.array_equal(found, expected)


def test_many_images_of_one_number() -> None:
    parts = [normal(3000, 1, seed=1), normal(3000, 2, seed=2)]
    y = np.empty((3000, 3), np.float32)
    concat.forward(parts, y)
    assert np.array_equal(y, reference.concat_forward(parts))


def test_as_in_pytorch(torch: object) -> None:
    parts = [normal(2, c, 5, 3, seed=c) for c in (1, 4, 2)]
    y = np.empty((2, 7, 5, 3), np.float32)
    concat.forward(tuple(parts), y)
    assert np.array_equal(y, torch.cat([torch.tensor(part) for part in parts], dim=1).numpy())  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", ["forward", "reverse", 5])
def test_every_index_is_inside(order: str | int) -> None:
    parts = [normal(2, 3, 5, 71, seed=1), normal(2, 1, 5, 71, seed=2)]
    y, back = np.empty((2, 4, 5, 71), np.float32), [np.empty_like(part) for part in parts]
    with cpu.checked(order):
        concat.forward(parts, y)
        concat.backward(y, back)
    assert np.array_equal(y, reference.concat_forward(parts))
    assert all(np.array_equal(found, part) for found, part in zip(back, parts, strict=True))


def test_errors() -> None:
    a, b, y = normal(2, 3, 4, 4), normal(2, 2, 4, 4), normal(2, 5, 4, 4)
    with raises_naming(KernelError, "concat.forward", "inputs", 3, "y", 5):
        concat.forward([a], y)
    with raises_naming(KernelError, "concat.forward", "inputs"):
        concat.forward([], y)
    with raises_naming(KernelError, "inputs[1]", (3, 2, 4, 4), (2, 2, 4, 4)):
        concat.forward([a, normal(3, 2, 4, 4)], y)
    with raises_naming(KernelError, "concat.backward", "dxs[0]", (2, 3, 4, 5), (2, 3, 4, 4)):
        concat.backward(y, [normal(2, 3, 4, 5), b])
    with raises_naming(KernelError, "dxs[1]"):
        concat.backward(y, [a, y[:, 3:]])
    with raises_naming(KernelError, "dxs[1]", (5,)):
        concat.backward(y, [a, normal(5)])
    with raises_naming(KernelError, "y", (5,)):
        concat.forward([normal(5)], normal(5))
