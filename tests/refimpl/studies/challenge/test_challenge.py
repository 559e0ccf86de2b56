"""The challenge: its points, its score, entries that break its rules, and programs that are entered as files."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl import cli
from refimpl.importing import own_code
from refimpl.points.many_plans import Row, read
from refimpl.studies.challenge import command, point_set
from refimpl.studies.challenge.entry import EntryError, EntryQuestion, entered, limited, prove, save
from refimpl.studies.challenge.point_set import BestKnown, ChallengePoint, drawn, printed
from refimpl.studies.challenge.score import MOST, factor, score
from refimpl.studies.grid.grid import study
from refimpl.studies.grid.rows import fingerprint
from tests.messages import raises_naming

TINY = ChallengePoint("tiny-vgg", 32, "titan-x", 4 << 20)
OWN = """
from dataclasses import dataclass
import refimpl
from refimpl.slots.search import Search

SETUP = refimpl.presets.vdnn_all().replace(name="mine")

@dataclass(frozen=True)
class Raises(refimpl.slots.Offload):
    name = "raises"
    summary = ""
    offers = frozenset({"offload"})

    def bind(self, context):
        return 1 / (context.network.batch - 32)

@dataclass(frozen=True)
class Endless(Raises):
    def bind(self, context):
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass

@dataclass(frozen=True)
class Mutates(Raises):
    def bind(self, context):
        del context.network.steps[2:-2]
        return refimpl.slots.Departures({})

@dataclass(frozen=True)
class Easier(Search):
    def search(self, attempt, context):
        return refimpl.plan(refimpl.networks.tiny_vgg(batch=1), "baseline", context.machine, "1GiB")

@dataclass(frozen=True)
class Wrong(Search):
    def search(self, attempt, context):
        program = attempt(SETUP)
        program.instructions = [one for one in program.instructions if one.op != "wait"]
        return program

RAISES, ENDLESS, MUTATES = (refimpl.presets.vdnn_all(offload=one) for one in (Raises(), Endless(), Mutates()))
EASIER, WRONG = Easier("easier"), Wrong("wrong")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with setups of one's own."""
    monkeypatch.setattr(own_code, "known", {})
    path = tmp_path / "my_setups.py"
    path.write_text(OWN, encoding="utf-8")
    return str(path)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[ChallengePoint]:
    """Two printed points, the first with a best program that is easy to beat, and a drawn one."""
    slow, fast = BestKnown(1e6, "slow", "0"), BestKnown(1e-6, "fast", "1")
    cases = [TINY._replace(best=slow), TINY._replace(batch=16, best=fast)]
    monkeypatch.setattr(command, "printed", lambda: cases)
    monkeypatch.setattr(command, "drawn", lambda seed: [TINY._replace(batch=8)])
    return cases


# -- points and scores -------------------------------------------------------------------------------------------------


def test_the_printed_points() -> None:
    cases = printed()
    assert len({case[:4] for case in cases}) == len(cases) == 2 * point_set.DRAWN
    assert {case.machine for case in cases} == {*point_set.MACHINES}
    assert {case.network for case in cases} >= {"tiny-vgg", "vgg16", "resnet50", "gpt2", "unet"}
    assert all(case.best is not None for case in cases)
    bounds = [(case.bound, case.best.seconds) for case in cases if case.bound and case.best]
    assert len(bounds) > 10 and all(bound <= best * (1 + 1e-9) for bound, best in bounds)


def test_the_best_program_that_is_stored_is_what_its_setup_plans() -> None:
    case = next(case for case in printed() if case.network == "tiny-vgg")
    assert case.best is not None
    program = refimpl.plan(refimpl.networks.build(case.network, case.batch), case.best.by, case.machine, case.budget)
    assert (program.planned_seconds, fingerprint(program)) == (pytest.approx(case.best.seconds), case.best.program)


def test_drawn_points_follow_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_set, "NETWORKS", {"tiny-vgg": (64, 128)})
    first, again, other = drawn(1, 3), drawn(1, 3), drawn(2, 3)
    assert first == again != other
    assert all(case.best is None and case.budget % point_set.MIB == 0 for case in first)


def test_a_score_is_a_geometric_mean() -> None:
    best = BestKnown(2.0, "x", "")
    cases = [TINY._replace(best=best), TINY._replace(best=best, bound=1.0), TINY, TINY]
    rows: list[Row] = [
        {"fits": fits, "seconds": seconds, "slow_down": 1.5, "planning_seconds": 1.0}
        for fits, seconds in ((True, 3.0), (True, 4.0), (False, None), (True, 1e9))
    ]
    assert [factor(*pair) for pair in zip(cases, rows, strict=True)] == [1.5, 4.0, MOST, 1.5]
    found = score("s", [*zip(cases, rows, strict=True)])
    assert found.printed.score == pytest.approx(math.sqrt(6.0)) and found.printed.fits == 2
    assert found.drawn.score == pytest.approx(math.sqrt(MOST * 1.5)) and found.drawn.fits == 1
    assert found.whole.score == pytest.approx((6 * MOST * 1.5) ** 0.25)
    assert factor(cases[0], rows[0] | {"seconds": 1e9}) == MOST
    assert score("s", [(cases[0], rows[0] | {"seconds": 1.9})]).better and not found.better


# -- entries -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("RAISES", "ZeroDivisionError"), ("ENDLESS", "more than 0.3 seconds"), ("MUTATES", "changes the network"),
        ("EASIER", "for another network"), ("WRONG", "order"),
    ],
)  # fmt: skip
def test_a_setup_that_breaks_the_rules_has_a_row_that_says_so(own: str, name: str, says: str) -> None:
    made = entered(EntryQuestion(TINY.point(f"{own}:{name}"), 0.3))
    assert made["fits"] is None and says in made["why"] and "\n" not in made["why"]
    assert factor(TINY, made) == MOST
    again = entered(EntryQuestion(TINY.point("vdnn-all"), 60.0))
    assert again["fits"], "the network is whole again, and no alarm is left"


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_better_program_is_noticed_written_and_proved(
    own: str, few: list[ChallengePoint], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "better", tmp_path / "rows.jsonl"
    asked = ["study", "challenge", f"{own}:SETUP", "--jobs", "1", "--save", str(folder), "--out", str(out)]
    assert cli.main(asked) == 0
    shown = capsys.readouterr().out
    assert "beats slow" in shown and "1 program better" in shown and "beats fast" not in shown
    (path,) = folder.iterdir()
    assert cli.main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"][0]
    (theirs,) = study(wanted=[TINY.point("vdnn-all")])
    assert found["better"][0]["program"] == theirs["program"], "a setup of one's own is what it is made of"
    assert found["whole"]["fits"] == 3 and found["printed"]["points"] == 2 and found["better"][0]["batch"] == 32
    assert cli.main(["study", "challenge", "--submit", str(path), "--json"]) == 0
    (proved,) = json.loads(capsys.readouterr().out)
    assert proved["better"] and proved["program"] == found["better"][0]["program"]
    assert proved["seconds"] == found["better"][0]["seconds"] and proved["by"].endswith(":SETUP")


def test_a_program_that_compresses_is_entered_as_a_file(tmp_path: Path) -> None:
    case = TINY._replace(budget=5 << 20, best=BestKnown(1e9, "slow", ""))
    program = refimpl.plan(refimpl.networks.build(*case[:2]), "vdnnpp-all", *case[2:4])
    save(tmp_path, {case.point("vdnnpp-all"): case}, case.point("vdnnpp-all"), program)
    (path,) = tmp_path.iterdir()
    assert '"to store"' in path.read_text()
    assert prove(path, [case]) == (case, BestKnown(program.planned_seconds, "vdnnpp-all", fingerprint(program)))


def test_a_file_that_is_not_a_program_of_its_point(
    few: list[ChallengePoint], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["study", "challenge", "vdnn-all", "--jobs", "1", "--save", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*.json")
    whole = path.read_text()
    changes: list[tuple[Callable[[dict[str, Any]], object], str]] = [
        (lambda one: one.update(point=["tiny-vgg", 1, "titan-x", 5]), "a point that this set does not print"),
        (lambda one: one["program"].update(budget=1 << 40), "is a program for"),
        (lambda one: one["program"]["instructions"].pop(), "not safe"),
        (lambda one: one.update(format="x"), "is not an entry"),
    ]
    for change, says in changes:
        change(found := json.loads(whole))
        path.write_text(json.dumps(found))
        capsys.readouterr()
        assert cli.main(["study", "challenge", "--submit", str(path)]) == 2
        error = capsys.readouterr().err
        assert says in error and error.count("\n") == 1


def test_time_runs_out_once_and_no_alarm_is_left() -> None:
    """After a long call of C two looks are due: the second one must not come while the first is being handled."""
    due, before = list[float](), (signal.getitimer(signal.ITIMER_REAL)[1], signal.getsignal(signal.SIGALRM))

    def slow() -> Any:
        try:
            while True:
                pass
        finally:
            due.append(signal.getitimer(signal.ITIMER_REAL)[0])

    with raises_naming(EntryError, "0.05 seconds"):
        limited(slow, 0.05)
    assert due[0] > 0.5
    assert (signal.getitimer(signal.ITIMER_REAL)[1], signal.getsignal(signal.SIGALRM)) == before


def test_a_row_with_another_limit_or_folder_or_of_a_study_is_not_taken(
    few: list[ChallengePoint], tmp_path: Path
) -> None:
    """A longer limit may find a program; an old row has written no file; a study's row is not proved."""
    out, folder = tmp_path / "rows.jsonl", tmp_path / "better"
    study(wanted=[case.point("vdnn-all") for case in few], out=out)
    begun = len(read(out)[0])
    asked = ["study", "challenge", "vdnn-all", "--jobs", "1", "--out", str(out)]
    added = []
    for more in ([], [], ["--limit", "50"], ["--save", str(folder)]):
        assert cli.main([*asked, *more]) == 0
        added.append(len(read(out)[0]) - begun)
    points = added[0]
    assert points > 0 and added == [points, points, 2 * points, 3 * points] and len([*folder.glob("*.json")]) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [(["nonesuch"], "no preset 'nonesuch'"), (["--submit", "x", "vdnn-all"], "leave out"), (["--submit", "x"], "x")],
)
def test_wrong_use(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "challenge", *words]) == 2
    assert says in capsys.readouterr().err
