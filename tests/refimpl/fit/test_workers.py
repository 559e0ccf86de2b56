"""Work in several processes: a process that dies costs its own task, and an error comes back as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refimpl.fit.workers import MOST_KILLED, CannotBeSent, JobsError, WorkerKilled, WorkerTraceback, of_dead, results
from tests.messages import lacks, raises_naming

ROOT = Path(__file__).parents[3]


def square(task: int) -> int:
    """Tasks below 0 end their process, 13 is refused."""
    if task < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 13:
        raise FileNotFoundError(2, "no such task", "thirteen")
    return task * task


def test_one_process_goes_in_order() -> None:
    assert [*results(square, [3, 1, 2], 1)] == [(3, 9), (1, 1), (2, 4)]


@pytest.mark.slow
def test_a_process_that_is_killed_costs_its_task_alone() -> None:
    found: list[tuple[int, int]] = []
    with raises_naming(WorkerKilled, 1, "signal", 9, "task -1"):
        for one in results(square, [1, -1, 2, 3, 4, 5], 2, "task {}".format):
            found.append(one)
    assert sorted(found) == [(task, task * task) for task in (1, 2, 3, 4, 5)]


@pytest.mark.slow
def test_where_every_process_is_killed_an_end_is_made() -> None:
    with pytest.raises(WorkerKilled) as caught:
        [*results(square, [*range(-100, 0)], 2)]
    assert 2 * MOST_KILLED <= int(str(caught.value).split()[0]) <= 2 * MOST_KILLED + 1  # two were at work


@pytest.mark.slow
def test_processes_that_die_here_and_there_leave_no_other_task_undone() -> None:
    """A study with more points that kill than that would else stop at the same ones each time."""
    tasks = [task if task % 2 else -task for task in range(20, 40)]
    found: list[tuple[int, int]] = []
    with raises_naming(WorkerKilled, len(tasks) // 2, "task -20"):
        for one in results(square, tasks, 2, "task {}".format):
            found.append(one)
    assert sorted(found) == [(task, task * task) for task in tasks if task > 0]


def test_many_dead_processes_are_one_short_line() -> None:
    text = of_dead([f"point {number}" for number in range(200)], [-9] * 200)
    assert lacks(text, 200, "signal 9", "point 0", "197 more") == [] and len(text) < 150


@pytest.mark.parametrize("jobs", [0, -1])
def test_no_process_is_refused(jobs: int) -> None:
    with raises_naming(JobsError, jobs):
        [*results(square, [1], jobs)]


@pytest.mark.slow
def test_an_error_comes_back_as_it_was_and_is_no_death() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        [*results(square, [1, 13], 2)]
    assert caught.value.filename == "thirteen" and isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in square" in str(caught.value.__cause__)


def test_work_of_a_function_inside_a_function_stays_here() -> None:
    with raises_naming(CannotBeSent, "--jobs"):
        [*results(lambda task: task, [1, 2], 2)]


@pytest.mark.slow
def test_a_script_that_plans_while_it_is_imported_is_told_where_to(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text('import refimpl\nrefimpl.study(["lenet"], ["baseline", "vdnn-all"], batches=[2], jobs=2)\n')
    ran = subprocess.run([sys.executable, script], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert ran.returncode == 1 and lacks(ran.stderr.decode().splitlines()[-1], "__main__") == []
    assert ran.stderr.count(b"Traceback") == 1  # that of the script itself, and none of its processes
