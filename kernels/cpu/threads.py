"""Step 5: a grid's blocks shared out over the processor's cores.

Generated code releases Python's global lock, so plain threads do.  Blocks do not depend on each other, so who runs
which changes nothing in the result.    REFIMPL_THREADS=N   how many (default: the cores this process may use)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count

CHUNKS_PER_THREAD = 4  #: more even out unequal blocks, fewer cost less
MOST_THREADS = 1024


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


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, thread_count() - 1), thread_name_prefix="kernels")


def run_blocks(run: Callable[[int, int], None], blocks: int) -> None:
    """run(first, last) over all blocks, in chunks that the threads take as they become free."""
    threads = min(thread_count(), blocks)
    if threads == 1:
        run(0, blocks)
        return
    chunk = -(-blocks // (threads * CHUNKS_PER_THREAD))
    ticket = count(0, chunk)  # next() is atomic under the global lock

    def work() -> None:
        while (first := next(ticket)) < blocks:
            run(first, min(first + chunk, blocks))

    others = [_pool().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        for other in others:
            other.result()
