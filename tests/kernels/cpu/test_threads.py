"""Launches on the CPU: the blocks are shared out over its threads, and each runs once."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.targets.cpu import threads
from kernels.targets.launch import launch
from tests.kernels.cpu.sample_kernels import block_sums, make_filler
from tests.messages import raises_naming


def helped_by(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    helpers = threads.Helpers(count)
    monkeypatch.setattr(threads, "_helpers", lambda: helpers)
    monkeypatch.setattr(threads, "thread_count", lambda: count + 1)


def run_in_python(run: Callable[[int, int], None], blocks: int, columns: int = 0) -> None:
    """A launch whose loop over blocks is run(first, end)."""
    c_function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    loop = c_function(lambda _work, first, end: run(first, end))
    address = ctypes.cast(loop, ctypes.c_void_p).value
    assert address is not None
    threads.run_blocks(threads.packed(address, (blocks, 1, 1), [], columns))


def test_every_block_runs_once_from_several_threads_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python threads launch at the same time, with more helpers than cores."""
    helped_by(monkeypatch, 4)
    ones = np.ones(64 * 40, np.float32)

    def sums(times: int) -> bool:
        y = np.zeros(40, np.float32)
        for _ in range(times):
            y[:] = 0
            launch(block_sums, 40, ones, y, ones.size)
            if y.tolist() != [64.0] * 40:
                return False
        return True

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(sums, [100] * 6))


def test_a_thread_runs_its_own_share_when_none_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    helped_by(monkeypatch, 1)
    pace, launcher, own = threading.Barrier(2, timeout=60), threading.get_ident(), {}

    def run(first: int, end: int) -> None:
        pace.wait()  # a chunk of each at a time: both threads take as long
        own.update(dict.fromkeys(range(first, end), threading.get_ident() == launcher))

    for _ in range(3):
        run_in_python(run, 100)
        assert [own[block] for block in range(100)] == [True] * 50 + [False] * 50
        own.clear()
    run_in_python(run, 24, columns=8)
    assert [own[block] for block in range(24)] == 3 * ([True] * 4 + [False] * 4)
    own.clear()
    run_in_python(run, 30, columns=8)  # these are no matrix
    assert [own[block] for block in range(30)] == [True] * 15 + [False] * 15


def test_a_late_threads_share_is_run_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    helped_by(monkeypatch, 1)
    launcher, rest_is_done = threading.get_ident(), threading.Event()
    ran: list[int] = []

    def run(first: int, end: int) -> None:
        if threading.get_ident() != launcher:
            assert rest_is_done.wait(60)  # with its first chunk
        ran.extend(range(first, end))
        if len(ran) >= 97:  # all but a chunk
            rest_is_done.set()

    run_in_python(run, 100)
    assert sorted(ran) == list(range(100))
    monkeypatch.setattr(threads.Helpers, "wake", lambda *_: None)
    time.sleep(0.05)  # the helper is asleep, and nothing wakes it
    run_in_python(run, 100)
    assert sorted(ran[100:]) == list(range(100))


def test_an_array_that_cannot_be_written_is_refused() -> None:
    x = np.zeros(32, np.float32)
    x.flags.writeable = False
    with raises_naming(KernelError, "read-only"):
        launch(make_filler(1), 1, x)


def test_a_wrong_number_of_threads_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("x", "0", "-1", "1.5", "9" * 400, "1" + "0" * 5000, "0" * 5000 + "1", "²"):
        monkeypatch.setenv("REFIMPL_THREADS", text)
        with raises_naming(threads.ThreadsError, "REFIMPL_THREADS", 1, 1024):
            threads.thread_count.__wrapped__()
    monkeypatch.setenv("REFIMPL_THREADS", "3")
    assert threads.thread_count.__wrapped__() == 3
