"""Joins and forks: sums in the order of the inputs, and copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.fast import join
from kernels.targets.launch import bind
from tests.messages import raises_naming

pytestmark = pytest.mark.ptx


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_the_order_is_seen_in_the_result() -> None:
    big, one = np.full(5, 2.0**25, np.float32), np.ones(5, np.float32)
    y = np.empty_like(big)
    join.forward([one, big, -big, one, one], y)
    assert (y == 2).all()
    join.forward([big, -big, one, one, one], y)
    assert (y == 3).all()


def test_up_to_four_tensors_are_added_in_one_launch() -> None:
    y = np.zeros(10, np.float32)
    launches = [len(bind(join.forward, [normal(10)] * count, y)) for count in range(1, 11)]
    assert launches == [1, 1, 1, 1, 2, 2, 2, 3, 3, 3]


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
