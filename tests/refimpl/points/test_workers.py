"""Work by an executor: a process that dies costs its own task, an error comes back as it was, and MPI does it, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refimpl.importing import own_code
from refimpl.points import workers
from refimpl.points.workers import CannotBeSent, WorkerKilled, of_dead, results, sendable
from tests.messages import lacks, raises_naming
from tests.refimpl.backend.processes import MPIEXEC, needs_mpi

ROOT = Path(__file__).parents[3]


class TwoParts(Exception):
    """An error that no text makes again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}, {second}")


def square(task: int) -> int:
    """Tasks below 0 end their process, 13 and 14 are refused."""
    if task < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 13:
        raise FileNotFoundError(2, "no such task", "thirteen")
    if task == 14:
        raise TwoParts("fourteen", "is even")
    return task * task


def test_one_process_goes_in_order() -> None:
    assert [*results(square, [3, 1, 2], 1)] == [(3, 9), (1, 1), (2, 4)]


def test_any_executor_does_each_task_once() -> None:
    with ThreadPoolExecutor(3) as executor:
        assert sorted(results(square, [3, 1, 2], executor)) == [(1, 1), (2, 4), (3, 9)]
        with raises_naming(FileNotFoundError, "thirteen"):
            [*results(square, [1, 13], executor)]
        with raises_naming(RuntimeError, "TwoParts", "fourteen"):
            [*results(square, [1, 14], executor)]
        assert [*results(square, [5], executor)] == [(5, 25)], "it is its owner's"


def test_work_of_a_function_inside_a_function_stays_here() -> None:
    with raises_naming(CannotBeSent, "--jobs"):
        [*results(lambda task: task, [1, 2], 2)]


@pytest.mark.slow
def test_processes_of_this_machine() -> None:
    """A killed one costs its task alone; and Ctrl-C is heard here again."""
    found: list[tuple[int, int]] = []
    with raises_naming(WorkerKilled, 1, "task -1"):
        for one in results(square, [1, -1, 2, 3, 4, 5], 2, "task {}".format):
            found.append(one)
    assert sorted(found) == [(task, task * task) for task in (1, 2, 3, 4, 5)]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.slow
def test_a_script_that_plans_while_it_is_imported_is_told_where_to(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("from refimpl.points.workers import results\n[*results(abs, [1, 2], 2)]\n")
    ran = subprocess.run([sys.executable, script], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert ran.returncode == 1 and lacks(ran.stderr.decode().splitlines()[-1], "__main__") == []
    assert ran.stderr.count(b"Traceback") == 1  # that of the script itself, and none of its processes


@needs_mpi
@pytest.mark.slow
def test_a_study_by_two_ranks_has_the_rows_of_one_process(tmp_path: Path) -> None:
    """The page's file: the first rank writes the rows, the other one plans."""
    command = [str(MPIEXEC), "-n", "2", sys.executable, "-m", "mpi4py.futures", str(ROOT / "docs/trial/by_mpi.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    lines = (tmp_path / "by_mpi.jsonl").read_text().splitlines()
    assert len(lines) == len(ran.stdout.splitlines()) == 8 and "tiny-vgg vdnn-dyn least: " in ran.stdout


# -- a pool that breaks, without processes -----------------------------------------------------------------------------


class Breaks(Executor):
    """Does a task when it is submitted; one below 0 breaks it, as a process that dies breaks a pool."""

    def __init__(self) -> None:
        self.broken = False

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        if self.broken:
            raise BrokenProcessPool
        future: Future[Any] = Future()
        self.broken = given[-1] < 0
        if self.broken:
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result(work(*given))
        return future


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of processes of each pool that was made."""
    made: list[int] = []

    @contextmanager
    def pool(jobs: int) -> Iterator[Executor]:
        made.append(jobs)
        yield Breaks()

    monkeypatch.setattr(workers, "pool", pool)
    return made


def test_deaths_here_and_there_leave_no_other_task_undone(pools: list[int]) -> None:
    """A study with more points that kill than `MOST_KILLED` would else stop at the same ones each time."""
    tasks = [task if task % 2 else -task for task in range(20, 40)]
    found: list[tuple[int, int]] = []
    with raises_naming(WorkerKilled, len(tasks) // 2, "task -20"):
        for one in results(square, tasks, 2, "task {}".format):
            found.append(one)
    assert sorted(found) == [(task, task * task) for task in tasks if task > 0]
    assert pools[0] == 2 and 1 in pools, "those that a broken pool was at are done one by one"


def test_many_dead_processes_are_one_line() -> None:
    assert lacks(of_dead([f"point {number}" for number in range(200)]), 200, "point 0", "197 more") == []


@pytest.mark.parametrize("beginning", [True, False])
def test_a_process_that_is_only_beginning_starts_no_others(beginning: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "current_process", lambda: SimpleNamespace(_inheriting=beginning))
    if beginning:
        with pytest.raises(SystemExit):
            [*results(square, [2], 2)]
    else:
        workers.refuse_inside_of_a_start()


def test_an_error_of_the_users_own_code_is_one_of_ours_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ValueError("mine")
    assert sendable(own) is own
    monkeypatch.setattr(own_code, "line_of", lambda error: "mine.py, line 7")
    found = sendable(own)
    assert isinstance(found, own_code.OwnCodeError) and not lacks(str(found), "mine.py", 7, "ValueError", "mine")
