"""One piece of work after another, in several processes, each result as soon as it is there.

Results do not depend on the number of processes.  A user's own modules are imported in each.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from multiprocessing import active_children, get_context, resource_tracker
from pathlib import Path
from typing import Any, TypeVar

from refimpl.network.imported import own_code
from refimpl.text import RefimplError

Task = TypeVar("Task")
Result = TypeVar("Result")


class WorkerKilled(RefimplError):
    """A process that worked was ended."""


class CannotBeSent(RefimplError, ValueError):
    """Work that only this process can do."""


def results(work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Result]]:
    """Each task with what `work` makes of it: in order by this process alone, else as they are done.

    Where the caller stops, the processes are ended.

    Args:
        work: it is pickled once; what it keeps from one task to the next is each process's own.
        tasks: these are pickled, too.
        jobs: processes; 1: this one.

    Raises:
        WorkerKilled: a process is gone.
        CannotBeSent: `work` has something of a class inside a function.
    """
    if jobs == 1:
        yield from ((task, work(task)) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), begin, (packed(work), own_code.known)) as pool:
        try:
            with deaf_children():
                waiting = {pool.submit(in_process, task): task for task in tasks}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException as error:
            for process in active_children():
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise WorkerKilled("a worker process was killed, perhaps because memory was short") from None
            raise


def packed(work: object) -> bytes:
    """The work for other processes."""
    try:
        return pickle.dumps(work)
    except Exception as error:  # of many classes: some module of the user's own is of a class inside a function
        raise CannotBeSent(
            f"a setup cannot go to other processes; give --jobs 1: {own_code.error_line(error)}"
        ) from None


@contextmanager
def deaf_children() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal: those started here never hear it, and this one does at the end."""
    resource_tracker.ensure_running()  # multiprocessing's own process, whose start unblocks signals
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


_here: list[Callable[[], Callable[[Any], Any]]] = []  # what unpacks the work of a process, once


def begin(given: bytes, known: Mapping[str, Path]) -> None:
    """A process begins; what goes wrong here would end it with a traceback, so nothing is done before a task."""
    own_code.known.update(known)

    @cache
    def work() -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = pickle.loads(given)
        return found

    _here.append(work)


def in_process(task: Any) -> Any:
    try:
        return _here[0]()(task)
    except (Exception, SystemExit) as error:  # of a class that this process alone may have
        if own_code.raised(error):
            raise own_code.OwnCodeError(own_code.error_line(error)) from None
        raise
