"""A program as plain values: the same program comes back, and nothing that was changed gets past the proof."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

import refimpl
from refimpl.names.networks import build
from refimpl.planner import Program
from refimpl.planner.verify import Unsafe
from refimpl.studies.grade.criteria import Handed, judged, proved, repeatable
from refimpl.studies.grade.drawn_cases import DrawnCase, machine
from refimpl.studies.grade.handed_over import NotAProgram, program_of
from refimpl.studies.grade.lab_tasks import TASKS
from refimpl.studies.program_file import document
from tests.messages import raises_naming

BUDGET = 0.7


@cache
def planned(preset: str, network: str = "tiny-resnet") -> Program:
    return refimpl.plan(build(network, 4), preset, machine(), BUDGET)


def handed(program: Program) -> Any:
    """Its values, through JSON."""
    return json.loads(json.dumps(document(program)))


def read(values: Any, program: Program) -> Program:
    return program_of(values, build(program.network.name, program.network.batch), machine(), program.budget)


@pytest.mark.parametrize("preset", ["vdnn-all", "vdnnpp-all", "superneurons", "accudnn"])
def test_the_same_program_comes_back(preset: str) -> None:
    program = planned(preset)
    found = read(handed(program), program)
    assert found.verify() == program.verify()
    assert found.simulate().seconds == program.simulate().seconds
    moved = found.counts.offloaded_bytes
    assert moved == program.counts.offloaded_bytes + program.counts.evicted_bytes
    assert document(found)["instructions"][0] == document(program)["instructions"][0]


def test_what_is_left_out_is_found_by_the_proof() -> None:
    program = planned("vdnn-all")
    for op in ("copy in", "wait", "free", "launch"):
        values = handed(program)
        at = next(i for i, it in enumerate(values["instructions"]) if it[0] == op)
        del values["instructions"][at]
        with pytest.raises(Unsafe):
            read(values, program).verify()


def damaged(values: Any, *path: Any, value: Any) -> Any:
    at = values
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return values


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("outline",), "another", "another network"),
        (("granularity",), 4, "multiples of 512"),
        (("instructions",), [["record", 0, 0, 0]] * 100_000, "200 instructions"),
        (("instructions", 0), ["allocate", 1, "no such tensor", 0, 512, False], None),
        (("instructions", 0), ["execute", "import os"], "is no program of"),
        (("instructions", 0), None, "is no program of"),
        (("instructions", 0), ["record", -1, 0, 0], "-1"),
        (("instructions", 0), ["record", 1e300, 0, 0], "a whole number"),
        (("instructions", 0), ["record", True, 0, 0], "a whole number"),
        (("peak_bytes",), "much", "'much'"),
        (("resident",), {"a stranger": 0}, "a stranger"),
    ],
)
def test_values_that_are_no_program(path: tuple[Any, ...], value: Any, said: str | None) -> None:
    program = planned("vdnn-all")
    values = damaged(handed(program), *path, value=value)
    if said is None:  # a workspace that no call uses; the proof sees it
        with pytest.raises(Unsafe):
            read(values, program).verify()
        return
    with raises_naming(NotAProgram, said):
        read(values, program)


def test_an_algorithms_seconds_are_the_graders() -> None:
    """A submission names an algorithm and a workspace; it cannot say how fast it is."""
    program = planned("vdnn-all")
    values = handed(program)
    launch = next(it for it in values["instructions"] if it[0] == "launch" and it[4])
    launch[4] = ["instant", 0]
    with raises_naming(NotAProgram, "instant"):
        read(values, program)


def test_the_judge_proves_by_itself() -> None:
    program = planned("vdnn-all")
    case = DrawnCase("tiny-resnet", 4, program.budget, True)
    right = judged(case, TASKS["A5"], handed(program))
    assert right.good and proved([right], 1).points == 15
    values = handed(program)
    values["instructions"] = [it for it in values["instructions"] if it[0] != "free"]
    wrong = judged(case, TASKS["A5"], values)
    assert wrong.program and not wrong.good and proved([right, wrong], 2).points == 0
    assert judged(case, TASKS["A5"], {"why": "no room"}).unfit == "no room"
    assert judged(case, TASKS["A5"], [1, 2]).unfit == "it hands over no program"


def test_another_program_the_second_time_is_seen() -> None:
    case = DrawnCase("tiny-resnet", 4, 1, True)
    same, other = {"instructions": [1]}, {"instructions": [2]}
    for first, again, second, points in ((same, same, same, 10), (same, other, same, 0), (same, same, other, 0)):
        runs = Handed({0: [first, again]}, "", ""), Handed({0: [second, second]}, "", "")
        assert repeatable(*runs, [case]).points == points
    assert repeatable(Handed({}, "", ""), Handed({}, "", ""), [case]).points == 0
