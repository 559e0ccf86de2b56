"""What fast families promise that the plain kernels do not show: in place, in few launches, by the right kernel."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.fast import join, layernorm, lrn
from kernels.targets.launch import bind


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_up_to_four_tensors_are_joined_in_one_launch() -> None:
    y = np.zeros(10, np.float32)
    launches = [len(bind(join.forward, [normal(10)] * count, y)) for count in range(1, 11)]
    assert launches == [1, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(("where", "groups", "area", "chosen"), [
    ("cpu", 2, 16, True), ("cpu", 2, 15, False), ("gpu", 2, 16, False), ("cpu", None, 16, False),
])  # fmt: skip
def test_a_cpu_takes_the_channels_of_groups_one_by_one(where: str, groups: int | None, area: int, chosen: bool) -> None:
    assert layernorm.by_channel(where, layernorm.Sets.of("", (3, 4, area), groups)) == chosen


@pytest.mark.parametrize("size", [1, 4, 5, lrn.SLOTS])
def test_local_response_normalisation_in_place(size: int) -> None:
    x, dy = normal(2, 19, 5, 7), normal(2, 19, 5, 7, seed=1)
    y, dx, again = np.empty_like(x), np.empty_like(x), x.copy()
    lrn.forward(x, y, size=size, alpha=0.5)
    lrn.backward(x, y, dy, dx, size=size, alpha=0.5)
    lrn.forward(again, again, size=size, alpha=0.5)
    lrn.backward(x, None, dy, dy, size=size, alpha=0.5)
    assert (again.tobytes(), dy.tobytes()) == (y.tobytes(), dx.tobytes())
