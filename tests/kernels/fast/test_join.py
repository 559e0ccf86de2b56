"""Joins and forks: sums in the order of the inputs, and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.checks import reference
from kernels.checks.arguments import KernelError
from kernels.fast import join
from kernels.targets import cpu
from kernels.targets.launch import bind
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx

SUMS = [join.forward, join.fork_backward]
COPIES = [join.backward, join.fork_forward]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def in_order(inputs: list[np.ndarray]) -> np.ndarray:
    """The sum, one addition in float32 after the other."""
    total = inputs[0].copy()
    for x in inputs[1:]:
        total += x
    return total


@pytest.mark.parametrize("add", SUMS)
@given(count=st.integers(1, 9), n=st.one_of(st.sampled_from([1, 256, 1023, 1024, 1025]), st.integers(1, 3000)))
def test_a_sum_adds_in_order(add: Callable[..., None], count: int, n: int) -> None:
    inputs = [normal(n, seed=i) * np.float32(10.0 ** (i % 3)) for i in range(count)]
    y = np.full(n, np.nan, np.float32)
    add(inputs, y)
    assert np.array_equal(y, in_order(inputs))
    np.testing.assert_allclose(y, reference.join_forward(inputs), rtol=0, atol=1e-6 * 500 * count)
    add(inputs, inputs[0])
    assert inputs[0].tobytes() == y.tobytes()


def test_the_order_is_seen_in_the_result() -> None:
    big, one = np.full(5, 2.0**25, np.float32), np.ones(5, np.float32)
    y = np.empty_like(big)
    join.forward([one, big, -big, one, one], y)
    assert (y == 2).all()
    join.forward([big, -big, one, one, one], y)
    assert (y == 3).all()


@pytest.mark.parametrize("spread", COPIES)
@pytest.mark.parametrize("count", [1, 3])
def test_copies(spread: Callable[..., None], count: int) -> None:
    x = normal(3, 5, 71)
    outputs = [np.full_like(x, np.nan) for _ in range(count)]
    spread(x, outputs)
    assert all(np.array_equal(y, x) for y in outputs)
    spread(x, [x, outputs[0]])  # the first reader may keep the tensor itself
    assert np.array_equal(outputs[0], x)


def test_up_to_four_tensors_are_added_in_one_launch() -> None:
    y = np.zeros(10, np.float32)
    launches = [len(bind(join.forward, [normal(10)] * count, y)) for count in range(1, 11)]
    assert launches == [1, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("order", ["forward", "reverse", 5])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_every_index_is_inside(order: str | int, count: int) -> None:
    inputs = [normal(1025, seed=i) for i in range(count)]
    y = np.empty_like(inputs[0])
    with cpu.checked(order):
        join.forward(inputs, y)
    assert np.array_equal(y, in_order(inputs))


def test_errors() -> None:
    x, other = normal(4, 3), normal(3, 4)
    with raises_naming(KernelError, "join.forward", "inputs"):
        join.forward([], x)
    with raises_naming(KernelError, "join.backward", "dxs"):
        join.backward(x, [])
    with raises_naming(KernelError, "join.forward", "inputs[1]", (3, 4), (4, 3)):
        join.forward([x, other], normal(4, 3))
    with raises_naming(KernelError, "join.fork_forward", "ys[0]", (3, 4), (4, 3)):
        join.fork_forward(x, [other])
    with raises_naming(KernelError, "join.fork_backward", "dx", "dys[0]", "later"):
        join.fork_backward([normal(4, 3), x], x)
    strange: Any = [[1.0, 2.0]]
    with raises_naming(KernelError, "inputs[0]", "list", "NumPy"):
        join.forward(strange, x)
