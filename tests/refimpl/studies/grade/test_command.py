"""`refimpl grade`: what it asks, what it shows, and its exit status.  The grades are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refimpl.studies.grade import command
from refimpl.studies.grade.confined import Limits
from refimpl.studies.grade.contest import ranked
from refimpl.studies.grade.criteria import Criterion, Grade
from refimpl.studies.grade.drawn_cases import DrawnCase
from tests.messages import lacks
from tests.refimpl.cli.said import Command, Wrong

CASES = [DrawnCase("lenet", 4, 1 << 20, True), DrawnCase("vgg16", 8, 3 << 30, False)]


def grade_of(points: int, *slow_downs: float | None) -> Grade:
    criteria = [Criterion("runs", 10, 10, "two cases"), Criterion("the rest", points - 10, 90, "so so")]
    return Grade("A3", criteria, dict(zip(map(str, CASES), slow_downs, strict=False)))


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text("x = 1\n")
    return path


def test_a_grade_is_shown_line_by_line(refimpl: Command, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    grades = {"A3": grade_of(60, 1.5, None), "A4": grade_of(59)}

    def grade_lab(lab: str, source: bytes, seed: int, limits: Limits) -> Grade:
        asked.append((lab, source, seed, limits.processor, limits.wall))
        return grades[lab]

    monkeypatch.setattr(command, "grade_lab", grade_lab)
    said = refimpl("grade", mine, "--task", "a3")
    assert said.status == 0 and not lacks(said.out, "60 of 100 points: passed", "A3", "2 cases", "two cases", 50, 90)
    mine.with_name("seed").write_text("123\n")
    said = refimpl("grade", mine, "--task", "A4", "--seed", f"@{mine.with_name('seed')}", "--seconds", 7)
    assert said.status == 1 and not lacks(said.out, "59 of 100 points: not passed", 60)
    assert asked == [("A3", b"x = 1\n", 1, 20, 70.0), ("A4", b"x = 1\n", 123, 7, 31.0)]
    assert json.loads(refimpl("grade", mine, "--task", "A3", "--json").out) == {
        "submission": str(mine), "task": "A3", "points": 60, "of": 100, "passed": True,
        "criteria": [
            {"name": "runs", "points": 10, "of": 10, "why": "two cases"},
            {"name": "the rest", "points": 50, "of": 90, "why": "so so"},
        ],
        "slow_downs": {"lenet(4)": 1.5, "vgg16(8)": None},
    }  # fmt: skip


def test_a_contest_ranks_a_folder(refimpl: Command, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine.with_name("yours.py").write_text("y = 2\n")
    mine.with_name("notes.txt").write_text("not Python")
    of = {b"x = 1\n": grade_of(70, 1.5, 1.2), b"y = 2\n": grade_of(90, 1.25, None)}
    monkeypatch.setattr(command, "cases", lambda task, seed: CASES)
    monkeypatch.setattr(command, "grade", lambda source, *rest: of[source])
    said = refimpl("grade", "--contest", mine.parent)
    first, second = (line.split() for line in said.out.splitlines() if "mine" in line or "yours" in line)
    assert first == ["1", "mine", "70", "2", "1.342", "1.50", "1.20"]
    assert second == ["2", "yours", "90", "1", "1.250", "1.25", "–"]
    assert said.status == 0 and not lacks(" ".join(said.out.split()), "lenet(4) 1 MiB", "vgg16(8) 3 GiB")
    found = json.loads(refimpl("grade", "--contest", mine.parent, "--json").out)
    assert [(one["rank"], one["submission"], round(one["slow_down"], 3)) for one in found] == [
        (1, "mine", 1.342), (2, "yours", 1.25),
    ]  # fmt: skip


def test_equal_ones_share_a_rank_and_who_fits_nothing_is_last() -> None:
    grades = {"b": grade_of(60, 2.0, 8.0), "a": grade_of(60, 4.0, 4.0), "none": grade_of(10), "one": grade_of(60, 1.0)}
    rows = ranked(grades, CASES)
    assert [(one.rank, one.name, one.fits, one.slow_down) for one in rows] == [
        (1, "a", 2, 4.0), (1, "b", 2, 4.0), (3, "one", 1, 1.0), (4, "none", 0, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (["--contest", ".", "--task", "A3"], ["--contest", "FILE", "--task"]),
        (["--contest", ".", "file.py"], ["--contest", "FILE"]),
        (["--contest", "/nowhere"], ["/nowhere"]),
        (["--task", "A3"], ["file", "lab"]),
        (["file.py"], ["file", "lab"]),
        (["file.py", "--task", "A9"], ["A9"]),
        (["/nowhere/file.py", "--task", "A3"], ["/nowhere/file.py"]),
        (["file.py", "--task", "A3", "--seed", "-1"], ["--seed", "-1"]),
        (["file.py", "--task", "A3", "--seed", "1" * 41], ["--seed", "1" * 41]),
    ],
)
def test_what_is_asked_wrongly_is_one_line(wrong: Wrong, asked: list[str], parts: list[str]) -> None:
    assert not lacks(wrong("grade", *asked), *parts)


def test_a_folder_without_submissions_is_one_line(wrong: Wrong, tmp_path: Path) -> None:
    assert not lacks(wrong("grade", "--contest", tmp_path), tmp_path, ".py")
    assert command.seed_of("1" * 40) == int("1" * 40)
