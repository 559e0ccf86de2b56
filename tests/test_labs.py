"""The labs of the course: solutions get all points, the labs' own files and wrong solutions fail, and say why."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import refimpl
from kernels.targets.declare import REGISTRY, Kernel
from refimpl.importing import own_code
from refimpl.planner import Allocate, Free, Launch, Wait
from tests.messages import lacks
from tutorials.labs import cases, checks, contest, test_a2
from tutorials.labs.cases import LAYER_WISE, LabCase
from tutorials.labs.checks import Planned, planned, setup_of
from tutorials.labs.counted_threads import counted
from tutorials.labs.test_a0 import Shape
from tutorials.labs.test_a1 import TestLiveness as A1
from tutorials.labs.test_a3 import TestRecomputeAndCache as A3
from tutorials.labs.test_a4 import TestAllocator as A4
from tutorials.labs.test_a5 import TestOffloadAndPrefetch as A5
from tutorials.labs.test_a6 import TestContest as A6

ROOT = Path(__file__).resolve().parents[1]
LABS, SOLUTIONS = ROOT / "tutorials" / "labs", ROOT / "tutorials" / "solutions"
MODULES = (A1, A3, A4, A5, A6)
CASE, OTHER = LabCase("lenet", 4, 100 << 20, True), LabCase("tiny-vgg", 2, 100 << 20, True)
LIVENESS = (SOLUTIONS / "a1_liveness.py").read_text()


def solution(lab: str) -> Path:
    (path,) = SOLUTIONS.glob(f"{lab}_*.py")
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


@pytest.fixture(autouse=True)
def no_own_code(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path])  # a submission's folder joins it
    yield
    own_code.known.clear()
    REGISTRY.pop("tiled", None)


# -- whole labs --------------------------------------------------------------------------------------------------------


def shares(tests: type[checks.ModuleTests], path: Path, seed: int = 1) -> dict[str, float]:
    """What a submission gets of each criterion, on the small networks alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "LARGES", 0)
        setup = setup_of(path, tests.lab)
        given = {"setup": setup, "plans": [planned(setup, tests.lab, case) for case in cases.cases(tests.lab, seed)]}
    found: dict[str, float] = {}
    for name in [name for name in vars(checks.ModuleTests) if name.startswith("test_")]:
        test = getattr(tests(), name)
        given["award"] = lambda share, why, name=name: found.update({name: share})
        test(**{argument: given[argument] for argument in inspect.signature(test).parameters})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("tests", MODULES, ids=lambda tests: tests.lab.name)
def test_a_solution_gets_all_points_and_the_labs_own_file_fits_nothing(tests: type[checks.ModuleTests]) -> None:
    lab = tests.lab.name.lower()
    found = shares(tests, solution(lab))
    assert len(found) == 8 and {*found.values()} == {1}, found
    own_code._executed.cache_clear()
    (empty,) = LABS.glob(f"{lab}_*.py")
    assert shares(tests, empty)["test_fits"] == 0


def run(lab: str, *options: Any) -> tuple[int, str]:
    """Exit status and output of `pytest tutorials/labs/test_a3.py`."""
    command = [sys.executable, "-m", "pytest", f"tutorials/labs/test_{lab}.py", "-q", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, *map(str, options)], cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COLUMNS": "400"}
    )
    return found.returncode, found.stdout + found.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("lab", ["a0", "a1", "a2", "a3", "a4", "a5", "a6"])
def test_a_solution_gets_all_points_of_all_cases(lab: str) -> None:
    status, out = run(lab, "--submission", solution(lab))
    assert status == 0 and "\n100 of 100 points" in out, out


@pytest.mark.slow
def test_points_are_shown_and_written(tmp_path: Path) -> None:
    for options, points in ((), 10), (("--submission", solution("a2")), 100):
        status, out = run("a2", f"--junitxml={tmp_path / 'points.xml'}", *options)
        assert status == (points < 100) and f"\n{points} of 100 points" in out, out
        written = [
            (one.get("name"), one.get("value")) for one in ElementTree.parse(tmp_path / "points.xml").iter("property")
        ]
        assert sum(int(value or 0) for name, value in written if name == "points") == points
        assert sum(int(value or 0) for name, value in written if name == "of") == 100


# -- the checks --------------------------------------------------------------------------------------------------------


def good(case: LabCase = CASE) -> Planned:
    return planned(LAYER_WISE, A1.lab, case)


def test_fits_and_proved_count_cases() -> None:
    unfit, unproved = Planned(OTHER, A1.lab, why="no room for conv1"), replace(good(), why="freed too early")
    assert checks.fits([good(), good(), unfit]) == (
        pytest.approx(2 / 3),
        "2 of 3 cases; tiny-vgg(2): no room for conv1",
    )
    assert checks.fits([good(), unproved])[0] == 1 and checks.proved([good(), unfit])[0] == 0.5
    assert checks.proved([good(), unproved]) == (0, "lenet(4): freed too early")


def test_a_program_is_proved_and_an_error_of_the_submission_is_its_line(mine: Path) -> None:
    mine.write_text(
        LIVENESS + "class Early:\n    def __init__(self, context): self.context = context\n"
        "    def dead(self, step): return [t for t, uses in self.context.uses.items() if uses and uses[0] is step]\n"
        "Mine.bind = lambda self, context: Early(context)\n"
    )
    early = planned(setup_of(mine, A1.lab), A1.lab, CASE)
    assert not early.good and early.why
    mine.write_text(LIVENESS + "\n\ndef bind(self, context):\n    return 1 / 0\n\n\nMine.bind = bind\n")
    broken = planned(setup_of(mine, A1.lab), A1.lab, CASE)
    assert broken.program is None and not lacks(broken.why, mine, "line 33", "in bind", "ZeroDivisionError")
    small = planned(setup_of(solution("a1"), A1.lab), A1.lab, replace(CASE, budget=1000))
    assert small.program is None and "does not fit" in small.why
    program = good().program
    assert program
    without = replace(program, instructions=[it for it in program.instructions if not isinstance(it, Launch)])
    assert "rule" in unproved(without)


def unproved(program: refimpl.Program) -> str:
    """Why `planned` does not take a program that a setup makes."""
    setup: Any = LAYER_WISE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "plan", lambda *given: program)
        return planned(setup, A1.lab, CASE).why


def test_a_module_that_keeps_something_is_not_repeatable(mine: Path) -> None:
    mine.write_text(
        LIVENESS + "bind, plans = Mine.bind, []\n"
        "def other(self, context):\n    plans.append(context)\n"
        "    return bind(self, context) if len(plans) < 2 else slots.Releases()\nMine.bind = other\n"
    )
    setup = setup_of(mine, A1.lab)
    assert not lacks(checks.repeatable([planned(setup, A1.lab, CASE)], setup)[1], "lenet(4)", "second time")
    assert checks.repeatable([good()], LAYER_WISE)[0] == 1
    assert checks.repeatable([Planned(CASE, A1.lab)], LAYER_WISE)[0] == 0


def test_bits_are_those_of_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    one = good()
    assert checks.bits([one, Planned(OTHER, A1.lab)]) == (0.5, "lenet(4) trained: the baseline's to the bit")
    wrong = checks.trained(one.program) | {"conv1.weights": b""} if one.program else {}
    monkeypatch.setattr(checks, "trained", lambda program: wrong)
    assert checks.bits([one]) == (0, "lenet(4): trained, its weights are not the baseline's")


# -- a kernel, a script, a contest -------------------------------------------------------------------------------------

HEAD = """
import numpy as np
from kernels.targets.launch import Floats, kernel
from kernels.targets.shim import cuda


@kernel(block=(16, 2))
def tiled(A: Floats, B: Floats, C: Floats, m: int, n: int, k: int) -> None:
    column, row = cuda.grid(2)
    x = cuda.threadIdx.x
"""


@pytest.mark.parametrize(
    ("body", "sectors", "conflicts"),
    [
        ("C[row * n + x] = A[0]", 4 + 1, 0),  # 32 threads write 2 rows of 16 elements: four sectors
        ("C[x * 2 + row] = B[x * 3 + row]", 4 + 6, 0),
        ("s = cuda.shared.array((16, 2), np.float32)\n    s[x, row] = A[0]", 1, 0),
        ("s = cuda.shared.array((16, 32), np.float32)\n    s[x, row] = A[0]", 1, 15),  # 16 threads in one bank
    ],
)  # fmt: skip
def test_sectors_and_conflicts_of_an_access(body: str, sectors: int, conflicts: int, mine: Path) -> None:
    mine.write_text(f"{HEAD}    {body}\n")
    kernel: Kernel = own_code.executed(str(mine), 0).tiled
    shape = Shape(2, 16, 3)
    found, shared = counted(kernel, shape.grid(kernel), shape.matrices, shape)
    assert (found, sum(one.conflicts() for one in shared)) == (sectors, conflicts)


def test_the_script_is_what_export_writes_and_its_waits_are_proved() -> None:
    theirs = test_a2.statements(test_a2.script(test_a2.planned(test_a2.BATCH)))
    best = test_a2.statements(solution("a2").read_text())
    assert [*map(ast.unparse, filter(lambda node: not test_a2.mark_of(node), best))] == [
        ast.unparse(node) for node in theirs if not test_a2.mark_of(node)
    ]
    assert test_a2.unsafe(best, 1) == test_a2.unsafe(theirs, 1) == ""
    program = test_a2.planned(test_a2.BATCH)
    streams = [
        [re.sub(r"step=\d+", "", repr(it)) for it in one.instructions if not isinstance(it, Allocate | Free)]
        for one in (program, test_a2.with_marks(program, theirs))
    ]
    assert streams[0] == streams[1]
    waits = [node for node in best if (mark := test_a2.mark_of(node)) and mark.kind == "wait"]
    assert len(waits) == test_a2.FEWEST
    assert all(test_a2.unsafe([node for node in best if node is not wait], 1) for wait in waits)
    for line, said in (('event["b"].wait(compute)', "'b'"), ('event["a"].record(nowhere)', "nowhere")):
        assert said in test_a2.unsafe([*ast.parse(line).body, *best], 1)
    assert sum(isinstance(it, Wait) for it in test_a2.with_marks(program, best).instructions) == test_a2.FEWEST


def test_a_script_is_proved_for_other_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the script's own batch alone it would be safe."""
    asked: list[int] = []
    program = test_a2.planned(32)

    def planned_for(batch: int) -> refimpl.Program:
        asked.append(batch)
        return program

    monkeypatch.setattr(test_a2, "planned", planned_for)
    assert test_a2.unsafe(test_a2.statements(solution("a2").read_text()), 1) == ""
    assert asked[0] == 32 and len({*asked}) == 3 and all(16 <= batch < 96 for batch in asked)


def test_a_contest_ranks_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(contest, "cases", lambda lab, seed: [CASE, replace(OTHER, budget=900 << 10)])
    (tmp_path / "mine.py").write_text("from refimpl import presets\nsetup = presets.superneurons.setup\n")
    (tmp_path / "yours.py").write_text("from refimpl import presets\nsetup = presets.baseline.setup\n")
    (tmp_path / "broken.py").write_text("setup = 3\n")
    contest.main(str(tmp_path))
    _, *rows, _, _, budgets = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in rows] == ["mine", "yours", "broken"], rows
    assert "setup is 3" in rows[2] and "900 KiB" in budgets, budgets
