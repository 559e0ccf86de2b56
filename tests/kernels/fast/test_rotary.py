"""Rotary positions: against NumPy in double precision over drawn shapes, there and back, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import rotary
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


#: Images, groups, queries of a group, half the channels of a head, half of those that are turned, tokens, one map.
Case = tuple[int, int, int, int, int, int, bool]


@st.composite
def cases(draw: Any) -> Case:
    half = draw(st.integers(1, 6))
    sizes = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3)), half, draw(st.integers(1, half))
    return *sizes, draw(st.integers(1, 70)), draw(st.booleans())


@given(case=cases(), neighbours=st.booleans(), base=st.sampled_from([10000.0, 500000.0, 3.0]))
@example((1, 1, 1, 64, 64, 2048, True), False, 10000.0)
@example((1, 2, 1, 300, 300, 257, False), True, 10000.0)
def test_forward_and_backward(case: Case, neighbours: bool, base: float) -> None:
    images, groups, together, half, turned, tokens, packed = case
    heads = groups * together if packed else groups
    channels = (heads + 2 * groups if packed else heads) * 2 * half
    how: dict[str, Any] = {"heads": heads, "packed": packed, "rotated": 2 * turned, "neighbours": neighbours}
    how |= {"base": base} | ({"kv_heads": groups} if packed else {})
    x, y = drawn(images, channels, tokens, 1), np.full((images, channels, tokens, 1), np.nan, np.float32)
    room = 2e-6 + 3e-8 * tokens
    rotary.forward(x, y, **how)
    np.testing.assert_allclose(y, reference.rotary_forward(x, **how), rtol=0, atol=room)
    back, there = np.full_like(x, np.nan), x.copy()
    rotary.forward(there, there, **how)
    rotary.backward(y, back, **how)
    rotary.backward(y, y, **how)
    assert there.tobytes() != x.tobytes() or tokens == 1
    assert back.tobytes() == y.tobytes()
    np.testing.assert_allclose(back, x, rtol=0, atol=4e-6)
    np.testing.assert_allclose(reference.rotary_backward(there, **how), x, rtol=0, atol=room)


@pytest.mark.parametrize("neighbours", [False, True])
def test_products_of_a_query_and_a_key_depend_on_their_distance_alone(neighbours: bool) -> None:
    """What the rotation is for: the same query and key, at any two places that are equally far apart."""
    rows = np.repeat(drawn(1, 2, 16, 1), 50, axis=3).reshape(1, 32, 50, 1)
    turned = np.empty_like(rows)
    rotary.forward(rows, turned, heads=2, packed=False, neighbours=neighbours)
    query, key = turned.reshape(2, 16, 50)
    products = (query.T @ key).astype(np.float64)
    for distance in range(50):
        assert np.ptp(np.diagonal(products, distance)) < 1e-4
    assert np.ptp(products[0]) > 1


def test_an_angle_is_right_at_a_far_place() -> None:
    """Of the last of 100,000 tokens, in double precision: a product in float32 would be wrong by 0.003."""
    x = np.zeros((1, 4, 100_000, 1), np.float32)
    x[:, :2] = 1
    y = np.empty_like(x)
    rotary.forward(x, y, heads=1, packed=False)
    angles = np.arange(100_000) * 10000.0 ** np.array([[0.0], [-0.5]])
    np.testing.assert_allclose(y[0, :2, :, 0], np.cos(angles), rtol=0, atol=6e-4)
    np.testing.assert_allclose(y[0, 2:, :, 0], np.sin(angles), rtol=0, atol=6e-4)


def test_what_cannot_be_is_refused() -> None:
    x = drawn(2, 12, 5, 1)
    with raises_naming(KernelError, "rotary.forward", (2, 12, 5, 1), 5, "heads"):
        rotary.forward(x, x, heads=5)
    with raises_naming(KernelError, "rotary.forward", 3, 2, "groups"):
        rotary.forward(x, x, heads=3, kv_heads=2)
    with raises_naming(KernelError, "rotary.forward", 3, "pairs"):
        rotary.forward(x, x, heads=4, packed=False)
    with raises_naming(KernelError, "rotary.forward", 6, 4, "pairs"):
        rotary.forward(x, x, heads=1, rotated=6)
    with raises_naming(KernelError, "rotary.backward", "dx", (2, 4, 5, 1), (2, 12, 5, 1)):
        rotary.backward(x, drawn(2, 4, 5, 1), heads=1)
    with raises_naming(KernelError, "rotary.backward", "base", -1):
        rotary.backward(x, x, heads=1, base=-1)
    long = np.empty((1, 2, rotary.LONGEST + 1), np.float32)
    with raises_naming(KernelError, "rotary.forward", rotary.LONGEST + 1, rotary.LONGEST, "tokens"):
        rotary.forward(long, long, heads=1, packed=False)
