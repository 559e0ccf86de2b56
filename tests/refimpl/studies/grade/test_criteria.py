"""The points of every criterion, from programs and figures that are known, without a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import refimpl
from refimpl.importing import own_code
from refimpl.planner import Copy, Launch, Record, SetupError, Wait
from refimpl.studies.grade import criteria, drawn_cases, every_lab, kernel_lab
from refimpl.studies.grade.confined import Ended, Limits
from refimpl.studies.grade.criteria import Criterion, Grade, Handed, JudgedCase, handed
from refimpl.studies.grade.drawn_cases import DrawnCase, drawn, machine
from refimpl.studies.grade.kernel_lab import Shape, grade_kernel
from refimpl.studies.grade.kernel_threads import launched, read
from refimpl.studies.grade.lab_tasks import BASE, TASKS
from refimpl.studies.grade.submission import line_of, planned, setup_of
from refimpl.studies.grade.waits_lab import Mark, NotTheScript, fewest, grade_script, script, script_cases, with_marks
from refimpl.studies.grade.waits_lab import planned as of_script
from refimpl.studies.optimum.bound import NoSolver
from refimpl.text import RefimplError
from tests.messages import lacks, raises_naming

TASK = TASKS["A1"]
CASE = DrawnCase("lenet", 4, 100 << 20, True)
OTHER = DrawnCase("tiny-vgg", 2, 100 << 20, True)
SOLUTIONS = Path(__file__).resolve().parents[4] / "tutorials" / "solutions"


def judged_case(case: DrawnCase = CASE) -> JudgedCase:
    return JudgedCase(case, TASK, refimpl.plan(case.built, BASE, machine(), case.budget))


def points(one: Criterion) -> tuple[int, int]:
    return one.points, one.of


def test_a_grade_is_the_sum_of_its_criteria() -> None:
    lines = [Criterion("a", 20, 30, ""), Criterion("b", 39, 70, "")]
    grade = Grade("A1", lines)
    assert (grade.points, grade.of, grade.passed) == (59, 100, False)
    assert Grade("A1", [*lines, Criterion("c", 1, 1, "")]).passed


def lines(*values: Any) -> Ended:
    return Ended([json.dumps(one).encode() for one in values], why="", printed="hello")


def test_what_a_process_hands_over_is_read_line_by_line() -> None:
    both = {"case": 0, "program": "p"}, {"case": 1, "program": "q"}
    whole = handed(lines(*both, both[0], {"done": True}), 2)
    assert whole == Handed({0: ["p", "p"], 1: ["q"]}, "", "hello")
    assert handed(lines(*both), 2).why == "it ended before it had planned every case"
    assert handed(replace(lines(both[0]), why="took too long"), 2) == Handed({0: ["p"]}, "took too long", "hello")
    for outside in (-1, 2, "0", None):
        assert handed(lines({"case": outside, "program": "p"}, {"done": True}), 2).programs == {}
    assert handed(lines({"cannot": "no rights"}, {"done": True}), 2) == Handed({}, "no rights", "hello", True)
    assert handed(lines({"error": "x" * 400}, {"done": True}), 2).why == "x" * 200
    assert handed(lines({"forbidden": "a socket", "error": "?"}), 2).why == "a socket"
    for wrong in ([1], 5, {"case": 0}):
        assert "no program" in handed(lines(wrong, {"done": True}), 2).why
    assert "no program" in handed(Ended([b"{", b'{"done": true}']), 2).why


def test_fits_and_proved_count_cases() -> None:
    good, unfit = judged_case(), JudgedCase(OTHER, TASK, unfit="no room for conv1")
    unproved = replace(judged_case(), unproved="freed too early")
    assert criteria.fits([good, good, unfit], [CASE] * 3) == Criterion(
        "fits", 16, 25, "2 of 3; tiny-vgg(2): no room for conv1"
    )
    assert points(criteria.fits([good, unproved], [CASE] * 2)) == (25, 25)
    assert points(criteria.proved([good, unfit], 2)) == (7, 15) and points(criteria.proved([good] * 2, 2)) == (15, 15)
    assert criteria.proved([good, unproved], 2) == Criterion("proved", 0, 15, "lenet(4): freed too early")
    assert good.good and not unfit.good and not unproved.good


@pytest.mark.parametrize(
    ("pairs", "count", "expected", "mean"),
    [
        ([(1.0, 1.0), (2.0, 1.0)], 2, 5, "1.50 × on average"),
        ([(1.1, 1.0), (1.11, 1.0)], 2, 5, "1.10 × on average"),
        ([(7.0, None)], 1, 10, ""),
        ([(7.0, None), (1.0, 2.0)], 3, 6, "0.50 × on average"),
    ],
)  # fmt: skip
def test_as_good_as_the_paper_is_within_a_tenth(pairs: list[Any], count: int, expected: int, mean: str) -> None:
    figures = iter(pairs)
    found = criteria.as_good("bytes", [judged_case()] * len(pairs), count, lambda _: next(figures))
    close = sum(theirs is None or ours <= 1.1 * theirs for ours, theirs in pairs)
    assert points(found) == (expected, 10)
    assert found.why.startswith(f"{close} of {count} at most 1.1 × those of SuperNeurons") and found.why.endswith(mean)
    assert criteria.as_good("bytes", [], 1, criteria.seconds) == Criterion("bytes", 0, 10, "no program")


def test_the_bytes_of_a_lab() -> None:
    program = refimpl.plan(CASE.built, "vdnn-all", machine(), "3200KiB")
    one = JudgedCase(replace(CASE, budget=3200 << 10), TASK, program)
    assert one.paper is not None and program.arena_bytes <= 3200 << 10
    assert criteria.figure(one, TASK) == (program.arena_bytes, one.paper.arena_bytes)
    copies = [it for it in program.instructions if isinstance(it, refimpl.planner.Copy)]
    moved = sum(it.nbytes for it in copies if it.tensor.kind == "map")  # neither the batch nor its losses
    assert criteria.figure(one, TASKS["A5"])[0] == moved > 0
    assert criteria.seconds(one) == (program.simulate().seconds, one.paper.planned_seconds)
    nowhere = replace(one, case=replace(CASE, budget=1000))
    assert nowhere.paper is None and criteria.figure(nowhere, TASK)[1] is criteria.seconds(nowhere)[1] is None


def test_bits_are_those_of_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    one = judged_case()
    assert criteria.bits([one], 1) == Criterion("bits", 10, 10, "lenet(4) trained: the baseline's to the bit")
    assert points(criteria.bits([one], 2)) == (5, 10) and points(criteria.bits([], 2)) == (0, 10)
    wrong = criteria.trained(one.program) | {"conv1.weights": b""} if one.program else {}
    monkeypatch.setattr(criteria, "trained", lambda program: wrong)
    assert criteria.bits([one], 1) == Criterion("bits", 0, 10, "lenet(4): trained, its weights are not the baseline's")


@pytest.mark.parametrize(
    ("over", "expected", "percent"),
    [((1.0, 1.0), 5, "0%"), ((1.5, 1.0), 4, "25%"), ((3.0, 1.5), 1, "125%"), ((0.9, 2.0), 2, "50%")],
)  # fmt: skip
def test_the_bound_gives_five_points_and_none_for_twice_its_seconds(
    over: tuple[float, float], expected: int, percent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [judged_case(CASE), judged_case(OTHER)]
    floors = {one.case: one.seconds / times for one, times in zip(good, over, strict=True)}
    monkeypatch.setattr(criteria, "least_seconds", floors.__getitem__)
    found = criteria.bound(good, [CASE, OTHER])
    assert points(found) == (expected, 5) and found.why.startswith(percent) and "lenet(4), tiny-vgg(2)" in found.why
    assert points(criteria.bound(good[:1], [OTHER])) == (0, 5)

    def missing(case: DrawnCase) -> float:
        raise NoSolver("install it")

    monkeypatch.setattr(criteria, "least_seconds", missing)
    assert criteria.bound(good, [CASE]) == Criterion("bound", 0, 0, "install it")


# -- the whole grade ---------------------------------------------------------------------------------------------------


def in_this_process(module: str, source: bytes, name: str, request: bytes, limits: Limits, hash_seed: int = 0) -> Ended:
    """As `confined`, without a process: what a harmless submission hands over."""
    given = json.loads(request)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(source)
        if module.endswith("kernel_lab"):
            kernel, shapes = read(source, "tiled"), [Shape(*one) for one in given]
            runs = [launched(kernel, *one.matrices, *one) for one in shapes]
            return lines(*({"c": [float(number) for number in c], **vars(touched)} for c, touched in runs))
        task = TASKS[given["task"]]
        try:
            submission = own_code.executed(str(path), 0)
            order = [*given["order"], given["order"][0]]
            told = [{"case": n, "program": planned(submission, task, given["cases"][n])} for n in order]
        except SetupError as error:
            return lines({"error": line_of(error)})
    return lines(*told, {"done": True})


@pytest.fixture
def without_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (criteria, kernel_lab):
        monkeypatch.setattr(module, "confined", in_this_process)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a submission's folder joins it
    yield
    own_code.known.clear()


@pytest.mark.usefixtures("without_processes")
def test_a_solution_gets_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteria, "least_seconds", lambda case: criteria.fastest(case))
    monkeypatch.setattr(every_lab, "cases", lambda task, seed: [CASE, OTHER, replace(CASE, budget=1000)])
    source = (SOLUTIONS / "a1_liveness.py").read_bytes()
    found = every_lab.grade_lab("A1", source, 1, Limits())
    assert {one.name: points(one) for one in found.criteria} == {
        "runs": (10, 10), "own work": (5, 5), "repeatable": (10, 10), "fits": (16, 25), "proved": (10, 15),
        "bits": (6, 10), "bytes": (6, 10), "seconds": (6, 10), "bound": (3, 5),
    }  # fmt: skip
    assert found.slow_downs["tiny-vgg(2)"] == pytest.approx(1.0, abs=1e-9) and found.points == 72 and found.passed
    assert [*found.slow_downs.values()].count(None) == 1

    foreign = every_lab.grade_lab("A1", source + b"\nimport time\n", 1, Limits())
    own = {one.name: one for one in foreign.criteria}["own work"]
    assert points(own) == (0, 5) and "time" in own.why
    empty = every_lab.grade_lab("A1", b"x = 1\n", 1, Limits())
    assert empty.points == 5 and "liveness" in empty.criteria[0].why and "(it printed: hello)" in empty.criteria[0].why
    broken = every_lab.grade_lab("A1", b"def", 1, Limits())
    assert [points(one) for one in broken.criteria] == [(0, 100)]


@pytest.mark.usefixtures("without_processes")
def test_a_submissions_modules_are_in_the_labs_setup() -> None:
    mine = own_code.executed(str(SOLUTIONS / "a1_liveness.py"), 0)
    setup = setup_of(mine, TASK)
    assert (setup.name, setup.liveness) == ("submission", mine.liveness) and setup.offload == TASK.base.offload
    assert setup_of(mine, TASKS["A6"]).liveness == mine.liveness  # the contest's takes any module
    with raises_naming(SetupError, "offload", "prefetch"):
        setup_of(mine, TASKS["A5"])
    mine.setup = refimpl.presets.vdnn_all()  # type: ignore[attr-defined]
    assert setup_of(mine, TASKS["A6"]) is mine.setup and setup_of(mine, TASK).name == "submission"
    mine.setup = 3  # type: ignore[attr-defined]
    with raises_naming(SetupError, 3):
        setup_of(mine, TASKS["A6"])
    assert planned(mine, TASK, CASE.values)["instructions"]
    assert [*planned(mine, TASK, replace(CASE, budget=1000).values)] == ["why"]
    assert line_of(SetupError("no\n  room")) == "no room" and line_of(ValueError("x" * 400)).startswith("ValueError: x")


@pytest.mark.parametrize(("lab", "expected"), [("A0", "a kernel"), ("A2", "a script")])
def test_a_lab_has_its_judge(lab: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_lab, "grade_kernel", lambda *given: ("a kernel", given))
    monkeypatch.setattr(every_lab, "grade_script", lambda *given: ("a script", given))
    found: Any = every_lab.grade_lab(lab, b"", 3, Limits())
    judge, given = found
    sizes = kernel_lab.shapes(3)
    assert judge == expected and (given[2] == sizes if lab == "A0" else given[1] == script_cases(3))
    assert [*map(str, sizes[:3])] == ["16×16×16", "17×5×9", "1×40×50"] and len(sizes) == 5
    assert all(18 <= one <= 52 for shape in sizes[3:] for one in shape) and sizes != kernel_lab.shapes(4)
    batches = [case.batch for case in script_cases(3)]
    assert batches[0] == 32 and len({*batches}) == 3 and all(16 <= one < 96 for one in batches)


def test_a_grader_that_cannot_confine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_lab, "cases", lambda task, seed: [CASE])
    for module in (criteria, kernel_lab):
        monkeypatch.setattr(module, "confined", lambda *given: lines({"cannot": "no rights"}))
    with raises_naming(RefimplError, "no rights"):
        every_lab.grade_lab("A1", b"x = 1", 1, Limits())
    with raises_naming(RefimplError, "no rights"):
        grade_kernel(KERNEL, "x.py", SHAPES, Limits())


# -- a kernel's and a script's -----------------------------------------------------------------------------------------

SHAPES = [Shape(3, 4, 2), Shape(1, 9, 5)]
KERNEL = next(SOLUTIONS.glob("a0_*.py")).read_bytes()


@pytest.mark.usefixtures("without_processes")
def test_a_kernel_is_judged_by_results_sectors_and_banks() -> None:
    found = grade_kernel(KERNEL, "x.py", SHAPES, Limits())
    assert [points(one) for one in found.criteria] == [(10, 10), (20, 20), (25, 25), (20, 20), (15, 15), (10, 10)]
    assert found.slow_downs == {"3×4×2": None, "1×9×5": None}
    wrong = KERNEL.replace(b"total += a_tile", b"total -= a_tile")
    found = grade_kernel(wrong, "x.py", SHAPES, Limits())
    assert [one.points for one in found.criteria] == [10, 20, 0, 0, 0, 0] and "3×4×2 is wrong" in found.criteria[2].why
    assert grade_kernel(b"x = 1", "x.py", SHAPES, Limits()).of == 100


def test_a_kernel_that_ends_early_has_the_points_of_a_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    good = in_this_process("kernel_lab", KERNEL, "x.py", json.dumps(SHAPES).encode(), Limits())
    for ended, said in (
        (Ended(good.lines[:1]), "1×9×5: it ended early"), (Ended([], why="took too long"), "3×4×2: took too long"),
        (Ended([*good.lines, b'{"error": "no"}']), "1×9×5: no"), (Ended([good.lines[0], b'{"c": [']), "it ended early"),
    ):  # fmt: skip
        monkeypatch.setattr(kernel_lab, "confined", lambda *given, ended=ended: ended)
        found = grade_kernel(KERNEL, "x.py", SHAPES, Limits())
        assert [points(one) for one in found.criteria] == [(10, 10), (0, 20), (0, 25), (0, 20), (0, 15), (0, 10)]
        assert said in found.criteria[1].why


def test_a_scripts_points() -> None:
    cases = script_cases(1)[:1]
    theirs = of_script(cases[0])
    best = script(with_marks(theirs, fewest(cases))).encode()
    found = grade_script(best, cases)
    assert [points(one) for one in found.criteria] == [(10, 10), (50, 50), (10, 10), (30, 30)]
    assert found.slow_downs["lenet(32)"] and found.slow_downs["lenet(32)"] >= 1
    repaired = best.splitlines(keepends=True)
    waiting = next(line for line in repaired if line.startswith(b"    event[") and b"].wait(" in line)
    needless = grade_script(best.replace(waiting, 3 * waiting, 1), cases)
    assert [one.points for one in needless.criteria] == [10, 50, 10, 20]
    without = b"\n".join(line for line in best.splitlines() if b".wait(" not in line)
    found = grade_script(without, cases)
    assert [one.points for one in found.criteria] == [10, 0, 0, 0] and found.criteria[1].why.startswith("lenet(32): ")
    (changed,) = grade_script(best.replace(b"stream=", b"x=", 1), cases).criteria
    assert points(changed) == (0, 100) and "only records and waits may change" in changed.why
    assert points(grade_script(b"x = 1", cases).criteria[0]) == (0, 100)


def test_records_and_waits_are_placed_by_the_launches_and_copies_before_them() -> None:
    program = of_script(script_cases(1)[0])
    assert program.streams == ("compute", "memory")
    works = [it for it in program.instructions if isinstance(it, Launch | Copy)]
    marks = [
        Mark(0, "record", "a", "memory"),
        Mark(0, "wait", "a", "compute"),
        Mark(len(works), "wait", "a", "compute"),
    ]
    found = with_marks(program, marks).instructions
    made = [it for it in found if isinstance(it, Record | Wait)]
    places = [*map(found.index, made)]
    assert [place for place in places if place < found.index(works[0])] == [0, 1] and places[2] > found.index(works[-1])
    assert [(type(it), it.step, it.stream, it.event) for it in made] == [
        (Record, 0, 1, 0), (Wait, 0, 0, 0), (Wait, works[-1].step, 0, 0),
    ]  # fmt: skip
    assert [it for it in found if isinstance(it, Launch | Copy)] == works
    for wrong, said in ((Mark(1, "wait", "b", "compute"), "b"), (Mark(1, "record", "a", "nowhere"), "nowhere")):
        with raises_naming(NotTheScript, f"'{said}'"):
            with_marks(program, [wrong])


# -- the cases ---------------------------------------------------------------------------------------------------------


def test_budgets_are_between_what_the_paper_and_what_the_lab_without_it_need(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {TASKS["A3"].paper: 100 << 10, TASKS["A3"].without: 300 << 10}
    monkeypatch.setattr(drawn_cases, "least_budget", lambda network, setup, machine, step: needs[setup])
    found = drawn(TASKS["A3"], (("lenet", 2, 5), ("tiny-vgg", 3, 3)), True, Random(0))
    several = [next(found) for _ in range(12)]
    assert {case.network for case in several[:2]} == {case.network for case in several[2:4]} == {"lenet", "tiny-vgg"}
    assert {case.batch for case in several if case.network == "lenet"} <= {2, 3, 4, 5}
    assert all(case.small and case.budget % 1024 == 0 for case in several)
    assert all(0.1 * 200 - 1 <= case.budget / 1024 - 100 <= 0.7 * 200 for case in several)
    assert len({case.budget for case in several}) > 6

    needs[TASKS["A3"].without] = 100 << 10  # the lab is not needed: no case
    with pytest.raises(AssertionError, match="A3"):
        next(drawn(TASKS["A3"], (("lenet", 2, 2),), False, Random(0)))


def test_a_case_has_its_name_and_its_values() -> None:
    assert str(CASE) == "lenet(4)" and CASE.built is CASE.built
    assert CASE.values == {"network": "lenet", "batch": 4, "budget": 100 << 20, "small": True}
    assert not lacks(str(OTHER), "tiny-vgg")
