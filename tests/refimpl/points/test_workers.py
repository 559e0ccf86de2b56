"""Work in several processes: a process that dies costs its own task, and an error comes back as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refimpl.importing import own_code
from refimpl.points import workers
from refimpl.points.workers import (
    MOST_KILLED,
    NO_MAIN,
    CannotBeSent,
    JobsError,
    WorkerKilled,
    WorkerTraceback,
    of_dead,
    results,
    sendable,
)
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


# -- with threads in place of processes --------------------------------------------------------------------------------


class Killed(BaseException):
    """Ends a thread as a signal ends a process: with a status, and no answer."""


class TwoParts(Exception):
    """An error that no text makes again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}, {second}")


class Instead:
    """A thread in place of a process."""

    made: list[Instead]

    def __init__(self, target: Any, args: tuple[Any, ...], daemon: bool) -> None:
        assert daemon  # it ends with this process
        self.exitcode: int | None = None
        self.ended_early = False
        self.target, self.args = target, args
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.made.append(self)

    def start(self) -> None:
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])  # the process never hears Ctrl-C
        pipe, *others = self.args
        self.args = (Connection(os.dup(pipe.fileno())), *others)
        self.thread.start()

    def _run(self) -> None:
        self.exitcode = 0
        try:
            self.target(*self.args)
        except Killed as error:
            self.exitcode = error.args[0]
        finally:
            self.args[0].close()

    def join(self) -> None:
        self.thread.join(20)

    def terminate(self) -> None:
        self.ended_early = True


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> list[Instead]:
    """The threads that were started."""
    made: list[Instead] = []
    monkeypatch.setattr(Instead, "made", made, raising=False)
    monkeypatch.setattr(workers, "get_context", lambda way: SimpleNamespace(Process=Instead, way=way))
    monkeypatch.setattr(workers, "resource_tracker", SimpleNamespace(ensure_running=lambda: None))
    return made


def half(task: int) -> int:
    """Odd tasks fail, each in its own way; tasks from 100 on end their process with a status of their own."""
    if task == 99:
        raise Killed(NO_MAIN)
    if task >= 100:
        raise Killed(100 - task)
    if task == 1:
        raise FileNotFoundError(2, "no such task", "one")
    if task == 3:
        raise TwoParts("three", "is odd")
    if task == 5:
        sys.exit("five is odd")
    return task // 2


@pytest.mark.parametrize(("jobs", "started"), [(2, 2), (3, 3), (9, 6)])
def test_each_task_is_done_once_by_as_many_as_there_are(jobs: int, started: int, instead: list[Instead]) -> None:
    tasks = [*range(0, 12, 2)]
    assert sorted(results(half, tasks, jobs)) == [(task, task // 2) for task in tasks]
    for one in instead:
        one.join()
    assert len(instead) == started and [one.exitcode for one in instead] == [0] * started
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_who_stops_early_ends_the_others(instead: list[Instead]) -> None:
    found = results(half, [*range(0, 40, 2)], 2)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert any(one.ended_early for one in instead)


@pytest.mark.parametrize(
    ("task", "error", "parts"),
    [(1, FileNotFoundError, ("one",)), (3, RuntimeError, ("TwoParts", "three")), (5, SystemExit, ("five",))],
)
def test_an_error_is_raised_here_with_its_traceback_there(
    task: int, error: type[BaseException], parts: tuple[str, ...], instead: list[Instead]
) -> None:
    with raises_naming(error, *parts) as caught:
        [*results(half, [2, task, 4], 2)]
    assert isinstance(caught.value.__cause__, WorkerTraceback) and "in half" in str(caught.value.__cause__)


def test_a_death_costs_its_task_alone(instead: list[Instead]) -> None:
    found: list[tuple[int, int]] = []
    with raises_naming(WorkerKilled, 1, "signal", 9, "task 109"):
        for one in results(half, [2, 109, 4, 6, 8], 2, "task {}".format):
            found.append(one)
    assert sorted(found) == [(2, 1), (4, 2), (6, 3), (8, 4)]
    assert len(instead) <= 3  # at most one takes its place


def test_where_all_die_an_end_is_made(instead: list[Instead]) -> None:
    with raises_naming(WorkerKilled, "signal", 1) as caught:
        [*results(half, [101] * 100, 2)]
    assert lacks(str(caught.value), 2 * MOST_KILLED) == [] or lacks(str(caught.value), 2 * MOST_KILLED + 1) == []


def test_deaths_between_results_leave_no_other_task_undone(instead: list[Instead]) -> None:
    tasks = [task for even in range(0, 40, 2) for task in (even, 101)]
    found: list[tuple[int, int]] = []
    with raises_naming(WorkerKilled, 20):
        for one in results(half, tasks, 2):
            found.append(one)
    assert sorted(found) == [(even, even // 2) for even in range(0, 40, 2)]


def test_a_script_that_begins_processes_itself_ends_all_at_the_first_one(instead: list[Instead]) -> None:
    with raises_naming(WorkerKilled, "__main__"):
        [*results(half, [99] * 100, 2)]
    assert len(instead) <= 3


@pytest.mark.parametrize("beginning", [True, False])
def test_a_process_that_is_only_beginning_starts_no_others(beginning: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "current_process", lambda: SimpleNamespace(_inheriting=beginning))
    if beginning:
        with pytest.raises(SystemExit) as caught:
            [*results(half, [2], 2)]
        assert caught.value.code == NO_MAIN
    else:
        workers.refuse_inside_of_a_start()


def test_an_error_of_the_users_own_code_is_one_of_ours_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ValueError("mine")
    assert sendable(own) is own
    monkeypatch.setattr(own_code, "line_of", lambda error: "mine.py, line 7")
    found = sendable(own)
    assert isinstance(found, own_code.OwnCodeError) and not lacks(str(found), "mine.py", 7, "ValueError", "mine")
