"""vDNN's greedy algorithms: a call steps down from its fastest one where that would overflow, and no other call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES, Choice
from refimpl.names.networks import build
from refimpl.planner import DoesNotFit, Launch, Program, plan
from refimpl.slots.algorithms import MemoryOptimal, PerformanceOptimal
from refimpl.vdnn import ALL, Greedy, static

pytestmark = pytest.mark.vdnn

TITAN_X = MACHINES["titan-x"]
GIB = 2**30


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


# -- in a plan ---------------------------------------------------------------------------------------------------------


def chosen(program: Program) -> dict[tuple[str, str], Choice]:
    """(Layer, pass) → the choice, of every convolution call."""
    steps = program.network.steps
    return {
        (steps[i.step - 1].layer.name, i.call.function.removeprefix("conv.")): i.choice
        for i in program.instructions
        if isinstance(i, Launch) and i.choice is not None
    }


def vgg(gib: float, algorithms: object) -> Program:
    setup = static("test", ALL).replace(algorithms=algorithms)
    return plan(build("vgg16", 256), setup, TITAN_X, int(gib * GIB))


def test_only_calls_that_would_overflow_step_down() -> None:
    """VGG-16(256) within 11.9 GiB: the layers of the largest maps give way, the rest keep their fastest algorithms."""
    fastest, tight = chosen(vgg(40, PerformanceOptimal())), vgg(11.9, Greedy())
    tight.verify()
    slower = {call for call, choice in chosen(tight).items() if choice != fastest[call]}
    assert slower and {layer for layer, _ in slower} <= {"conv1_2", "conv2_1", "conv2_2"}
    assert all(chosen(tight)[call].workspace_bytes < fastest[call].workspace_bytes for call in slower)
    with pytest.raises(DoesNotFit):
        vgg(11.9, PerformanceOptimal())
