"""One piece of work after another, in several processes, each result as soon as it is there.

Results do not depend on the number of processes.  A user's own modules are imported in each.  A process that is
killed costs the task that it was at: another process takes its place, and the end says which tasks have no result.
"""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, current_process, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from refimpl.importing import own_code
from refimpl.text import RefimplError, counted

Task = TypeVar("Task")
Result = TypeVar("Result")
MOST_KILLED = 3  #: times as many processes as there are at once, and no result between them: no task is begun then
MOST_NAMED = 3  #: tasks in an error
NO_MAIN = 3  #: how a process ends that was to begin with a script which itself begins processes


class WorkerKilled(RefimplError):
    """Processes that worked have died: which tasks have no result."""


class WorkerTraceback(Exception):
    """The cause of an error that a process raised: its traceback there."""


class CannotBeSent(RefimplError, ValueError):
    """Work that only this process can do."""


class JobsError(RefimplError, ValueError):
    """Fewer than one process."""


def results(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, name: Callable[[Task], str] = str
) -> Iterator[tuple[Task, Result]]:
    """Each task with what `work` makes of it: in order by this process alone, else as they are done.

    Where the caller stops, the processes are ended.

    Args:
        work: it is pickled once; what it keeps from one task to the next is each process's own.
        tasks: these are pickled, too.
        jobs: processes; 1: this one.
        name: of a task, for people.

    Raises:
        WorkerKilled: after all other results: processes died, and their tasks have none.
        CannotBeSent: `work` has something of a class inside a function.
        JobsError: `jobs` is less than 1.
    """
    if jobs < 1:
        raise JobsError(f"jobs is {jobs}; give 1 or more processes")
    if jobs == 1:
        yield from ((task, work(task)) for task in tasks)
        return
    refuse_inside_of_a_start()
    given, waiting = packed(work), deque(tasks)
    busy: dict[Any, tuple[BaseProcess, Task]] = {}  # pipe → the process at its other end, and its task
    dead: list[tuple[Task, int]] = []
    in_a_row = 0  #: deaths

    def hand_out(pipe: Connection, process: BaseProcess) -> None:
        busy[pipe] = process, waiting.popleft()
        with suppress(OSError):  # it has died: reading from the pipe finds out
            pipe.send(busy[pipe][1])

    try:
        while busy or waiting:
            while waiting and len(busy) < jobs:
                hand_out(*started(given))
            ready: list[Any] = connection.wait([*busy])
            for pipe in ready:
                process, task = busy.pop(pipe)
                try:
                    result, error, lines = pipe.recv()
                except (EOFError, OSError):
                    process.join()
                    dead.append((task, process.exitcode or 0))
                    in_a_row += 1
                    if in_a_row == MOST_KILLED * jobs or process.exitcode == NO_MAIN:
                        waiting.clear()
                    continue
                in_a_row = 0
                if error is not None:
                    raise error from WorkerTraceback(lines)
                if waiting:
                    hand_out(pipe, process)
                else:
                    pipe.close()  # which ends the process
                yield task, result
    finally:
        for process, _ in busy.values():
            process.terminate()
    if dead:
        raise WorkerKilled(of_dead([name(task) for task, _ in dead], [status for _, status in dead]))


def of_dead(names: Sequence[str], statuses: Sequence[int]) -> str:
    """Error text for processes that died: the tasks that they were at, and how the first one ended."""
    if NO_MAIN in statuses:
        return 'no process can begin with this script; plan several in parallel below if __name__ == "__main__":'
    how = f"signal {-statuses[0]}, perhaps because memory was short" if statuses[0] < 0 else f"status {statuses[0]}"
    others = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{counted(len(names), 'worker process')} died ({how}) at {'; '.join(names[:MOST_NAMED])}{others}"


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
        sys.exit(NO_MAIN)


# -- one of the processes, seen from here ------------------------------------------------------------------------------


def started(given: bytes) -> tuple[Connection, BaseProcess]:
    """A process that waits for tasks at the other end of a pipe; its end is the pipe's."""
    here, there = connection.Pipe()
    process = get_context("spawn").Process(target=serve, args=(there, given, dict(own_code.known)), daemon=True)
    with deaf_children():
        process.start()
    there.close()
    return here, process


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


# -- and in it ---------------------------------------------------------------------------------------------------------


def serve(pipe: Connection, given: bytes, known: Mapping[str, Path]) -> None:
    """Do one task after another, until there are no more; the work is unpacked by the first."""
    own_code.known.update(known)
    work: list[Callable[[Any], Any]] = []
    with suppress(EOFError, OSError):  # the process that has asked is done, or gone
        while True:
            task = pipe.recv()
            try:
                work = work or [pickle.loads(given)]
                made = pickle.dumps((work[0](task), None, ""))
            except (Exception, SystemExit) as error:
                made = pickle.dumps((None, sendable(error), f"\n{traceback.format_exc()}"))
            pipe.send_bytes(made)


def sendable(error: BaseException) -> BaseException:
    """An error that another process can raise: of a user's own code there is one of ours with its line."""
    if own_code.raised(error):
        return own_code.OwnCodeError(own_code.error_line(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of many classes: it takes other arguments than its text
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
