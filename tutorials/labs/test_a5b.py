"""Lab A5b, a prefetch: pytest tutorials/labs/test_a5b.py --submission mine.py"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import pytest

from refimpl.accudnn.carried_out import Everything, ModelGuided
from refimpl.combined.fixed import FixedAddresses
from refimpl.network import Tensor
from refimpl.planner import DoesNotFit, Program
from refimpl.planner.loop import Planner
from refimpl.text import duration, size
from tutorials.labs.gates import Marked
from tutorials.labs.lab import LAYER_WISE, Case, Lab, machine

SETUP = LAYER_WISE.replace(copy_streams="shared", allocator=FixedAddresses(), offload=ModelGuided())
#: Every map that waits for a step leaves, whatever the budget.
ALL_AWAY = SETUP.replace(offload=Everything())
LAB = Lab(
    "a5b",
    ("prefetch",),
    {"SETUP": SETUP, "ALL_AWAY": ALL_AWAY},
    again=(1.06, 1.12, 1.2),
    trained=Case("", "lenet", 16, around="ALL_AWAY"),
)
WAITS, HOLDS = 720e-6, 10_500_000  #: seconds, and bytes on the device, in backward of tiny-convnext(32)
TIGHT = 9_401_344  #: bytes, for tiny-convnext(32): with one or two steps ahead it fits


class Away(NamedTuple):
    """A map on the host."""

    tensor: Tensor
    left: int  #: the last step of forward that uses it; then it is released
    used: int  #: the first step of backward that does
    asked: list[int]  #: the steps in which the submission asks for it


Asked = Callable[..., Planner]


def on_the_host(made: Planner) -> list[Away]:
    """All offloaded maps in the order in which backward uses them, without those that its first step uses."""
    context, asked = made.context, dict[Tensor, list[int]]()
    for step in made.network.steps:
        for one in made.prefetch.due(step):
            assert isinstance(one, Tensor), (
                f"due() returns {one!r} among others; return tensors: context.fates has them"
            )
            asked.setdefault(one, []).append(step.number)
    found = [
        Away(one, context.last_forward_use(one), context.first_backward_use(one), asked.get(one, []))
        for one in filter(context.is_offloaded, context.fates)
    ]
    return sorted((one for one in found if one.used > made.network.depth + 1), key=lambda one: one.used)


# -- steps 1 and 2: some steps ahead -----------------------------------------------------------------------------------


def test_a_map_is_asked_for_before_its_use(asked: Asked) -> None:
    made = asked("tiny-vgg", 16, around="ALL_AWAY")
    for one in on_the_host(made):
        numbers = ", ".join(map(str, one.asked)) or "none"
        assert any(one.left < number < one.used for number in one.asked), (
            f"{one.tensor} leaves after step {one.left}, and step {one.used} needs it; ask for it in a step between, "
            f"such as {one.used - 1}; due() returned it in {numbers}"
        )


def test_two_steps_ahead(asked: Asked) -> None:
    made = asked("tiny-vgg", 16, around="ALL_AWAY")
    for one in on_the_host(made):
        before = made.network.steps[one.used - 2]
        copy, kernels = machine().copy_seconds(one.tensor.nbytes, "in"), sum(map(machine().seconds, before.calls))
        assert copy <= kernels or min(one.asked, default=one.used) <= max(one.used - 2, made.network.depth + 1), (
            f"the copy of {one.tensor} takes {duration(copy)}, and {before}, the step before its use, "
            f"{duration(kernels)}; ask for it two steps ahead, in step {one.used - 2}"
        )


# -- step 3: by the seconds --------------------------------------------------------------------------------------------


def test_copies_queue_on_one_link(planned: Callable[..., Program]) -> None:
    program = planned("tiny-convnext", 32, around="ALL_AWAY")
    timeline = program.simulate()
    steps, depth = timeline.steps(), program.network.depth
    numbers = [number for number in steps if number > depth + 1]
    waits = {number: steps[number][0] - steps[before][1] for before, number in pairwise(numbers)}
    longest = max(waits, key=waits.__getitem__)
    copies = [span for span in timeline.on("in") if span.end <= steps[longest][0]]
    assert sum(waits.values()) <= WAITS, (
        f"tiny-convnext(32): backward waits {duration(sum(waits.values()))} for copies, and {duration(WAITS)} are "
        f"enough; {program.network.steps[longest - 1]} waits longest, {duration(waits[longest])}, for "
        f"{copies[-1].instruction.tensor}: the link copies one map after another, so each copy has to be over when the "
        "next one must begin"
    )


def test_a_copy_begins_as_late_as_it_can(planned: Callable[..., Program]) -> None:
    program = planned("tiny-convnext", 32, around="ALL_AWAY")
    fullest = max(program.rows[program.network.depth :], key=lambda row: row.live_bytes)
    assert fullest.live_bytes <= HOLDS, (
        f"tiny-convnext(32): {fullest.step} has {size(fullest.live_bytes)} on the device, and {size(HOLDS)} are "
        "enough: some maps are back long before their use; begin each copy in the last step from which it is in time"
    )


# -- step 4: where there is room ---------------------------------------------------------------------------------------


def test_no_copy_takes_the_room_of_a_gradient(planned: Callable[..., Program]) -> None:
    try:
        planned("tiny-convnext", 32, TIGHT, around="ALL_AWAY")
    except DoesNotFit as error:
        pytest.fail(
            f"tiny-convnext(32) does not fit, and without a prefetch it does: {error.where} asks {size(error.asked)} "
            f"for {error.tensor}, and {size(error.free)} are free; maps are back early and take its room: ask for a "
            "map no earlier than each step until its use has room for it",
            pytrace=False,
        )


def test_who_found_no_hole_asks_again(asked: Asked) -> None:
    for one in on_the_host(asked("tiny-convnext", 32, around="ALL_AWAY")):
        assert one.asked, f"due() never returns {one.tensor}; step {one.used} needs it"
        missing = [number for number in range(min(one.asked), one.used) if number not in one.asked]
        assert not missing, (
            f"{one.tensor} is asked for in step {min(one.asked)}, not in step {missing[0]}, and used by {one.used}; "
            "a prefetch that finds no hole is left out: return the map in each step until its use"
        )


class TestMark(Marked):
    lab = LAB
