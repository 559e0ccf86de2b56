"""A program in a file: the same program after it is read, and what is damaged is refused or not proved."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import refimpl
from refimpl.machine import MACHINES
from refimpl.planner import Program
from refimpl.planner.verify import Unsafe
from refimpl.studies.grid.rows import fingerprint
from refimpl.studies.program_file import ProgramFileError, document, read
from refimpl.vdnnpp import presets as vdnnpp
from tests.messages import raises_naming

MACHINE = MACHINES["titan-x"]
Document = dict[str, Any]


@cache
def planned(setup: str, budget: float | str = 0.6) -> Program:
    return refimpl.plan(refimpl.networks.tiny_resnet(batch=32), setup, MACHINE, budget)


def reread(found: Document) -> Program:
    """A document on another computer: its text, and a network that is built there."""
    network = refimpl.networks.tiny_resnet(batch=32)
    return read(json.loads(json.dumps(found)), network, MACHINE, vdnnpp.VDNNPP_ALL.pinned)


@pytest.mark.parametrize("setup", ["vdnn-all", "vdnnpp-all", "superneurons", "accudnn"])
def test_what_is_read_is_the_program(setup: str) -> None:
    program = planned(setup)
    again = reread(document(program))
    again.verify()
    assert fingerprint(again) == fingerprint(program)
    assert again.simulate().seconds == program.planned_seconds
    assert again.network is not program.network


def test_calls_of_the_driver_have_no_place_in_a_file() -> None:
    with raises_naming(ProgramFileError, "driver-calls"):
        document(planned("baseline allocator=driver-calls", "1GiB"))


def test_a_reader_that_stores_no_maps_refuses_a_program_that_does() -> None:
    found = document(planned("vdnnpp-all"))
    assert any(one[0] == "to store" for one in found["instructions"])
    with pytest.raises(ProgramFileError, match="stores maps"):
        read(found, refimpl.networks.tiny_resnet(batch=32), MACHINE)


def first(found: Document, op: str) -> list[Any]:
    return next(one for one in found["instructions"] if one[0] == op)


def of_another_network(found: Document) -> None:
    found["outline"] = document(refimpl.plan(refimpl.networks.tiny_resnet(batch=16), "baseline", MACHINE))["outline"]


def by_an_algorithm_of_its_own(found: Document) -> None:
    next(one for one in found["instructions"] if one[0] == "launch" and one[4])[4] = ["instant", 0]


def put(op: str, place: int, value: Any) -> Callable[[Document], None]:
    """Another value in the first instruction of a kind."""
    return lambda found: first(found, op).__setitem__(place, value)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (put("free", 2, "no such map"), "no such map"), (put("launch", 2, 10**6), "out of range"),
        (put("allocate", 3, 0.5), "0.5 is not a whole"), (put("allocate", 3, 1), "no multiple of 512"),
        (put("record", 0, "launch rockets"), "there is no instruction 'launch rockets'"),
        (put("allocate", 5, "no"), "'no' is not true or false"), (put("copy out", -1, 3), "3 is not a text"),
        (lambda found: found.pop("streams"), "it has no streams"),
        (lambda found: found.update(format="refimpl program 0"), "not a program of the format"),
        (lambda found: first(found, "copy out").pop(), "damaged"), (of_another_network, "another network"),
        (lambda found: found.update(instructions=found["instructions"] * 200), "200 instructions"),
        (lambda found: found.update(granularity=256), "multiples of 256 bytes; a GPU needs multiples of 512"),
        (lambda found: found["resident"].update({"no such weight": 0}), "has no tensor 'no such weight'"),
        (by_an_algorithm_of_its_own, "instant"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(damage: Callable[[Document], None], says: str) -> None:
    found = json.loads(json.dumps(document(planned("vdnn-all"))))
    damage(found)
    with pytest.raises(ProgramFileError, match=says):
        reread(found)


def test_what_is_read_is_not_trusted() -> None:
    found = document(planned("vdnn-all"))
    without_waits = [one for one in found["instructions"] if one[0] != "wait"]
    less_room, lower_peak = found["arena_bytes"] - 512, found["peak_bytes"] - 512
    for change in ({"instructions": without_waits}, {"budget": less_room}, {"peak_bytes": lower_peak}):
        with pytest.raises(Unsafe):
            reread(found | change).verify()
