"""One piece of work after another, by any executor of `concurrent.futures`, each result as soon as it is there.

An executor is a number of processes of this machine, or one that is given: `mpi4py.futures.MPIPoolExecutor` or Dask's
`client.get_executor()`, where the work outgrows one machine.  Results do not depend on it.  A user's own modules are
imported by each process.  A process of this machine that is killed costs the task that it was at: the end says which
tasks have no result.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import current_process, get_context, parent_process, resource_tracker
from pathlib import Path
from typing import Any, TypeVar

from refimpl.importing import own_code
from refimpl.text import RefimplError, counted

Task = TypeVar("Task")
Result = TypeVar("Result")
MOST_KILLED = 6  #: processes in a row, and no result between them: no other task is begun then
MOST_NAMED = 3  #: tasks in an error


class WorkerKilled(RefimplError):
    """Processes that worked have died: which tasks have no result."""


class CannotBeSent(RefimplError, ValueError):
    """Work that only this process can do."""


class JobsError(RefimplError, ValueError):
    """Fewer than one process."""


def results(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int | Executor, name: Callable[[Task], str] = str
) -> Iterator[tuple[Task, Result]]:
    """Each task with what `work` makes of it: in order by this process alone, else as they are done.

    Where the caller stops, the processes are ended.

    Args:
        work: it is pickled once; what it keeps from one task to the next is each process's own.
        tasks: these are pickled, too.
        jobs: processes (1: this one), or an executor, which its owner shuts down.
        name: of a task, for people.

    Raises:
        WorkerKilled: after all other results: processes died, and their tasks have none.
        CannotBeSent: `work` has something of a class inside a function.
        JobsError: `jobs` is less than 1.
    """
    if isinstance(jobs, Executor):
        yield from done_by(jobs, packed(work), deque(tasks), len(tasks), {})
    elif jobs < 1:
        raise JobsError(f"jobs is {jobs}; give 1 or more processes")
    elif jobs == 1:
        yield from ((task, work(task)) for task in tasks)
    else:
        refuse_inside_of_a_start()
        yield from done_by_processes(packed(work), deque(tasks), jobs, name)


def done_by(
    executor: Executor, given: bytes, waiting: deque[Task], most: int, busy: dict[Future[Any], Task]
) -> Iterator[tuple[Task, Any]]:
    """The tasks that wait, `most` of them at once; `busy` says which ones an executor that breaks was at."""
    try:
        while busy or waiting:
            while waiting and len(busy) < most:
                with deaf_children():
                    busy[executor.submit(one, given, dict(own_code.known), waiting[0])] = waiting[0]
                waiting.popleft()
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                result = future.result()
                yield busy.pop(future), result
    finally:
        for future in busy:
            future.cancel()


def done_by_processes(
    given: bytes, waiting: deque[Task], jobs: int, name: Callable[[Task], str]
) -> Iterator[tuple[Task, Any]]:
    """A pool breaks when a process dies; the tasks that it was at are then done one by one, each by a pool of one."""
    suspects: deque[Task] = deque()
    dead: list[Task] = []
    in_a_row = 0  #: deaths
    while suspects or (waiting and in_a_row < MOST_KILLED):
        alone, busy = bool(suspects), dict[Future[Any], Task]()
        own = deque([suspects.popleft()]) if alone else waiting
        with pool(1 if alone else jobs) as executor:
            try:
                for task, result in done_by(executor, given, own, jobs, busy):
                    in_a_row = 0
                    yield task, result
            except BrokenProcessPool:
                (dead if alone else suspects).extend(busy.values())
                in_a_row += alone
    if dead:
        raise WorkerKilled(of_dead([name(task) for task in dead]))


@contextmanager
def pool(jobs: int) -> Iterator[Executor]:
    """Processes of this machine; who leaves early ends them."""
    executor = ProcessPoolExecutor(jobs, get_context("spawn"), end_with_parent)
    started: dict[int, Any] = executor._processes  # type: ignore[assignment]
    try:
        yield executor
    except BaseException:
        for process in [*started.values()]:
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def of_dead(names: Sequence[str]) -> str:
    """Error text for processes that died: the tasks that they were at."""
    others = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"{counted(len(names), 'worker process')} died at {'; '.join(names[:MOST_NAMED])}{others}: memory was short, "
        'or a script plans in parallel outside of if __name__ == "__main__":'
    )


def packed(work: object) -> bytes:
    """The work for other processes."""
    try:
        return pickle.dumps(work)
    except Exception as error:  # of many classes: some module of the user's own is of a class inside a function
        raise CannotBeSent(
            f"a setup cannot go to other processes; give --jobs 1: {own_code.error_line(error)}"
        ) from None


def refuse_inside_of_a_start() -> None:
    """End a process that is only beginning: it executes the user's script, which asks for processes at once."""
    if getattr(current_process(), "_inheriting", False):
        sys.exit(1)


@contextmanager
def deaf_children() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal: those started here never hear it, and this one does at the end."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # multiprocessing's own process, whose start unblocks signals
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


# -- in one of the processes -------------------------------------------------------------------------------------------


def end_with_parent() -> None:
    """End this process when the one that has started it is killed: it would wait for tasks for ever."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def one(given: bytes, known: Mapping[str, Path], task: Any) -> Any:
    """What the work makes of a task."""
    own_code.known.update(known)
    try:
        return unpacked(given)(task)
    except (Exception, SystemExit) as error:
        sent = sendable(error)
        if sent is error:
            raise
        raise sent from error


@lru_cache(maxsize=1)
def unpacked(given: bytes) -> Callable[[Any], Any]:
    work: Callable[[Any], Any] = pickle.loads(given)
    return work


def sendable(error: BaseException) -> BaseException:
    """An error that another process can raise: of a user's own code there is one of ours with its line."""
    if own_code.raised(error):
        return own_code.OwnCodeError(own_code.error_line(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of many classes: it takes other arguments than its text
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
