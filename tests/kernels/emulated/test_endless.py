"""Kernels that would not end, or would take the process with them: a limit of steps, signals, and recursion."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kernels.targets import emulated, gpu
from kernels.targets.shim import cuda
from tests.kernels.emulated.test_checks import found

pytestmark = pytest.mark.emulated

USUAL = 1 << 30


@pytest.fixture(autouse=True)
def unsearched() -> Iterator[None]:
    emulated.start(races="never")
    yield
    emulated.forgive()
    emulated.order("late")
    emulated.most_steps(USUAL)
    emulated.start(races="first")


def zeros(size: int = 64) -> Any:
    return gpu.to_device(np.zeros(size, np.float32))


def endless(x: Any) -> None:
    i = cuda.grid(1)
    while x[0] >= 0:
        x[i] += 1


def spin(x: Any) -> None:
    if cuda.threadIdx.x == 0:
        while cuda.atomic.add(x, 1, 0) == 0:
            pass
    else:
        cuda.atomic.add(x, 1, 1)


def barriers(x: Any) -> None:
    while x[0] >= 0:
        cuda.syncthreads()


@pytest.mark.parametrize("function", [endless, spin, barriers])
def test_a_loop_without_an_end_is_stopped_and_named(function: Any) -> None:
    emulated.most_steps(100_000)
    (finding,) = found(cuda.jit(function), 2, 64, zeros())
    line = function.__code__.co_firstlineno + 2
    assert finding.startswith(f"kernel {function.__name__}, emulated/test_endless.py:")
    assert abs(int(finding.split(":")[1]) - line) <= 1
    assert "100000 steps of one thread" in finding and "REFIMPL_STEPS" in finding


def test_as_many_steps_as_there_may_be_are_not_too_many() -> None:
    def count(x: Any, n: int) -> None:
        for _ in range(n):
            x[cuda.grid(1)] += 1

    function = cuda.jit(count)
    emulated.most_steps(5_000)
    x = zeros()
    assert found(function, 2, 32, x, 4_000) == [] and gpu.to_host(x).tolist() == [4_000] * 64
    assert len(found(function, 2, 32, zeros(), 40_000)) == 1


@pytest.mark.parametrize("order", ["late", "early", "free"])
def test_ctrl_c_stops_a_kernel_in_any_order(order: str) -> None:
    x, function = zeros(), cuda.jit(endless)
    function.compile((cuda.types.Array(cuda.types.float32, 1, "C"),))
    emulated.order(order)
    was = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            function[1, 32](x)
            gpu.synchronize()
            pytest.fail("the kernel has ended")
    finally:
        signal.signal(signal.SIGALRM, was)
    emulated.forgive()
    assert gpu.to_host(x)[1:].tolist() == [0] * 63  # the GPU can be used again


def test_a_handler_that_raises_nothing_lets_the_kernel_go_on() -> None:
    heard: list[int] = []
    emulated.most_steps(USUAL)  # seconds, so that the alarm comes meanwhile
    function, x = cuda.jit(endless), zeros()
    function.compile((cuda.types.Array(cuda.types.float32, 1, "C"),))
    was = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        (finding,) = found(function, 1, 32, x)
    finally:
        signal.signal(signal.SIGALRM, was)
    assert "steps of one thread" in finding and heard == [signal.SIGALRM]


@cuda.jit(device=True)
def total(n: int) -> int:
    a = cuda.local.array(2, np.int64)
    a[0], a[n & 1] = 0, n
    if n <= 0:
        return 0
    below = total(n - 1)
    return below + a[n & 1]


def sums(x: Any, n: int) -> None:
    i = cuda.grid(1)
    x[i] = total(n + i)


def test_recursion_computes_and_too_deep_recursion_is_found() -> None:
    """Each call has local arrays of its own."""
    function, x = cuda.jit(sums), zeros()
    assert found(function, 2, 32, x, 5) == []
    assert gpu.to_host(x).tolist() == [sum(range(5 + i + 1)) for i in range(64)]
    (finding,) = found(function, 2, 32, x, 100_000)
    assert "calls itself more than 128 deep" in finding


@pytest.mark.parametrize("text", ["0", "-3", "many", "1.5", str(1 << 60), "9" * 5000])
def test_a_limit_that_is_no_number_of_steps_is_refused(text: str) -> None:
    with pytest.raises(emulated.EmulationError, match="REFIMPL_STEPS is"):
        emulated.most_steps(text)
