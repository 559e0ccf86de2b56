"""Step 5: a grid's blocks shared out over the processor's cores.

Blocks do not depend on each other, so who runs which changes nothing in the result.  How a launch is shared out, and
why each thread has a share of its own, says `sharing`: once a kernel runs, no thread needs Python's global lock.

    REFIMPL_THREADS=N   how many (default: the cores this process may use)

A launch may take 10 µs, and waking a thread that sleeps takes 30 to 50.  So a thread without work looks out for the
next launch for a while before it sleeps, and a launch does not wait for threads that have not begun when it is done.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError
from kernels.targets.cpu.build import load_source
from kernels.targets.declare import Dim3

MOST_THREADS = 1024
LOOKS = 4096  #: at a number in memory before a thread sleeps: about 100 µs
NAP = 1e-4  #: seconds


class ThreadsError(KernelError):
    """REFIMPL_THREADS is not a number of threads."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def thread_count() -> int:
    """Threads that kernels run on: REFIMPL_THREADS, or one a core."""
    wanted = os.environ.get("REFIMPL_THREADS") or str(cores())
    if not (re.fullmatch("[0-9]{1,9}", wanted) and 1 <= int(wanted) <= MOST_THREADS):
        raise ThreadsError(f"REFIMPL_THREADS is {wanted[:40]!r}; give a whole number from 1 to {MOST_THREADS}")
    return int(wanted)


class Helpers:
    """Threads that run shares of launches: those that `sharing` puts into their mailboxes."""

    def __init__(self, count: int) -> None:
        self.sharing = _sharing()
        self.mailboxes = np.zeros(count * self.sharing.LINE, np.int64)
        self._woken = [threading.Semaphore(0) for _ in range(count)]
        for number in range(count):
            threading.Thread(target=self._serve, args=(number,), name="kernels", daemon=True).start()

    def _serve(self, number: int) -> None:
        while True:
            self.sharing.serve(self.mailboxes, number, LOOKS)
            self._woken[number].acquire()

    def wake(self, launch: np.ndarray) -> None:
        """Those that were asleep when they were offered a share."""
        offers = launch.reshape(-1, self.sharing.LINE)[2:, self.sharing.OFFERED]
        for woken, offered in zip(self._woken, offers, strict=False):  # a small launch has fewer shares
            if offered == 1 + self.sharing.ASLEEP:
                woken.release()

    def finish(self, launch: np.ndarray) -> None:
        """Run this thread's share, and wait for the helpers that have begun."""
        try:
            while not self.sharing.finish(self.mailboxes, launch, LOOKS):
                time.sleep(NAP)
        except BaseException:  # Ctrl-C: afterwards the arrays may be freed
            self.finish(launch)
            raise


@cache
def _sharing() -> Any:
    return load_source(Path(__file__).with_name("sharing.py"))


@cache
def _helpers() -> Helpers:
    return Helpers(thread_count() - 1)


def packed(run: int, grid: Dim3, values: Sequence[Any], columns: int = 0) -> np.ndarray:
    """A launch as generated code reads it.

    Args:
        run: the address of the generated loop over blocks.
        grid: blocks in each dimension.
        values: the arguments, as `Kernel.values` returns them; the arrays must be alive when it runs.
        columns: see `kernels.targets.launch.launch`.
    """
    blocks = prod(grid)
    if columns < thread_count() or blocks % columns > 0:
        columns = blocks
    numbers = [run, blocks, columns, *grid]
    for value in values:
        if isinstance(value, np.ndarray):
            if not value.flags.writeable:
                raise KernelError("an array that a kernel is given is read-only; copy it first")
            numbers += value.ctypes.data, *value.shape
        elif isinstance(value, tuple):
            numbers += value
        else:
            numbers.append(int(value.view(np.int32)) if isinstance(value, np.float32) else value)
    return np.array(numbers, np.int64)


def run_blocks(work: np.ndarray) -> None:
    """All blocks of a launch that `packed` has put together."""
    sharing = _sharing()
    shares = min(thread_count(), int(work[sharing.BLOCKS]))
    if shares == 1:
        sharing.run_alone(work)
        return
    helpers, launch = _helpers(), np.zeros((1 + shares) * sharing.LINE, np.int64)
    try:
        if sharing.offer(helpers.mailboxes, launch, work, shares):
            helpers.wake(launch)
    finally:
        helpers.finish(launch)
