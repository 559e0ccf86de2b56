"""Step 5: a grid's blocks shared out over the processor's cores.

Generated code releases Python's global lock, so plain threads do.  Blocks do not depend on each other, so who runs
which changes nothing in the result.    REFIMPL_THREADS=N   how many (default: the cores this process may use)

A launch may take 10 µs, and waking a thread that sleeps takes 30 to 50.  So a thread without work looks out for the
next launch for a while before it sleeps, and a launch does not wait for threads that have not begun when it is done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from kernels.cpu.build import load_source

CHUNKS_PER_THREAD = 4  #: more even out unequal blocks, fewer cost less
MOST_THREADS = 1024
LOOKS = 4096  #: at a counter before a thread sleeps: about 100 µs


class ThreadsError(ValueError):
    """REFIMPL_THREADS is not a number of threads."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def thread_count() -> int:
    """Threads that kernels run on: REFIMPL_THREADS, or one a core."""
    wanted = os.environ.get("REFIMPL_THREADS") or str(cores())
    if not (wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:9]) <= MOST_THREADS):
        raise ThreadsError(f"REFIMPL_THREADS is {wanted[:40]!r}; give a whole number from 1 to {MOST_THREADS}")
    return int(wanted)


class Task:
    """What a helper does for a launch, unless the launch is over before it begins."""

    def __init__(self, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._run, self._arguments = run, arguments
        self._begins = count()  # next() is atomic under the global lock: the first who asks gets 0
        self._done = np.zeros(1, np.int64)
        self._ended = threading.Lock()
        self._ended.acquire()
        self._error: BaseException | None = None

    def run(self) -> None:
        if next(self._begins) > 0:
            return
        try:
            self._run(*self._arguments)
        except BaseException as error:
            self._error = error
        self._done[0] = 1
        self._ended.release()

    def join(self) -> None:
        """Wait until it has ended, or see to it that it does not begin."""
        if next(self._begins) > 0:
            _spinning().reaches(self._done, 1, LOOKS)
            self._ended.acquire()
            if self._error is not None:
                raise self._error


class Helper:
    """A thread that runs tasks, one after another."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._given = np.zeros(1, np.int64)  #: not 0: look into the queue
        threading.Thread(target=self._serve, name="kernels", daemon=True).start()

    def give(self, task: Task) -> None:
        self._tasks.put(task)
        self._given[0] = 1

    def _serve(self) -> None:
        reaches = _spinning().reaches
        while True:
            self._given[0] = 0
            if self._tasks.empty():
                reaches(self._given, 1, LOOKS)
            self._tasks.get().run()


@cache
def _spinning() -> Any:
    return load_source(Path(__file__).with_name("spinning.py"))


@cache
def _helpers() -> list[Helper]:
    return [Helper() for _ in range(thread_count() - 1)]


def run_blocks(run: Callable[..., None], blocks: int, *arguments: Any) -> None:
    """All blocks of a launch, in chunks that the threads take as they become free: run(ticket, chunk, blocks, …)."""
    threads = min(thread_count(), blocks)
    if threads == 1:
        run_alone(run, blocks, *arguments)
        return
    given = np.zeros(1, np.int64), -(-blocks // (threads * CHUNKS_PER_THREAD)), blocks, *arguments
    tasks = [Task(run, given) for _ in range(threads - 1)]
    for helper, task in zip(_helpers(), tasks, strict=False):
        helper.give(task)
    try:
        run(*given)
    finally:
        for task in tasks:
            task.join()


def run_alone(run: Callable[..., None], blocks: int, *arguments: Any) -> None:
    """All blocks on this thread, one after another."""
    run(np.zeros(1, np.int64), blocks, blocks, *arguments)
