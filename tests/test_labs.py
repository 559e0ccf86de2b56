"""The labs of the course: the curve of marks, the gates, a class, and each lab's solution and wrong submissions."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refimpl.importing import own_code
from refimpl.memory import BestFit
from refimpl.memory.allocation_trace import rounded
from refimpl.names.presets import vdnn_conv
from refimpl.planner import DoesNotFit, Launch
from refimpl.text import RefimplError
from tests.matrix import more
from tests.messages import lacks
from tutorials import course
from tutorials.labs import alike, classroom, conftest, gates, test_a1, test_a3, test_a4, traces
from tutorials.labs.curve import Mark
from tutorials.labs.lab import LAYER_WISE, PLAINEST, Case, Lab, Measured
from tutorials.solutions import figures

ROOT = Path(__file__).resolve().parents[1]
LABS, SOLUTIONS = ROOT / "tutorials" / "labs", ROOT / "tutorials" / "solutions"
LIVENESS = (SOLUTIONS / "a1_liveness.py").read_text(encoding="utf-8")
REBUILD = (SOLUTIONS / "a3_recompute_and_cache.py").read_text(encoding="utf-8")
A1, A3 = test_a1.LAB, test_a3.LAB
CASE = Case("tiny-vgg SETUP", "tiny-vgg", 2, zero=2_000_000, full=1_000_000, steps=(0.4, 0.8))


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


def run(lab: str, *options: Any) -> tuple[int, str]:
    """Exit status and output of `pytest tutorials/labs/test_a3.py`."""
    command = [sys.executable, "-m", "pytest", f"tutorials/labs/test_{lab}.py", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "COLUMNS": "400", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    found = subprocess.run([*command, *map(str, options)], cwd=ROOT, capture_output=True, text=True, env=environment)
    return found.returncode, found.stdout + found.stderr


def gates_of(lab: Lab, path: Path, *cases: Case) -> tuple[list[Measured], str]:
    """What a submission reaches in some cases, and the first gate that it does not pass; bits are left out."""
    modules = lab.modules(path)
    measured = [lab.measured(case, modules, path) for case in cases]
    own = gates.own_work(lab, modules, cases, path.parent)
    return measured, own or gates.unproved(measured) or gates.changing(lab, modules, measured)


# -- the curve ---------------------------------------------------------------------------------------------------------


def test_points_are_on_a_line_from_the_trivial_submission_to_the_solution() -> None:
    figures = (3_000_000, 2_000_000, 1_500_000, 1_000_000, 900_000, 0)
    assert [CASE.points(figure) for figure in figures] == pytest.approx([0, 0, 0.5, 1, 1.1, 1.2])


def test_a_mark_says_where_one_is_and_what_was_lost() -> None:
    measured = [Measured(CASE, 0.5, "1.4 MiB", again="refimpl view tiny-vgg"), Measured(CASE, 1.1)]
    mark = Mark(measured, ("one", "two"))
    assert mark.value == 80
    assert mark.you_are_here() == "nothing 0, one 40, two 80, YOU 80, the solution 100"
    assert mark.lines()[2:] == ["   50  tiny-vgg(2): 1.4 MiB", "       refimpl view tiny-vgg"]
    unproved = Mark(measured, ("one", "two"), "tiny-vgg(2): freed too early")
    assert unproved.value == 0 and unproved.lines()[1:] == ["0, because tiny-vgg(2): freed too early"]


def in_order(lab: Lab) -> list[Case]:
    """The cases of a lab, the quickest to plan first."""
    tiny = ("lenet", "tiny")
    return sorted(lab.table()[1], key=lambda case: (not case.network.startswith(tiny), case.network, case.batch))


@pytest.mark.slow
@pytest.mark.parametrize("cases", [slice(1), more(slice(1, None))], ids=["the first", "all others"])
@pytest.mark.parametrize("name", figures.TABLES)
def test_a_stored_case_has_the_figures_of_its_table(name: str, cases: slice) -> None:
    """`python -m tutorials.solutions.figures NAME --write` makes the table again."""
    steps = importlib.import_module(f"tutorials.solutions.steps.{name}")
    lab: Lab = steps.LAB
    for case in in_order(lab)[cases]:
        for modules, figure in ((steps.ZERO, case.zero), (steps.FULL, case.full)):
            assert lab.figure_of(case, modules)[0] == pytest.approx(figure, rel=1e-6)
        points = [lab.measured(case, modules, Path("steps.py")).points for modules in steps.STEPS.values()]
        assert points == pytest.approx(case.steps, abs=1e-3)


@pytest.mark.parametrize("name", figures.TABLES)
def test_a_seed_draws_a_case_of_each_part_and_hardly_moves_the_marks(name: str) -> None:
    lab = importlib.import_module(f"tutorials.labs.test_{name}").LAB
    drawn = lab.cases("ada")
    assert drawn == lab.cases("ada") != lab.cases("bob")
    assert [case.part for case in drawn] == [*dict.fromkeys(case.part for case in lab.table()[1])]
    rows = figures.spread(lab)
    means, deviations = [row[1] for row in rows], [row[2] for row in rows]
    assert means == sorted(means) and 0 < means[0] and means[-1] < 100 and max(deviations) <= 3, rows


# -- the gates ---------------------------------------------------------------------------------------------------------


def test_an_unproved_program_makes_the_mark_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    program = A1.planned(CASE, A1.modules(solution("a1")))
    without = replace(program, instructions=[it for it in program.instructions if not isinstance(it, Launch)])
    monkeypatch.setattr(Lab, "planned", lambda *given: without)
    (measured,), said = gates_of(A1, solution("a1"), CASE)
    assert not measured.points and not lacks(said, "tiny-vgg(2)", "rule")


def test_an_error_of_the_submission_is_its_line(mine: Path) -> None:
    mine.write_text(LIVENESS + "\n\ndef bind(self, context):\n    return 1 / 0\n\n\nMine.bind = bind\n")
    (measured,), _ = gates_of(A1, mine, CASE)
    assert not measured.points and not lacks(measured.said, mine, "line 33", "in bind", "ZeroDivisionError")
    mine.write_text("x = 1\n")
    with pytest.raises(RefimplError, match="the file has no liveness; write"):
        A1.modules(mine)


def test_a_module_that_keeps_something_is_not_repeatable(mine: Path) -> None:
    mine.write_text(
        LIVENESS + "bind, plans = Mine.bind, []\n"
        "def other(self, context):\n    plans.append(context)\n"
        "    return bind(self, context) if len(plans) < 2 else slots.Releases()\nMine.bind = other\n"
    )
    modules = A1.modules(mine)
    assert not lacks(gates.changing(A1, modules, [A1.measured(CASE, modules, mine)]), "tiny-vgg(2)", "second time")
    modules = A1.modules(solution("a1"))
    assert gates.changing(A1, modules, [A1.measured(CASE, modules, mine)]) == ""


@pytest.mark.slow
def test_bits_are_those_of_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = A1.modules(solution("a1"))
    assert gates.other_bits(A1, modules) == ""
    program = A1.planned(A1.trained, modules)
    wrong = gates.trained(program) | {"conv1.weights": b""}
    monkeypatch.setattr(gates, "trained", lambda one: wrong if one.setup.name == "submission" else {})
    assert gates.other_bits(A1, modules) == "lenet(16): trained, its weights are not the baseline's"


# -- a class -----------------------------------------------------------------------------------------------------------


def test_the_files_of_a_class_are_found_and_named_without_harm(tmp_path: Path) -> None:
    for folder in ("zoe/tutorials/labs", "yan", ".git"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("ada.py", "=cmd().py", "zoe/tutorials/labs/a1_mine.py", "zoe/tutorials/labs/a3_mine.py", "notes.txt"):
        (tmp_path / name).touch()
    found = [(name, path.name) for name, path in classroom.submissions(tmp_path, LABS / "test_a1.py")]
    assert found == [("=cmd()", "=cmd().py"), ("ada", "ada.py"), ("yan", "a1_*.py"), ("zoe", "a1_mine.py")]
    assert [classroom.printable(name) for name in ("=cmd()", "a\nb", "\x1b[31m", "")] == [
        "'=cmd()",
        "a\\nb",
        "\\x1b[31m",
        "",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"--submission": "mine.py"}, "--submission mine.py: there is no such file"),
        ({"--csv": "marks.csv"}, "add --class DIR"),
        ({"--csv": "out/marks.csv", "class_of": "."}, "--csv out/marks.csv: there is no folder out"),
        ({"--gradescope": "out/a.json"}, "--gradescope out/a.json: there is no folder out"),
    ],
)
def test_options_that_cannot_be_are_a_line_before_anything_runs(
    given: dict[str, str], said: str, tmp_path: Path
) -> None:
    config: Any = SimpleNamespace(getoption=given.get, invocation_params=SimpleNamespace(dir=tmp_path))
    with pytest.raises(pytest.UsageError, match=re.escape(said)):
        conftest.pytest_configure(config)


def test_a_process_that_does_not_end_is_killed() -> None:
    assert classroom.ended(["-c", "import sys; sys.exit(3)"], 60) == 3
    assert classroom.ended(["-c", "while True: pass"], 0.5) is None


def test_a_copy_with_other_names_is_like_what_it_was_copied_from(tmp_path: Path) -> None:
    copied = re.sub(r"\breleases\b", "gone", LIVENESS)
    for name, text in (("ada", LIVENESS), ("bob", copied), ("cid", "def f(a):\n    return a\n"), ("dot", "def (")):
        (tmp_path / f"{name}.py").write_text(text)
    tests = LABS / "test_a1.py"
    rows = [classroom.Row(name, "a1") for name in ("ada", "bob", "cid", "dot")]
    classroom.compare(rows, [(tests, name, path) for name, path in classroom.submissions(tmp_path, tests)])
    assert [row.like for row in rows] == ["bob 100%", "ada 100%", "", ""]
    assert rows[1].like_the_project == "solutions/a1_liveness.py 100%"


def test_who_decides_as_a_module_in_every_case_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same programs in some cases are not enough; a module is planned once for a class."""
    cases = [CASE, replace(CASE, batch=3), replace(CASE, network="tiny-vit", around="BESIDE_RECOMPUTE")]
    monkeypatch.setattr(Lab, "cases", lambda self, seed: cases)
    papers = [alike.its(A1, "superneurons-liveness", case) for case in cases]
    measured = [A1.measured(case, A1.modules(solution("a1")), solution("a1")) for case in cases]
    decided = [alike.digest(A1, one.program) for one in measured]
    assert alike.decides_as(A1, "ada", decided) == "layer-wise and the solution"
    monkeypatch.setattr(Lab, "planned", None)  # nothing is planned again
    assert alike.decides_as(A1, "bob", papers) == "superneurons-liveness"
    assert papers[:2] == decided[:2]
    for others in ([decided[0], papers[2], papers[2]], ["", *decided[1:]], ["", "", ""], []):
        assert alike.decides_as(A1, "ada", others) == ""
    assert alike.decides_as(replace(A1, anything=True), "ada", decided) == ""


def test_a_row_says_what_became_of_a_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--gradescope` of its process is what the row is made of."""
    config: Any = SimpleNamespace(option=SimpleNamespace(seed="each", limit=2.0))
    (tmp_path / "ada.py").touch()
    asked: list[str] = []
    forged: list[str] = []  # by a submission, as its results

    def finished(arguments: list[str], limit: float) -> int | None:
        asked.extend(arguments)
        path = next(Path(one.partition("=")[2]) for one in arguments if one.startswith("--gradescope"))
        failed: Any = SimpleNamespace(nodeid="x", outcome="failed", failed=True, longrepr="=1\n", user_properties=[])
        mark = [("mark", 78), ("lines", []), ("decided", ["c0ffee"])]
        passed: Any = SimpleNamespace(nodeid="y", outcome="passed", failed=False, user_properties=mark)
        classroom.write_for_gradescope(path, [failed, passed])
        if forged:
            path.write_text(forged[-1])
        return 1

    def row(path: Path) -> tuple[object, ...]:
        found, decided = classroom.tested(LABS / "test_a1.py", path.stem, path, config)
        return found.mark, found.passed, found.tests, found.said, *decided

    monkeypatch.setattr(classroom, "ended", finished)
    assert row(tmp_path / "ada.py") == (78, 1, 2, "'=1", "c0ffee") and "--seed=ada" in asked
    assert row(tmp_path / "bob.py") == (0, 0, 0, "there is no file bob.py")
    for text in ("[]", '{"tests": [1], "extra_data": {}, "score": "=1"}', '{"tests": [], "score": 100}'):
        forged.append(text)
        assert row(tmp_path / "ada.py") == (0, 0, 0, "its process ended with status 1, and no result")
    monkeypatch.setattr(classroom, "ended", lambda arguments, limit: None)
    assert row(tmp_path / "ada.py") == (0, 0, 0, "it did not end within 2 s")


def test_a_students_repository_has_no_solution_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    written = course.write(tmp_path, "https://example.org/blob/main")
    assert Path("tutorials/labs/cases/a1.csv") in written and Path("tutorials/labs/test_a1.py") in written
    assert not [path for path in written if "solutions" in path.parts]
    pages = [path for path in written if path.suffix == ".md"]
    assert len(pages) > 2
    for page in pages:
        text = (tmp_path / page).read_text(encoding="utf-8")
        targets = [one for one in re.findall(r"\]\(([^)#\s]+)", text) if not one.startswith("http")]
        assert [one for one in targets if not (tmp_path / page.parent / one).exists()] == [], page
    for path in written:
        if path.suffix == ".py":
            text = (tmp_path / path).read_text(encoding="utf-8")
            assert "tutorials.solutions" not in text.replace("python -m tutorials.solutions.figures", ""), path


@pytest.mark.slow
def test_a_submission_may_be_in_a_repository_that_has_the_tests_too(tmp_path: Path) -> None:
    """pytest reads the conftest.py of both."""
    course.write(tmp_path, "https://example.org")
    status, out = run("a2", "-k", "forward_reads", "--submission", tmp_path / "tutorials" / "labs" / "a2_waits.py")
    assert status == 1 and out.count("no wait orders them") == 1, out


# -- each lab ----------------------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("lab", sorted(path.stem.partition("_")[0] for path in LABS.glob("a?*_*.py")))
def test_a_solution_has_a_hundred_and_the_labs_own_file_nothing(lab: str, tmp_path: Path) -> None:
    for path, least, most in ((solution(lab), 95, 120), (next(LABS.glob(f"{lab}_*.py")), 0, 10)):
        status, out = run(lab, "--submission", path, "--seed", "ada", f"--gradescope={tmp_path / 'results.json'}")
        mark = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["score"]
        assert least <= mark <= most and (status == 0) == (mark >= 95), out


#: Lab → what becomes of its tests, in the order of the handout, after each step; a dot is a pass.
AFTER_STEPS = {
    "a1": ("...FFF.", "....FF.", ".....F."),
    "a3": (".....FFFFFF", "......FFFFF", ".........FF"),
    "a4": ("...FFFFF", "....FFFF", ".....FFF", ".......F", ".......F", "........"),
    "a5a": ("...FFFFF", ".....FFF", "......F."),
    "a5b": (".FF...", "..F..F", "....FF"),
}


@pytest.mark.matrix
@pytest.mark.parametrize(("lab", "number"), [(lab, n) for lab, after in AFTER_STEPS.items() for n in range(len(after))])
def test_who_stops_after_a_step_is_told_the_next(lab: str, number: int, mine: Path) -> None:
    mine.write_text(
        f"from tutorials.solutions.steps.{lab} import STEPS\n\nglobals().update([*STEPS.values()][{number}])\n",
        encoding="utf-8",
    )
    _, out = run(lab, "--submission", mine, "-k", "not TestMark")
    assert out.split()[0] == AFTER_STEPS[lab][number], out


# -- own work ----------------------------------------------------------------------------------------------------------

#: Slot → a module of the project, what it is made of, and what is around it.
THEIRS = {
    "liveness": ("slots.baseline", "LayerWise", "", PLAINEST),
    "recompute": ("superneurons.recompute", "RecomputeSegments", '"speed", "mine", "mine"', LAYER_WISE),
    "offload": ("vdnn", "OffloadInputs", '("conv",), "mine", "mine"', LAYER_WISE),
    "prefetch": ("slots", "Window", '"mine", "mine", ()', LAYER_WISE.replace(offload=vdnn_conv.setup.offload)),
    "cache": ("superneurons", "LeastRecentlyUsed", "", LAYER_WISE),
    "allocator": ("memory", "BestFit", "", vdnn_conv.setup),
}
MODULE = """
from refimpl import slots


class Mine(slots.{base}):
    name, summary = "mine", "mine"
    needs, offers = theirs.needs, theirs.offers

    def bind(self, context):
        {bind}


class Wrapper:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


{slot} = Mine()
"""


def own(slot: str, text: str, mine: Path) -> str:
    """What the gate says of a submission to a lab of one slot."""
    module, name, given, around = THEIRS[slot]
    mine.write_text(f"from refimpl.{module} import {name}\n\ntheirs = {name}({given})\n{text}")
    lab = Lab("own", (slot,), {"SETUP": around})
    return gates.own_work(lab, lab.modules(mine), [Case("", "tiny-vgg", 2, 1 << 21)], mine.parent)


@pytest.mark.parametrize("slot", THEIRS)
def test_a_module_of_the_project_is_not_ones_own_work(slot: str, mine: Path) -> None:
    _, name, given, _ = THEIRS[slot]
    method = "open" if slot == "allocator" else "bind"
    assert not lacks(own(slot, f"{slot} = theirs\n", mine), slot, f"{name}.{method}", "write yours")
    inherited = f"class Mine({name}):\n    pass\n\n\n{slot} = Mine({given})\n"
    assert not lacks(own(slot, inherited, mine), slot, f"Mine.{method}", "write yours")


@pytest.mark.parametrize("slot", [slot for slot in THEIRS if slot != "allocator"])
@pytest.mark.parametrize("bind", ["return theirs.bind(context)", "return Wrapper(theirs.bind(context))"])
def test_who_asks_a_module_of_the_project_is_found(slot: str, bind: str, mine: Path) -> None:
    said = own(slot, MODULE.format(base=slot.capitalize(), bind=bind, slot=slot), mine)
    assert not lacks(said, f"{THEIRS[slot][1]}.bind", "write your own")


CHOSEN = """
from refimpl import slots

class Chosen(slots.Offload):
    name, summary, needs, offers = "chosen", "chosen", theirs.needs, theirs.offers

    def bind(self, context):
        return slots.Departures()
"""
PLANS_WITHIN = """from refimpl.planner import plan
        from tutorials.labs.lab import LAYER_WISE
        program = plan(context.network, LAYER_WISE.replace(offload={asked}), context.machine, context.budget)
        found = slots.Departures()
        for tensor, fate in program.fates.items():
            if fate.name == "offload":
                found.add(context.last_forward_use(tensor), tensor, "as planned")
        return found"""
RELEASES = """
        found = slots.Releases()
        for tensor, uses in context.uses.items():
            if uses:
                found.add(context.last_use(tensor), tensor)
        return found"""
SENDS = """
        chosen = [layer for layer in context.network.layers if layer.kind == "conv"]
        return slots.LastConsumerSends(chosen, context)"""


@pytest.mark.parametrize(
    ("slot", "bind", "said"),
    [
        ("liveness", RELEASES, ""),
        ("offload", SENDS, ""),
        ("offload", PLANS_WITHIN.format(asked="Chosen()"), ""),
        ("offload", PLANS_WITHIN.format(asked="theirs"), "OffloadInputs.bind"),
    ],
    ids=["Releases", "LastConsumerSends", "its own plan", "a plan of theirs"],
)
def test_helpers_that_the_handouts_name_are_ones_own_work(slot: str, bind: str, said: str, mine: Path) -> None:
    """And so is a plan within the plan that asks no module of the project for the lab's slot."""
    found = own(slot, CHOSEN + MODULE.format(base=slot.capitalize(), bind=bind, slot=slot), mine)
    assert bool(found) == bool(said) and said in found


SEARCHING = """
from refimpl.combined.fixed import fixed_addresses
from refimpl.combined.fixed_pool import by_size, fix_addresses, lives, rounds
from refimpl.memory import ALLOCATORS, Allocator, BestFit, FirstFit, FitPool, FreeList, ideal
from refimpl.slots.planner_only import PoolSearch


class Mine(Allocator, PoolSearch):
    name, summary = "mine", "mine"

    def open(self, size):
        return {pool}

    def search(self, attempt, budget, fixed_order):
        {body}
        return attempt(budget)


allocator = Mine()
"""
ROOMY = "attempt(8 * budget, allocator=FirstFit()).allocation_trace()"


@pytest.mark.parametrize(
    ("pool", "body", "asked"),
    [
        ("FitPool(size, 512, FreeList.smallest)", f"ideal(lives({ROOMY}) and [])", ""),
        ('ALLOCATORS["first-fit"].open(size)', "pass", ""),
        ("BestFit().open(size)", f"fix_addresses({ROOMY})", "fix_addresses"),
        ("BestFit().open(size)", f"rounds(lives({ROOMY}), [0], 0)", "rounds"),
        ("BestFit().open(size)", "fixed_addresses(attempt(8 * budget))", "fixed_addresses"),
    ],
)
def test_plain_rules_are_ones_own_work_and_functions_of_a_papers_folder_are_not(
    pool: str, body: str, asked: str, mine: Path
) -> None:
    said = own("allocator", SEARCHING.format(pool=pool, body=body), mine)
    assert said == "" if not asked else not lacks(said, "it asks the project's", asked, "write your own")


def test_own_work_is_asked_before_what_a_module_of_the_project_does_elsewhere(mine: Path) -> None:
    """In a trace, fixed addresses share bytes."""
    mine.write_text("from refimpl.combined.fixed import FixedAddresses\n\nallocator = FixedAddresses()\n")
    (measured,), said = gates_of(A4, mine, LENET)
    assert measured.unsafe and not lacks(said, "FixedAddresses.open", "write yours")


# -- an offload and a prefetch -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lab", "slot", "method"), [("a5a", "offload", "offloads"), ("a5b", "prefetch", "due")])
def test_names_in_place_of_maps_are_a_line(lab: str, slot: str, method: str, mine: Path) -> None:
    text = (
        next(LABS.glob(f"{lab}_*.py"))
        .read_text(encoding="utf-8")
        .replace("raise NotImplementedError(", "return ANSWER or (")
    )
    mine.write_text(f'{text}\n\nANSWER = {{"conv1": "it waits"}}\n', encoding="utf-8")
    module = importlib.import_module(f"tutorials.labs.test_{lab}")
    measured = module.LAB.measured(replace(CASE, budget=1 << 21), module.LAB.modules(mine), mine)
    assert not measured.points and not lacks(measured.said, method, "conv1")


# -- an allocator ------------------------------------------------------------------------------------------------------

A4 = test_a4.LAB
LENET = Case("lenet VDNN_CONV", "lenet", 16, around="VDNN_CONV", zero=1.3, full=1.0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return attempt(8 * budget)", "search returns an attempt in"),
        ("return None", "search returns NoneType; return what attempt returned"),
        ("return 1 / 0", "ZeroDivisionError"),
        ("return attempt(budget // 8)", "does not fit in"),
    ],
)
def test_a_search_that_serves_no_trace_has_no_points(body: str, reason: str, mine: Path) -> None:
    mine.write_text(SEARCHING.format(pool="BestFit().open(size)", body=body))
    measured = A4.measured(LENET, A4.modules(mine), mine)
    assert not measured.points and reason in measured.said


@pytest.mark.parametrize(
    ("address", "reason"), [("0", "conv1 has the bytes 0 to"), ("self.size", "of a pool of"), ("-512", "bytes -512 to")]
)
def test_blocks_that_share_bytes_or_are_outside_make_the_mark_nothing(address: str, reason: str, mine: Path) -> None:
    pool = f"class Bad(FitPool):\n    def _take(self, nbytes, stays):\n        return {address}\n"
    mine.write_text(f"{SEARCHING.format(pool='Bad(size, 512, FreeList.first)', body='pass')}\n\n{pool}")
    (measured,), said = gates_of(A4, mine, LENET)
    assert not measured.points and said.startswith("lenet(16), VDNN_CONV: ") and reason in said


def test_an_allocator_that_keeps_something_is_not_repeatable(mine: Path) -> None:
    mine.write_text(
        SEARCHING.format(pool="made.append(1) or rule(size)", body="pass")
        + """
made = []


def rule(size):
    return FitPool(size, 512, FreeList.smallest if len(made) < 20 else FreeList.widest)
"""
    )
    assert "second time" in gates_of(A4, mine, LENET)[1]


def test_the_layout_of_the_solution_is_also_a_plans(mine: Path) -> None:
    """Resident tensors come before the blocks of the trace; best fit does not fit there."""
    budget = A4.recorded(LENET).ideal + sum(rounded(tensor.nbytes) for tensor in LENET.built.resident)
    A4.planned(LENET, A4.modules(solution("a4")), budget).verify()
    with pytest.raises(DoesNotFit):
        A4.planned(LENET, {"allocator": BestFit()}, budget)


def test_the_command_of_a_case_says_what_does_not_fit(capsys: pytest.CaptureFixture[str], mine: Path) -> None:
    traces.main(A4.command(LENET, solution("a4")).split()[3:])
    first, best, _, ours = capsys.readouterr().out.splitlines()
    assert "the ideal is" in first and "step 20 (pool1 backward) asks" in best and "0.0 % above the ideal" in ours
    mine.write_text(SEARCHING.format(pool="BestFit().open(8 * size)", body="return attempt(budget)"))
    traces.main(A4.command(LENET, mine).split()[3:])
    assert not lacks(capsys.readouterr().out.splitlines()[-1], mine, "of a pool of")


@pytest.mark.matrix
def test_the_command_of_a_case_draws_the_pools(tmp_path: Path) -> None:
    picture = tmp_path / "pool.png"
    traces.main([*A4.command(LENET, solution("a4")).split()[3:], "--picture", str(picture)])
    assert picture.stat().st_size > 10_000


def test_the_ideal_is_reached_in_every_case() -> None:
    """So no submission has more than 100."""
    assert {case.full for case in A4.table()[1]} == {1.0}


# -- lab A3 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("key=lambda one: one.number)]", "key=lambda one: -one.number)]", "return them in order"),
        (
            "sorted(found,",
            "sorted([one for one in found if one.writes],",
            "does not run step 29 (3_2.conv1.relu forward)",
        ),
        ("if tensor not in locked)", "if tensor in locked)", "which is locked; return another tensor, or None"),
    ],
)
def test_a_wrong_answer_of_a3_has_no_points_and_a_sentence(right: str, wrong: str, said: str, mine: Path) -> None:
    assert right in REBUILD
    mine.write_text(REBUILD.replace(right, wrong))
    case = Case("", "tiny-resnet", 4, 1150 << 10, zero=1, full=0)
    (measured,), _ = gates_of(A3, mine, case)
    assert not measured.points and said in measured.said, measured.said


def test_a_trace_of_no_network_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        traces.main([str(solution("a4")), "nonet", "1", "VDNN_CONV"])
    assert capsys.readouterr().err.splitlines()[-1].endswith("there is no network 'nonet'; did you mean unet?")
