"""Points in a file and in processes; what is read off the curves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from refimpl.machine import MACHINES
from refimpl.names.presets import setup
from refimpl.network import Network
from refimpl.studies.optimum.setups import Named, of_papers
from refimpl.studies.pareto import points as pareto
from refimpl.studies.pareto.points import (
    BOUND,
    COMBINED,
    Curve,
    ParetoCase,
    Points,
    PointsError,
    Task,
    best,
    budgets_between,
    distance,
    gain,
    with_smaller,
)
from tests.messages import lacks, raises_naming

SETUPS = {name: Named("paper", name, setup(name)) for name in ("vdnn-all", "superneurons")}
CASE = ParetoCase("lenet", 64, MACHINES["titan-x"], SETUPS, 5.0, 60, 1)
TASKS = [Task(name, budget) for name in (*SETUPS, BOUND, COMBINED) for budget in (9 << 20, 12 << 20)]
TASKS += [Task(name, None) for name in SETUPS]


def run(path: Path, tasks: list[Task] = TASKS, jobs: int = 1) -> Points:
    with pareto.kept(path, CASE) as (points, keep):
        pareto.solve(CASE, tasks, points, jobs, keep)
        return points


@pytest.mark.slow
def test_points_that_are_done_are_not_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, solve, solved = tmp_path / "points", ParetoCase.solve, list[Task]()

    def watched(case: ParetoCase, network: Network, task: Task) -> float | None:
        if len(solved) == 3:
            raise KeyboardInterrupt
        solved.append(task)
        return solve(case, network, task)

    monkeypatch.setattr(ParetoCase, "solve", watched)
    with pytest.raises(KeyboardInterrupt):
        run(path)
    kept = path.read_bytes()
    assert kept.count(b"\n") == 4 and solved == TASKS[:3]
    path.write_bytes(kept + b'["bound", 94')  # killed while it wrote
    solved[:] = []

    def noted(case: ParetoCase, network: Any, task: Any) -> Any:
        solved.append(task)
        return solve(case, network, task)

    monkeypatch.setattr(ParetoCase, "solve", noted)
    points = run(path)
    assert solved == TASKS[3:] and {*points} == {*TASKS}
    assert run(path) == points and solved == TASKS[3:]
    assert path.read_bytes().startswith(kept)


@pytest.mark.slow
def test_processes_side_by_side_find_the_same(tmp_path: Path) -> None:
    assert run(tmp_path / "two", jobs=2) == run(tmp_path / "one")
    assert sorted((tmp_path / "two").read_text().splitlines()) == sorted((tmp_path / "one").read_text().splitlines())


GOOD = json.dumps(CASE.header()) + "\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"\xff\xfe", ""),
        (b"no line", ""),
        (b"neither this nor that\n", ""),
        (b"[" * 100_000 + b"\n", ""),
        (b"[]\n", ""),
        (GOOD.replace("lenet", "vgg16").encode(), ""),
        (GOOD.replace("64,", "32,").replace("cudnn4", "own").encode(), ""),
        (GOOD.encode() + b"{}\n", "2"),
        (GOOD.encode() + b'["vdnn-all", 1024, 0.5]\n["vdnn-all", 1024, -1]\n', "3"),
        (GOOD.encode() + b'["vdnn-all", 1024, NaN]\n', "2"),
        (GOOD.encode() + b'["vdnn-all", 1024, true]\n', "2"),
        (GOOD.encode() + b'["vdnn-all", "1024", 1]\n', "2"),
    ],
)
def test_a_file_that_is_none_is_one_line_and_stays_as_it_is(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "points"
    path.write_bytes(text)
    with raises_naming(PointsError, path, *says.split()):
        run(path)
    assert path.read_bytes() == text


def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    (tmp_path / "points").touch()
    assert len(run(tmp_path / "points", TASKS[:1])) == 1
    assert len(run(tmp_path / "points", TASKS[:2])) == 2


def test_budgets_are_geometric_steps_with_both_ends() -> None:
    found = budgets_between(1000, 8000, 4)
    assert found == [1000, 2000, 4000, 8000]
    assert budgets_between(1000, 900, 4) == [1000]


def curves(*seconds: list[float | None]) -> list[Curve]:
    return [Curve("paper", "setup", one) for one in seconds]


def test_gain_and_distance_count_where_something_is_left_to_gain() -> None:
    one, two, own = curves([None, 4.0, 2.0, 1.0], [None, 3.0, 2.5, 1.5], [5.0, 1.5, 2.0, 1.0])
    assert best([one, two]).seconds == [None, 3.0, 2.0, 1.0]
    found = gain(own, [one, two], floor=1.0)
    assert found is not None and (found.open, found.better, found.worse) == (2, 1, 0)
    assert found.largest == 2.0 and found.mean == pytest.approx(2**0.5)
    assert gain(own, curves([1.0, 1.0, 1.0, None]), floor=1.0) is None
    assert distance(own, Curve("", BOUND, [4.0, 1.5, None, 1.0]), floor=1.0) == pytest.approx((1.25 + 1) / 2)
    assert distance(own, Curve("", BOUND, [None] * 4), floor=1.0) is None


def test_a_program_for_less_memory_counts_where_there_is_more() -> None:
    found = with_smaller(Curve("paper", "setup", [None, 3.0, 4.0, None, 2.0, 2.5]))
    assert found == Curve("paper", "setup", [None, 3.0, 3.0, 3.0, 2.0, 2.0])


def test_the_papers_setups_have_names_of_their_own() -> None:
    found = of_papers()
    assert len(found) > 50 and {named.paper for named in found.values()} > {"vDNN", "vDNN++", "SuperNeurons", "AccUDNN"}
    assert len({named.setup for named in found.values()}) == len(found)


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_leaves_no_process(tmp_path: Path) -> None:
    out = tmp_path / "points"
    command = [
        sys.executable, "-m", "refimpl", "pareto", "vgg16", "--machine", "titan-x", "--jobs", "2", "--out", str(out),
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until = time.monotonic() + 60
    while time.monotonic() < until and not (out.exists() and out.read_bytes().count(b"\n") > 3):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    until = time.monotonic() + 60
    assert process.returncode == 130 and err.count("\n") == 1
    assert lacks(err, out) == []
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(process.pid, 0)
            time.sleep(0.1)
