"""Hostile submissions: each is ended or refused, each gets its line, and nothing outside is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from refimpl.studies.grade.confined import Limits
from refimpl.studies.grade.criteria import Handed, foreign_imports, run
from refimpl.studies.grade.drawn_cases import DrawnCase
from refimpl.studies.grade.lab_tasks import PLAIN, TASKS
from tests.refimpl.studies.grade.hostile import HOSTILE, when_executed, when_planned

LIMITS = Limits(processor=2, wall=40.0, memory=600 << 20)
CASES = [DrawnCase("lenet", 4, 100_000_000, True)]
QUICK = ("endless loop", "100 GB", "fork by a system call", "reads the solution", "writes a file")
WAITS = {"sleeps", "stops itself"}  #: for the wall clock alone

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="limits as Linux has them")


def graded(source: str, limits: Limits = LIMITS) -> Handed:
    return run(source.encode(), "submission.py", TASKS["A1"], CASES, limits, backwards=False)


@pytest.mark.parametrize(
    "attack",
    [pytest.param(name, marks=[pytest.mark.slow if name in QUICK else pytest.mark.campaign]) for name in HOSTILE],
)
def test_hostile_submissions_get_a_line(attack: str) -> None:
    source, expected = HOSTILE[attack]
    found = graded(source, Limits(2, 6.0, LIMITS.memory) if attack in WAITS else LIMITS)
    assert expected in found.why, found
    assert "\n" not in found.why and len(found.why) <= 300
    assert not Path("/tmp/refimpl-grade-was-here").exists()
    assert not list(Path("/tmp").glob("refimpl-grade-*/x"))


@pytest.mark.slow
def test_a_right_submission_hands_its_programs_over() -> None:
    found = graded(when_planned("print('hello')"))
    assert found.why == "" and [*found.programs] == [0]
    first, again = found.programs[0]
    assert first == again and first["instructions"] and "hello" in found.printed


def test_imports_are_read_and_not_executed() -> None:
    source = when_executed(
        "import time\nfrom refimpl.vdnn import ALL\nfrom refimpl import presets\nx = refimpl.presets"
    )
    assert foreign_imports(source.encode(), PLAIN) == ["refimpl.presets", "refimpl.vdnn.ALL", "time"]
    assert foreign_imports(when_planned("pass").encode(), PLAIN) == []
