"""vDNN's greedy algorithms: a call steps down from its fastest one where that would overflow, and no other call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES, Choice
from refimpl.slots.algorithms import MemoryOptimal, PerformanceOptimal
from refimpl.vdnn import Greedy

pytestmark = pytest.mark.vdnn

TITAN_X = MACHINES["titan-x"]


def choices(*workspaces: int) -> list[Choice]:
    """Algorithms a, b, c …, the fastest first, with these workspaces."""
    return [Choice(chr(97 + i), nbytes, 1.0 + i) for i, nbytes in enumerate(workspaces)]


@pytest.mark.parametrize(
    ("workspaces", "hole", "algorithm"),
    [
        ((100, 50, 0), 100, "a"),  # it just fits
        ((100, 50, 0), 99, "b"),
        ((100, 50, 0), 49, "c"),
        ((100, 120, 50, 0), 60, "c"),  # a slower one that needs more is passed over
        ((0, 50), 10, "a"),
        ((100, 50), 10, "b"),  # none fits: the least, and the plan fails
        ((100, 50, 50), 10, "b"),  # of two that need as much, the faster one
    ],
)
def test_it_steps_down_until_one_fits(workspaces: tuple[int, ...], hole: int, algorithm: str) -> None:
    assert Greedy().pick(choices(*workspaces), hole).algorithm == algorithm


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_between_the_fastest_and_the_most_frugal(workspaces: list[int]) -> None:
    made = choices(*workspaces)
    assert Greedy().pick(made, max(workspaces)) is PerformanceOptimal().pick(made, 0)
    assert Greedy().pick(made, 0) is MemoryOptimal().pick(made, 0)
