"""vDNN's greedy algorithms: a call steps down from its fastest one where that would overflow, and no other call."""

from __future__ import annotations

from collections.abc import Sequence

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


def stepping_down(choices: Sequence[Choice], largest_hole: int) -> Choice:
    """The paper's words: as long as it overflows, the next slower algorithm that is less hungry."""
    taken = 0
    while choices[taken].workspace_bytes > largest_hole:
        less = [
            k for k in range(taken + 1, len(choices)) if choices[k].workspace_bytes < choices[taken].workspace_bytes
        ]
        if not less:
            break
        taken = less[0]
    return choices[taken]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 9))
def test_stepping_down_ends_at_the_fastest_that_fits(workspaces: list[int], hole: int) -> None:
    made = choices(*workspaces)
    assert Greedy().pick(made, hole) is stepping_down(made, hole)


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


def test_with_room_to_spare_every_call_is_the_fastest() -> None:
    assert chosen(vgg(40, Greedy())) == chosen(vgg(40, PerformanceOptimal()))


def test_only_calls_that_would_overflow_step_down() -> None:
    """VGG-16(256) within 11.9 GiB: the layers of the largest maps give way, the rest keep their fastest algorithms."""
    fastest, tight = chosen(vgg(40, PerformanceOptimal())), vgg(11.9, Greedy())
    tight.verify()
    slower = {call for call, choice in chosen(tight).items() if choice != fastest[call]}
    assert slower and {layer for layer, _ in slower} <= {"conv1_2", "conv2_1", "conv2_2"}
    assert all(chosen(tight)[call].workspace_bytes < fastest[call].workspace_bytes for call in slower)
    with pytest.raises(DoesNotFit):
        vgg(11.9, PerformanceOptimal())


def test_passes_of_one_layer_choose_separately_and_share_the_larger_workspace() -> None:
    program = vgg(40, Greedy())
    made = chosen(program)
    layers = {layer for layer, pass_ in made if pass_ == "backward_data"}
    assert any(made[layer, "backward_data"].workspace_bytes != made[layer, "backward_filter"].workspace_bytes
               for layer in layers)  # fmt: skip
    for row in program.rows:
        mine = [
            made[row.step.layer.name, call.function.removeprefix("conv.")] for call in row.step.calls if call.choosable
        ]
        needed = max((choice.workspace_bytes for choice in mine), default=0)
        assert needed <= row.workspace_bytes < needed + 4


def test_it_is_never_slower_than_the_least_workspace_and_never_faster_than_the_fastest() -> None:
    seconds = {
        name: vgg(gib, algorithms).simulate().seconds
        for name, gib, algorithms in (
            ("fastest", 40, PerformanceOptimal()), ("greedy", 11.9, Greedy()), ("least", 11.9, MemoryOptimal()),
        )
    }  # fmt: skip
    assert seconds["fastest"] < seconds["greedy"] < seconds["least"]
