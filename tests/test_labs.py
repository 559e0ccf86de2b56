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
from random import Random
from typing import Any
from xml.etree import ElementTree

import pytest

import refimpl
from kernels.targets.declare import REGISTRY, Kernel
from refimpl.importing import own_code
from refimpl.planner import Allocate, Free, Launch, SetupError, Wait
from refimpl.studies.optimum.bound import NoSolver
from tests.messages import lacks, raises_naming
from tutorials.labs import cases, checks, contest, test_a2
from tutorials.labs.cases import LAYER_WISE, LabCase, machine
from tutorials.labs.checks import Planned, planned, setup_of
from tutorials.labs.counted_threads import counted
from tutorials.labs.test_a0 import Shape
from tutorials.labs.test_a1 import TestLiveness as A1
from tutorials.labs.test_a3 import TestRecomputeAndCache as A3
from tutorials.labs.test_a4 import TestAllocator as A4
from tutorials.labs.test_a5 import TestOffloadAndPrefetch as A5
from tutorials.labs.test_a6 import CONTEST
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


@pytest.mark.slow
def test_an_error_of_a_submission_is_a_line(mine: Path) -> None:
    mine.write_text("import nothing_like_it\n")
    status, out = run("a1", "--submission", mine)
    assert status == 1 and out.count(f"{mine}, line 1: ModuleNotFoundError") == 1 and "\n0 of 100 points" in out, out
    assert "Traceback" not in out
    status, out = run("a1", "--submission", mine.with_name("nowhere.py"))
    assert status == 4 and "nowhere.py: there is no such file" in out


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


def test_own_work_is_no_module_of_the_project_and_none_made_from_a_papers(mine: Path) -> None:
    theirs = A3.lab.base.replace(recompute=A3.paper.recompute, cache=A3.paper.cache)
    assert not lacks(checks.own_work([planned(theirs, A3.lab, CASE)], theirs)[1], "recompute", "write your own")
    own = setup_of(solution("a3"), A3.lab)
    assert checks.own_work([planned(own, A3.lab, CASE)], own)[0] == 1
    mine.write_text(
        "from refimpl import presets\ntheirs = presets.vdnn_all.setup\nclass Mine(type(theirs.offload)): pass\n"
        "offload, prefetch = Mine(*vars(theirs.offload).values()), theirs.prefetch\n"
    )
    made = setup_of(mine, A5.lab)
    assert not lacks(checks.own_work([Planned(CASE, A5.lab)], made)[1], "offload", "write your own")


def test_bits_are_those_of_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    one = good()
    assert checks.bits([one, Planned(OTHER, A1.lab)]) == (0.5, "lenet(4) trained: the baseline's to the bit")
    wrong = checks.trained(one.program) | {"conv1.weights": b""} if one.program else {}
    monkeypatch.setattr(checks, "trained", lambda program: wrong)
    assert checks.bits([one]) == (0, "lenet(4): trained, its weights are not the baseline's")


@pytest.mark.parametrize(
    ("pairs", "share", "mean"),
    [
        ([(1.0, 1.0), (1.3, 1.0)], 1, "1.15"), ([(2.0, 1.0), (2.6, 1.0)], 0.5, "2.30"), ([(7.0, None)], 1, "1.00"),
        ([(7.0, None), (1.0, 2.0)], 1, "0.50"), ([(7.0, 0.0), (3.0, 2.0)], 1.15 / 1.5, "1.50"),
    ],
)  # fmt: skip
def test_a_figure_is_compared_with_the_papers(pairs: list[Any], share: float, mean: str) -> None:
    plans: list[Planned] = []
    figures: dict[int, Any] = {}
    for ours, theirs in pairs:
        one = good()
        assert one.program
        one.__dict__["paper"] = None if theirs is None else replace(one.program)
        figures |= {id(one.program): ours, id(one.paper): theirs}
        plans.append(one)
    found = checks.as_good(plans, lambda program: figures[id(program)])
    assert found[0] == pytest.approx(share) and found[1].startswith(
        f"{mean} × SuperNeurons's on average, in {len(plans)}"
    )


def test_the_bytes_that_are_moved() -> None:
    program = refimpl.plan(CASE.built, "vdnn-all", machine(), "3200KiB")
    copies = [it for it in program.instructions if isinstance(it, refimpl.planner.Copy)]
    assert checks.moved(program) == sum(it.nbytes for it in copies if it.tensor.kind == "map") > 0
    assert Planned(replace(CASE, budget=1000), A1.lab, program).paper is None


@pytest.mark.parametrize(("over", "share"), [((1.0, 1.0), 1), ((2.0, 1.0), 1), ((2.5, 2.0), 0.25), ((0.8, 4.0), 0.1)])
def test_the_distance_from_the_bound(over: tuple[float, float], share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [good(CASE), good(OTHER)]
    least = {one.case: one.seconds / times for one, times in zip(plans, over, strict=True)}
    monkeypatch.setattr(checks, "least_seconds", least.__getitem__)
    assert checks.distance(plans)[0] == pytest.approx(share)
    assert checks.distance([Planned(CASE, A1.lab)])[0] == 0

    def missing(case: LabCase) -> float:
        raise NoSolver("install it")

    monkeypatch.setattr(checks, "least_seconds", missing)
    with pytest.raises(pytest.skip.Exception, match="install it"):
        checks.distance(plans)


def test_a_submissions_modules_are_in_the_labs_setup(mine: Path) -> None:
    found = setup_of(solution("a1"), A1.lab)
    assert found.liveness.name == "my-liveness" and found.algorithms == A1.lab.base.algorithms
    assert setup_of(solution("a1"), CONTEST).liveness.name == "my-liveness"  # the contest takes any module
    assert setup_of(solution("a6"), CONTEST) == refimpl.presets.accudnn.setup
    for text, lab, said in (("x = 1", A5.lab, "offload and no prefetch"), ("setup = 3", CONTEST, "setup is 3")):
        mine.write_text(text)
        own_code._executed.cache_clear()
        with raises_naming(SetupError, said):
            setup_of(mine, lab)


def test_budgets_are_between_what_the_paper_and_what_the_lab_without_it_need(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {id(A3.lab.paper): 100 << 10, id(A3.lab.without): 300 << 10}
    monkeypatch.setattr(cases, "least_budget", lambda network, setup, machine, step: needs[id(setup)])
    found = cases.drawn(A3.lab, {"lenet": (2, 5), "tiny-vgg": (3, 3)}, True, Random(0))
    several = [next(found) for _ in range(12)]
    assert {case.network for case in several[:2]} == {"lenet", "tiny-vgg"}
    assert {case.batch for case in several if case.network == "lenet"} <= {2, 3, 4, 5}
    assert all(0.1 * 200 - 1 <= case.budget / 1024 - 100 <= 0.7 * 200 for case in several)
    assert len({case.budget for case in several}) > 6
    needs[id(A3.lab.without)] = 100 << 10  # the lab is not needed: no case
    with pytest.raises(AssertionError, match="A3"):
        next(cases.drawn(A3.lab, {"lenet": (2, 2)}, False, Random(0)))


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


@pytest.mark.slow
def test_a_kernel_is_checked_and_counted(mine: Path) -> None:
    mine.write_text(solution("a0").read_text().replace("        cuda.syncthreads()\n", "", 1))
    status, out = run("a0", "--submission", mine)
    assert status == 1 and "no barrier between them" in out and "\n0 of 100 points" in out, out
    status, out = run("a0")
    assert status == 1 and "Still yours to write: line 53 of a0_tiled_kernel.py" in out, out
    status, out = run("a0", "--submission", solution("a0"))
    assert status == 0 and "\n100 of 100 points" in out, out


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
