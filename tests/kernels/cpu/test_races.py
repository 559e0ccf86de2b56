"""Checked mode finds what threads must not do: races, missed barriers, indices outside, unwritten memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.targets import cpu
from kernels.targets.cpu.checked import CheckFailed
from kernels.targets.launch import Floats, Kernel, device, kernel, launch
from kernels.targets.shim import cuda
from tests.kernels.cpu.sample_kernels import ORDERS, diverging, off_by, transpose_and_scale
from tests.messages import raises_naming


@kernel(block=32)
def turns_round_in_place(x: Floats) -> None:
    t = cuda.threadIdx.x
    x[t] = x[31 - t]


@kernel(block=32)
def reads_unwritten(y: Floats) -> None:
    a = cuda.local.array(4, np.float32)
    a[0] = np.float32(1)
    y[cuda.threadIdx.x] = a[0] + a[1]


def test_threads_that_wait_at_different_barriers_are_named() -> None:
    x = np.zeros(32, np.float32)
    threads = ("(0, 0, 0)", "(7, 0, 0)")
    with cpu.checked(), raises_naming(CheckFailed, *threads):
        launch(diverging, 1, x, 7)
    with cpu.checked():
        launch(diverging, 1, x, 32)  # all threads agree: nothing to complain about


def test_a_race_in_memory_shows_in_the_order_of_threads() -> None:
    results = []
    for order in ("forward", "reverse"):
        x = np.arange(32, dtype=np.float32)
        with cpu.checked(order):
            launch(turns_round_in_place, 1, x)
        results.append(x)
    forward, reverse = results
    assert not np.array_equal(forward, reverse)


def test_unwritten_local_memory_is_nan() -> None:
    y = np.zeros(32, np.float32)
    with cpu.checked():
        launch(reads_unwritten, 1, y)
    assert np.isnan(y).all()


@pytest.mark.parametrize(("distance", "index"), [(5, 32), (-1, -1)])
def test_an_index_outside_is_named(distance: int, index: int) -> None:
    with cpu.checked(), raises_naming(CheckFailed, "off_by", "x[i + distance]", index):
        launch(off_by, 1, np.zeros(32, np.float32), distance)


def test_an_unknown_order_is_refused() -> None:
    with raises_naming(ValueError, "backwards"), cpu.checked("backwards"):
        pass


@kernel(block=8)
def no_barrier_at_the_end_of_a_loop(x: Floats, y: Floats, n: int) -> None:
    part = cuda.shared.array(8, np.float32)
    t = cuda.threadIdx.x
    total = np.float32(0)
    for first in range(0, n, 8):
        part[t] = x[first + t]
        cuda.syncthreads()
        total += part[7 - t]
    y[t] = total


@kernel(block=8)
def no_barrier_before_a_loop(x: Floats, y: Floats, n: int) -> None:
    part = cuda.shared.array(8, np.float32)
    t = cuda.threadIdx.x
    part[t] = x[t]
    half = 4
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        y[0] = part[0]


@kernel(block=8)
def adds_to_what_others_read(x: Floats, y: Floats, n: int) -> None:
    part = cuda.shared.array(8, np.float32)
    t = cuda.threadIdx.x
    part[t] = x[t]
    cuda.syncthreads()
    y[t] = part[0]
    part[7 - t] += np.float32(1)


@kernel(block=8)
def all_write_the_same_slot(x: Floats, y: Floats, n: int) -> None:
    slot = cuda.shared.array(1, np.float32)
    slot[0] = x[cuda.threadIdx.x]
    y[cuda.threadIdx.x] = np.float32(n)


@device
def from_half_way(values: Any, t: int) -> Any:
    return values[t // 2]


@device
def twice(factor: Any, values: Any, t: int) -> Any:
    return factor * from_half_way(values, t)


@kernel(block=8)
def helper_reads_too_early(x: Floats, y: Floats, n: int) -> None:
    part = cuda.shared.array(8, np.float32)
    t = cuda.threadIdx.x
    part[t] = twice(np.float32(2), x, t)
    y[t] = twice(np.float32(2), part, t)
    cuda.syncthreads()


@kernel(block=8)
def helper_reads_in_time(x: Floats, y: Floats, n: int) -> None:
    part = cuda.shared.array(8, np.float32)
    t = cuda.threadIdx.x
    part[t] = twice(np.float32(2), x, t)
    cuda.syncthreads()
    y[t] = twice(np.float32(2), values=part, t=t)


@kernel(block=8)
def each_its_own_slot(x: Floats, y: Floats, n: int) -> None:
    slot = cuda.shared.array(8, np.float32)
    t = cuda.threadIdx.x
    slot[t] = x[cuda.grid(1)]
    slot[t] += np.float32(1)
    y[cuda.grid(1)] = slot[t]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (no_barrier_at_the_end_of_a_loop, "part[t]: thread (0, 0, 0) writes what thread (7, 0, 0) read"),
        (no_barrier_before_a_loop, "part[t + half]: thread (0, 0, 0) reads what thread (4, 0, 0) wrote"),
        (adds_to_what_others_read, "part[7 - t]: thread (7, 0, 0) writes what thread (0, 0, 0) read"),
        (all_write_the_same_slot, "slot[0]: thread (1, 0, 0) writes what thread (0, 0, 0) wrote"),
        (helper_reads_too_early, "values[t // 2]: thread (1, 0, 0) reads what thread (0, 0, 0) wrote"),
    ],
)
def test_a_race_is_named_with_both_threads(made: Kernel, found: str) -> None:
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    with cpu.checked(), pytest.raises(CheckFailed) as failure:
        launch(made, 2, x, y, 24)
    complaint = re.fullmatch(r"kernel (\w+), line (\d+): (.*)", str(failure.value))
    assert complaint is not None
    name, line, said = complaint.groups()
    assert name == made.name
    assert said == f"{found}, with no barrier between them; block (0, 0, 0)"
    assert found.split(":")[0] in Path(__file__).read_text().splitlines()[int(line) - 1]
    for order in ("reverse", 11):
        with cpu.checked(order), raises_naming(CheckFailed, "(0, 0, 0)"):
            launch(made, 2, x, y, 24)


def test_every_block_begins_anew() -> None:
    """The same slots and the same threads in each block: nothing of one block is held against the next."""
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    for order in ORDERS:
        with cpu.checked(order):
            launch(each_its_own_slot, 4, x, y, 32)
        np.testing.assert_array_equal(y, x + 1)


def test_what_a_barrier_separates_is_no_race() -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for order in ORDERS:
        with cpu.checked(order):
            launch(helper_reads_in_time, 1, x, y, 8)
        np.testing.assert_array_equal(y, 4 * x[np.arange(8) // 4])
    matrix, turned = np.arange(7 * 13, dtype=np.float32).reshape(7, 13), np.zeros((13, 7), np.float32)
    with cpu.checked():
        launch(transpose_and_scale, (2, 2), matrix, turned, 7, 13, 0.5)
    np.testing.assert_array_equal(turned, matrix.T * np.float32(0.5) + 1)


@kernel(block=8)
def second_name(x: Floats) -> None:
    part = cuda.shared.array(8, np.float32)
    other = part
    other[cuda.threadIdx.x] = x[cuda.threadIdx.x]


def test_a_shared_array_with_two_names_is_refused() -> None:
    with (
        cpu.checked(),
        raises_naming(cpu.UnsupportedKernel, "other[threadIdx_x]"),
    ):
        launch(second_name, 1, np.zeros(8, np.float32))
