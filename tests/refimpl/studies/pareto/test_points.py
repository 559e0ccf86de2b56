"""Points in a file and in processes; what is read off the curves."""

from __future__ import annotations

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
from refimpl.points.many_plans import read
from refimpl.studies.optimum.setups import Named, of_papers
from refimpl.studies.pareto import points as pareto
from refimpl.studies.pareto.points import (
    BOUND,
    COMBINED,
    Curve,
    ParetoCase,
    Points,
    Task,
    best,
    budgets_between,
    distance,
    gain,
    with_smaller,
)
from tests.messages import lacks

SETUPS = {name: Named("paper", name, setup(name)) for name in ("vdnn-all", "superneurons")}
CASE = ParetoCase("lenet", 64, MACHINES["titan-x"], SETUPS, 5.0, 60, 1)
TASKS = [Task(name, budget) for name in (*SETUPS, BOUND, COMBINED) for budget in (9 << 20, 12 << 20)]
TASKS += [Task(name, None) for name in SETUPS]


def run(path: Path, tasks: list[Task] = TASKS, jobs: int = 1) -> Points:
    return pareto.solve(CASE, tasks, jobs, path)


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
    assert kept.count(b"\n") == 3 and solved == TASKS[:3]
    path.write_bytes(kept + b'{"key": "94')  # killed while it wrote
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
    assert read(tmp_path / "two")[0] == read(tmp_path / "one")[0]


def test_points_of_another_case_stay_in_the_file(tmp_path: Path) -> None:
    other = ParetoCase("lenet", 32, MACHINES["titan-x"], SETUPS, 5.0, 60, 1)
    run(tmp_path / "points", TASKS[:1])
    pareto.solve(other, TASKS[:1], 1, tmp_path / "points")
    assert [one["batch"] for one in read(tmp_path / "points")[0].values()] == [64, 32]


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
