"""Every lab: the skeleton fails, the solution passes, and the points are those that the lab's text promises."""

from __future__ import annotations

import ast
import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from refimpl.cli import main
from refimpl.planner import Program, Wait
from refimpl.planner.verify import Unsafe
from refimpl.studies.grade import command
from refimpl.studies.grade.confined import Limits
from refimpl.studies.grade.criteria import PASS_MARK, Grade, grade
from refimpl.studies.grade.drawn_cases import DrawnCase, cases
from refimpl.studies.grade.every_lab import LABS, grade_lab
from refimpl.studies.grade.lab_tasks import TASKS
from refimpl.studies.grade.source_tree import parsed
from refimpl.studies.grade.waits_lab import (
    fewest,
    planned,
    read,
    script,
    script_cases,
    stabbed,
    waits,
    with_marks,
)
from tests.refimpl.studies.grade.wrong_solutions import CHEATS, REWRITTEN, WRONG

TUTORIALS = Path(__file__).resolve().parents[4] / "tutorials"
PROMISE = re.compile(r"^    (?P<what>\S.*?  ) *at (?P<side>most|least) (?P<points>\d+)", re.MULTILINE)
SEED = 1


def file_of(folder: str, lab: str) -> Path:
    (path,) = (TUTORIALS / folder).glob(f"{lab.lower()}_*.py")
    return path


def promises(lab: str) -> list[tuple[str, str, int]]:
    """What the text promises: to which submission, "most" or "least", points."""
    text = ast.get_docstring(ast.parse(file_of("labs", lab).read_text()), clean=False) or ""
    return [(found["what"], found["side"], int(found["points"])) for found in PROMISE.finditer(text)]


def source(lab: str, what: str) -> str:
    """The submission that a line of the text is about."""
    if what.startswith("This skeleton"):
        return file_of("labs", lab).read_text()
    solution = file_of("solutions", lab).read_text()
    if what.startswith("vDNN's own waits"):
        return script(planned(script_cases(SEED)[0]))
    if what.startswith("vDNN's waits, taken out"):
        return script(without_needless_waits(planned(script_cases(SEED)[0])))
    for words, rewritten in REWRITTEN.get(lab, {}).items():
        if what.startswith(words):
            return rewritten(solution)
    return solution + next((added for words, added in WRONG.get(lab, {}).items() if what.startswith(words)), "")


def without_needless_waits(program: Program) -> Program:
    """The program without each wait that can go while the others stay."""
    for wait in [it for it in program.instructions if isinstance(it, Wait)]:
        fewer = replace(program, instructions=[it for it in program.instructions if it is not wait])
        with suppress(Unsafe):
            fewer.verify()
            program = fewer
    return program


def test_the_fewest_waits_are_safe_and_none_of_them_can_go() -> None:
    given = script_cases(SEED)
    marks = fewest(given)
    for case in given:
        found = with_marks(planned(case), marks)
        found.verify()
        assert without_needless_waits(found).instructions == found.instructions
    assert waits(marks) < without_needless_waits(planned(given[0])).verify().waits < planned(given[0]).verify().waits


def test_arcs_are_stabbed_by_the_fewest_points() -> None:
    """Against every set of points on a circle of ten."""
    numbers = Random(0)
    for _ in range(30):
        arcs = [(start, start + numbers.randint(1, 9)) for start in numbers.choices(range(10), k=5)]
        inside = [{place % 10 for place in range(start + 1, end + 1)} for start, end in arcs]
        least = next(
            n for n in range(1, 6) if any(all({*few} & arc for arc in inside) for few in combinations(range(10), n))
        )
        found = stabbed(arcs, 10)
        assert len(found) == least and all({*found} & arc for arc in inside)


@cache
def drawn(lab: str) -> list[DrawnCase]:
    return cases(TASKS[lab], SEED)


def graded(lab: str, text: str) -> Grade:
    if lab not in TASKS:
        return grade_lab(lab, text.encode(), SEED, Limits())
    return grade(text.encode(), "submission.py", TASKS[lab], drawn(lab), Limits())


def test_every_wrong_solution_is_in_its_labs_text() -> None:
    for lab in LABS:
        told = [what for what, _, _ in promises(lab)]
        assert told[0].startswith("This skeleton") and len(told) >= 2, lab
        for words in {**WRONG.get(lab, {}), **REWRITTEN.get(lab, {})}:
            assert sum(what.startswith(words) for what in told) == 1, (lab, words)


RUN = (
    ("A3", "least", 90),
    ("A0", "least", 100),
    ("A2", "least", 100),
    ("A2", "most", 10),
)  #: in every run of the tests
EVERY = [(lab, what, side, points) for lab in LABS for what, side, points in promises(lab)]


@pytest.mark.parametrize(
    ("lab", "what", "side", "points"),
    [
        pytest.param(*one, marks=pytest.mark.slow if (one[0], *one[2:]) in RUN else pytest.mark.campaign)
        for one in EVERY
    ],
    ids=[f"{lab}-{what.strip()}" for lab, what, _, _ in EVERY],
)  # fmt: skip
def test_the_points_are_those_that_the_text_promises(lab: str, what: str, side: str, points: int) -> None:
    found = graded(lab, source(lab, what))
    assert found.points <= points if side == "most" else found.points >= points, found
    if what.startswith("This skeleton"):
        assert not found.passed
    if what == promises(lab)[-1][0]:
        assert found.passed and found.points >= PASS_MARK


def test_the_script_of_the_lab_is_what_export_writes() -> None:
    expected, _ = read(script(planned(script_cases(SEED)[0])).encode())
    for folder in ("labs", "solutions"):
        assert read(file_of(folder, "A2").read_bytes())[0] == expected


@pytest.mark.campaign
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_gains_nothing(cheat: str) -> None:
    criterion, added, said = CHEATS[cheat]
    found = graded("A1", file_of("solutions", "A1").read_text() + added)
    (one,) = (one for one in found.criteria if one.name == criterion)
    assert one.points == 0 and said in one.why, found.criteria


@pytest.mark.slow
def test_cases_are_drawn_from_the_seed() -> None:
    first, other = cases(TASKS["A3"], SEED), cases(TASKS["A4"], SEED + 1)
    assert first == drawn("A3") and other != cases(TASKS["A4"], SEED)
    assert [case.small for case in first] == [case.small for case in other] == [True, True, False, False, False]


DEEP = {
    "a sum of a thousand": "x = " + "+".join(["1"] * 1000),
    "attributes of attributes": "x = a" + ".a" * 1000,
    "a number of six thousand digits": "x = 0x" + "f" * 5000,
    "signs that Python's own parser refuses": "x = " + "-" * 50_000 + "1",
}


@pytest.mark.parametrize("lab", ["A0", "A2", "A3"])
@pytest.mark.parametrize("statement", DEEP.values(), ids=DEEP)
def test_a_source_that_is_too_deep_for_the_grader_gets_a_line(lab: str, statement: str) -> None:
    """The grader reads the tree in its own process, where its recursion would end it."""
    source = file_of("solutions", lab).read_text()
    place = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)).body[-1]
    lines = source.splitlines()
    lines.insert(place.lineno - 1, " " * place.col_offset + statement)
    with pytest.raises(ValueError, match="levels deep|more than 1,000 bits"):
        parsed("\n".join(lines).encode(), ValueError)
    if lab not in TASKS:
        assert graded(lab, "\n".join(lines)).points == 0


def test_a_contest_gives_what_is_no_plain_file_no_points(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "cases", lambda *_: [])
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "link.py").symlink_to(file_of("solutions", "A6"))
    (tmp_path / "nowhere.py").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.py")
    assert main(["grade", "--contest", str(tmp_path), "--json"]) == 0
    found = {one["submission"]: one["criteria"][0]["why"] for one in json.loads(capsys.readouterr().out)}
    assert sorted(found) == ["folder", "link", "nowhere", "pipe"]
    assert all("a submission is a plain file" in why for why in found.values())
