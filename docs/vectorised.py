"""Loops that LLVM vectorises on a CPU, each in a small kernel: `python docs/vectorised.py` prints the table."""

from __future__ import annotations

import os
import time

import numpy as np

from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Floats, Kernel, bind, kernel, launch
from kernels.targets.shim import cuda

ELEMENTS = 1 << 18
AREA = 49  #: values of a map, in `divided`
ZERO = np.float32(0)


@kernel(block=256)
def neighbours(x: Floats, y: Floats, n: int) -> None:
    """Neighbouring threads have neighbouring elements."""
    i = cuda.grid(1)
    if i < n:
        y[np.uint32(i)] = x[np.uint32(i)] * np.float32(2)


@kernel(block=256)
def selected(x: Floats, y: Floats, n: int) -> None:
    """A condition chooses between two values."""
    i = cuda.grid(1)
    if i < n:
        y[np.uint32(i)] = x[np.uint32(i)] if x[np.uint32(i)] > ZERO else ZERO


@kernel(block=256)
def across(x: Floats, y: Floats, n: int) -> None:
    """A thread's sixteen values are far apart, so that those of neighbouring threads are neighbours; one sum each."""
    i = cuda.grid(1)
    total = ZERO
    for j in range(16):
        total += x[np.uint32(i + j * 16384)]
    y[np.uint32(i)] = total


@kernel(block=256)
def along(x: Floats, y: Floats, n: int) -> None:
    """A thread's sixteen values are side by side; the order of a sum is fixed."""
    i = cuda.grid(1)
    total = ZERO
    for j in range(16):
        total += x[np.uint32(i * 16 + j)]
    y[np.uint32(i)] = total


@kernel(block=256)
def search(x: Floats, y: Floats, n: int) -> None:
    """A loop whose end depends on what is read."""
    i = cuda.grid(1)
    here = np.uint32(i * 16)
    stop = np.uint32(here + 16)
    while here < stop and x[here] < np.float32(9):
        here = np.uint32(here + 1)
    y[np.uint32(i)] = np.float32(here)


@kernel(block=256)
def divided(x: Floats, y: Floats, n: int, area: int) -> None:
    """A place that is found by dividing, as a channel's is; LLVM cannot know that neighbours have the same."""
    i = cuda.grid(1)
    if i < n:
        y[np.uint32(i)] = x[np.uint32(np.uint32(i) // np.uint32(area))]


@kernel(block=256)
def multiplied(x: Floats, y: Floats, n: int, area: int) -> None:
    """The same by `kernels.fast.division`: a multiplication and a shift."""
    i = cuda.grid(1)
    if i < n:
        y[np.uint32(i)] = x[np.uint32(divide(i, area))]


KERNELS = (neighbours, selected, across, along, search, divided, multiplied)
FEW = (across, along, search)  #: a thread has sixteen elements


def nanoseconds(measured: Kernel) -> float:
    """Of one element, on one core; the least of some turns of processor time."""
    x, y = np.ones(ELEMENTS, np.float32), np.ones(ELEMENTS, np.float32)
    more = {divided: [AREA], multiplied: [reciprocal(AREA)]}.get(measured, [])
    blocks = ELEMENTS // (256 * 16 if measured in FEW else 256)
    (bound,) = bind(launch, measured, blocks, x, y, ELEMENTS, *more)
    bound.run(None)  # compiles
    least = np.inf
    for _ in range(30):
        start = time.process_time()
        for _ in range(5):
            bound.run(None)
        least = min(least, (time.process_time() - start) / 5)
    return 1e9 * float(least) / ELEMENTS


def table() -> list[str]:
    """A row a kernel, Markdown."""
    rows = [f"| `{one.name}` | {one.function.__doc__} | {nanoseconds(one):.2f} |" for one in KERNELS]
    return ["| kernel | what | ns an element |", "| --- | --- | --- |", *rows]


if __name__ == "__main__":
    os.environ["REFIMPL_THREADS"] = "1"
    print("\n".join(table()))
