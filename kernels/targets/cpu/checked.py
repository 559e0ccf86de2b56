"""Checked mode: the same kernels, run slowly and suspiciously.

    with cpu.checked(order="reverse"):
        gemm.gemm(a, b, c, algorithm="tiled")

Inside, every launch on the CPU runs code generated with these differences:

- every index is checked, and a negative one is an error: the message names the line, the block and the thread;
- shared and local memory and saved variables start as NaN (integers as garbage), so that what was never written shows;
- every element of a shared array has a *shadow* that remembers which threads read and wrote it, and in which epoch;
  only cuda.syncthreads() begins a new epoch.  Two threads of a block that touch an element in the same epoch, one of
  them to write, are a *race*: a barrier is missing, whatever the order of the threads, and the message names both;
- the block's threads run forward, reversed or shuffled between two barriers: this is for races that have no shadow,
  those in the arrays that a kernel is given, where a result that depends on the order gives them away;
- every thread evaluates the conditions around a barrier: if they differ, some threads would wait where others never
  come, and the message names two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from kernels.targets.cpu import runtime
from kernels.targets.cpu.build import load
from kernels.targets.declare import Dim3, Kernel

RACES = {
    runtime.READS_WRITTEN: ("reads", "wrote"),
    runtime.WRITES_WRITTEN: ("writes", "wrote"),
    runtime.WRITES_READ: ("writes", "read"),
}  #: what the thread does, and what the other one did before it


class CheckFailed(AssertionError):
    """A kernel did something that a GPU would not have forgiven, or would have hidden."""


@dataclass(frozen=True)
class Mode:
    """`order`: "forward", "reverse", or a number that seeds a shuffle of the block's threads."""

    order: str | int

    def threads(self, count: int) -> Any:
        if self.order == "forward":
            return np.arange(count)
        if self.order == "reverse":
            return np.arange(count)[::-1].copy()
        if isinstance(self.order, int):
            return np.random.default_rng(self.order).permutation(count)
        raise ValueError(f'order {self.order!r}: give "forward", "reverse" or a number that seeds a shuffle')

    def run(self, kernel: Kernel, grid: Dim3, values: Sequence[Any]) -> None:
        module, report = _load(kernel), np.zeros(runtime.REPORT_LENGTH, np.int64)
        try:
            module.run(0, prod(grid), *grid, *values, self.threads(kernel.threads), report)
        except (IndexError, RuntimeError):
            if report[runtime.KIND] == 0:
                raise
            raise CheckFailed(_message(kernel, module, [int(n) for n in report])) from None


def _message(kernel: Kernel, module: ModuleType, report: list[int]) -> str:
    line, text, axis = module.SITES[report[runtime.SITE]]
    place = f"kernel {kernel.name}, line {line}: {text}"
    block = tuple(report[runtime.BLOCK_X :])

    def thread(number: int) -> tuple[int, int, int]:
        x, y, _ = kernel.block
        return number % x, number // x % y, number // (x * y)

    if report[runtime.KIND] == runtime.AGREE:
        first, other = thread(report[runtime.THREAD]), thread(report[runtime.OTHER_THREAD])
        return f"{place}: threads {first} and {other} of block {block} disagree, so they wait at different barriers"
    if report[runtime.KIND] in RACES:
        does, did = RACES[report[runtime.KIND]]
        one, other = thread(report[runtime.THREAD]), thread(report[runtime.OTHER_THREAD])
        return f"{place}: thread {one} {does} what thread {other} {did}, with no barrier between them; block {block}"
    found, size = report[runtime.INDEX_FOUND], report[runtime.SIZE]
    where = f"block {block}, thread {thread(report[runtime.THREAD])}"
    return f"{place}: index {found} on axis {axis}, which has 0 … {size - 1}; {where}"


@cache
def _load(kernel: Kernel) -> ModuleType:
    return load(kernel, checked=True)


_mode: ContextVar[Mode | None] = ContextVar("checked", default=None)


def current_mode() -> Mode | None:
    return _mode.get()


@contextmanager
def checked(order: str | int = "forward") -> Iterator[None]:
    """Every launch on the CPU inside runs in checked mode, its blocks one after another on one core."""
    mode = Mode(order)
    mode.threads(1)
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)
