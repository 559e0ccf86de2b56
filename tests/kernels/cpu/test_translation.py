"""A kernel's source becomes loops over its threads, which do what CUDA's threads would; or it is refused."""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.targets import cpu
from kernels.targets.collector import collector_paused
from kernels.targets.cpu import barriers, source
from kernels.targets.cpu.processor import lanes as lanes_here
from kernels.targets.cpu.vocabulary import source_tree
from kernels.targets.launch import REGISTRY, Floats, Ints, Kernel, kernel, launch
from kernels.targets.shim import cuda
from tests.kernels.cpu.as_generators import run_as_generators
from tests.kernels.cpu.sample_kernels import ORDERS, block_sums, diverging, transpose_and_scale
from tests.messages import raises_naming


@kernel(block=32)
def early_return(x: Floats, y: Ints, n: int) -> None:
    i = cuda.grid(1)
    if i >= n:
        return
    y[i] = np.int32(math.floor(x[i]))


@kernel(block=32)
def high_half(x: Ints, y: Ints) -> None:
    i = cuda.grid(1)
    product = np.uint64(np.uint32(x[i])) * np.uint64(np.uint32(0xD2511F53))
    y[i] = np.int32(np.uint32(product >> np.uint64(32)))


def test_transpose_with_barrier_matches_numpy_and_the_twin() -> None:
    x = np.arange(7 * 13, dtype=np.float32).reshape(7, 13)
    y, twin = np.zeros((13, 7), np.float32), np.zeros((13, 7), np.float32)
    launch(transpose_and_scale, (2, 2), x, y, 7, 13, 0.5)
    np.testing.assert_array_equal(y, x.T * np.float32(0.5) + 1)
    run_as_generators(transpose_and_scale, (2, 2), x.ravel(), twin.ravel(), 7, 13, np.float32(0.5))
    np.testing.assert_array_equal(y, twin)


def test_block_sums_match_the_twin_in_every_order() -> None:
    x = np.arange(150, dtype=np.float32)
    expected, got = np.zeros(3, np.float32), np.zeros(3, np.float32)
    run_as_generators(block_sums, 3, x, expected, 150)
    launch(block_sums, 3, x, got, 150)
    np.testing.assert_array_equal(got, expected)
    for order in ORDERS:
        got[:] = 0
        with cpu.checked(order):
            launch(block_sums, 3, x, got, 150)
        np.testing.assert_array_equal(got, expected)


LOWEST = np.float32(-np.inf)


@kernel(block=8)
def awkward_names(first: Floats, order: Floats, b: int, report: int) -> None:
    thread = cuda.threadIdx.x
    at = cuda.shared.array(8, np.float32)
    turn = LOWEST
    at[thread] = first[thread]
    cuda.syncthreads()
    for stack in range(b):
        turn = max(turn, at[(thread + stack) % 8])
    order[thread] = turn + np.float32(report)


def test_a_kernel_may_use_any_name_and_infinity() -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for mode in (contextlib.nullcontext(), cpu.checked("reverse")):
        with mode:
            launch(awkward_names, 1, x, y, 2, 5)
        np.testing.assert_array_equal(y, [6, 7, 8, 9, 10, 11, 12, 12])


def test_the_garbage_collector_is_as_it_was_after_a_compilation() -> None:
    with pytest.raises(cpu.UnsupportedKernel):
        launch(diverging, 1, np.zeros(32, np.float32), 7)
    assert gc.isenabled()
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_return_ends_one_thread_only() -> None:
    x, y = np.linspace(-3, 3, 50, dtype=np.float32), np.full(50, -99, np.int32)
    launch(early_return, 2, x, y, 45)
    np.testing.assert_array_equal(y[:45], np.floor(x[:45]))
    assert (y[45:] == -99).all()


def test_integers_are_numbas_not_numpys() -> None:
    x, y = np.arange(64, dtype=np.int32) * 12345, np.zeros(64, np.int32)
    launch(high_half, 2, x, y)
    expected = (x.astype(np.uint64) * 0xD2511F53) >> 32
    np.testing.assert_array_equal(y.view(np.uint32), expected.astype(np.uint32))
    with cpu.checked():
        launch(high_half, 2, x, y)
    np.testing.assert_array_equal(y.view(np.uint32), expected.astype(np.uint32))


def test_the_fast_mode_refuses_a_barrier_that_threads_may_miss() -> None:
    with raises_naming(cpu.UnsupportedKernel, "t < n", "diverging"):
        launch(diverging, 1, np.zeros(32, np.float32), 7)


@kernel(block=32)
def returns_around_a_barrier(x: Floats, n: int) -> None:
    i = cuda.grid(1)
    if i >= n:
        return
    cuda.syncthreads()
    x[i] = np.float32(0)


@kernel(block=32)
def uses_atomics(x: Floats) -> None:
    cuda.atomic.add(x, 0, np.float32(1))


SETTINGS = {"size": 3}


@kernel(block=32)
def uses_a_dictionary(x: Floats) -> None:
    x[0] = np.float32(SETTINGS["size"])


@kernel(block=32)
def uses_a_name_of_the_compiler(x: Floats) -> None:
    _i = cuda.grid(1)
    x[_i] = np.float32(1)


_ONE = np.float32(1)


@kernel(block=32)
def uses_an_underscore_of_its_module(x: Floats) -> None:
    for _ in range(2):
        x[cuda.grid(1)] += _ONE


def test_an_underscore_is_refused_in_a_kernels_own_names_alone() -> None:
    x = np.zeros(32, np.float32)
    launch(uses_an_underscore_of_its_module, 1, x)
    assert (x == 2).all()


@kernel(block=32)
def gives_an_array_two_names(x: Floats) -> None:
    a = b = cuda.shared.array(32, np.float32)
    x[0] = a[0] + b[0]


@kernel(block=32)
def has_four_axes(x: Floats) -> None:
    x[cuda.grid(4)] = np.float32(1)


@kernel(block=32)
def uses_what_is_nowhere(x: Floats) -> None:
    x[0] = NOWHERE  # type: ignore[name-defined]  # noqa: F821


@kernel(block=32)
def loops_over_an_array_around_a_barrier(x: Floats) -> None:
    for value in x:
        cuda.syncthreads()
        x[cuda.threadIdx.x] = value


@kernel(block=32)
def waits_inside_a_try(x: Floats) -> None:
    try:
        cuda.syncthreads()
    finally:
        x[cuda.threadIdx.x] = np.float32(1)


@pytest.mark.parametrize(
    ("made", "args", "message"),
    [
        (uses_a_name_of_the_compiler, (np.zeros(32, np.float32),), "_i"),
        (returns_around_a_barrier, (np.zeros(32, np.float32), 3), "return if"),
        (uses_atomics, (np.zeros(32, np.float32),), "cuda.atomic.add"),
        (uses_a_dictionary, (np.zeros(32, np.float32),), "SETTINGS dict"),
        (gives_an_array_two_names, (np.zeros(32, np.float32),), "one name of its own"),
        (has_four_axes, (np.zeros(32, np.float32),), "cuda.grid takes 1, 2 or 3"),
        (uses_what_is_nowhere, (np.zeros(32, np.float32),), "NOWHERE is not defined"),
        (loops_over_an_array_around_a_barrier, (np.zeros(32, np.float32),), "a loop over a range"),
        (waits_inside_a_try, (np.zeros(32, np.float32),), "`if`, `while` and `for` only"),
    ],
)
def test_what_cannot_be_translated_is_said_with_its_line(made: Kernel, args: tuple[Any, ...], message: str) -> None:
    with raises_naming(cpu.UnsupportedKernel, made.name, *message.split()):
        launch(made, 1, *args)


@kernel(block=8)
def add_below(x: Floats, n: int) -> None:
    """A barrier, and then the threads below a bound that may be under 0 or above the block's size."""
    t = np.uint32(cuda.threadIdx.x)
    cuda.syncthreads()
    if t < n - 2:
        x[t] += np.float32(1)
    cuda.syncthreads()
    if t == 0:
        x[8] += np.float32(1)


@pytest.mark.parametrize("n", [-5, 2, 3, 9, 10, 11, 2**33])
def test_threads_below_a_bound(n: int) -> None:
    assert "range(min(8, np.int64(n - 2)))" in cpu.source_of(add_below)
    x = np.zeros(10, np.float32)
    launch(add_below, 1, x, n)
    assert x.tolist() == [float(i < n - 2) for i in range(8)] + [1.0, 0.0]


@pytest.mark.parametrize("lanes", [8, 16])
def test_a_row_of_accumulators_is_one_vector_where_a_register_is_as_long(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (source, barriers):
        monkeypatch.setattr(module, "lanes", lambda: lanes)
    for name, columns in (("gemm_register_2d", 8), ("gemm_vector_rows_nn_64", 16)):
        importlib.import_module("kernels.fast.gemm")  # which declares them
        text = cpu.source_of(REGISTRY[name])
        assert (f", a, b, 8, {columns})" in text) == ("_move(" in text.split("def _block")[1]) == (columns == lanes), (
            name
        )


LANES = lanes_here()


@kernel(block=1)
def rows_of_lanes(x: Floats, counts: Ints, y: Floats) -> None:
    """Rows that overlap in memory, one of whole numbers, and the upper half of a row added to its lower half."""
    a = cuda.local.array((3, LANES), np.float32)
    for j in range(LANES):
        a[0, j] = x[np.uint32(1 + j)]
    for j in range(LANES):
        a[1, j] = x[np.uint32(2 + j)]
    for j in range(LANES):
        a[2, j] = counts[np.uint32(3 + j)]
    for j in range(4):
        a[1, j] += a[1, j + 4]
    for i in range(3):
        for j in range(LANES):
            y[i * LANES + j] = a[i, j]


def test_rows_are_read_and_folded_as_vectors_if_they_are_of_one_type() -> None:
    text = cpu.source_of(rows_of_lanes)
    assert text.count("_move(a, x, ") == 2
    assert "_folded(a, 1 * " in text
    assert "_move(a, counts, " not in text  # it would take the bits of whole numbers for those of others
    x, counts, y = np.arange(40, dtype=np.float32), np.arange(40, dtype=np.int32), np.zeros(3 * LANES, np.float32)
    launch(rows_of_lanes, 1, x, counts, y)
    folded = [*(x[2:6] + x[6:10]), *x[6 : 2 + LANES]]
    assert y.tolist() == [*x[1 : 1 + LANES], *folded, *counts[3 : 3 + LANES]]


def test_the_documentation_shows_what_is_generated() -> None:
    text = cpu.source_of(block_sums)
    body = text[text.index("    part = _stack") : text.index("y[blockIdx_x] = part[0]")]
    assert body in (Path(__file__).parents[3] / "docs" / "without-a-gpu.md").read_text(encoding="utf-8")


@kernel(block=(4, 2))
def knows_its_block(x: Ints) -> None:
    column, row = cuda.grid(2)
    wide, high = cuda.gridsize(2)
    x[row * wide + column] = 100 * cuda.blockDim.x + 10 * cuda.blockDim.y + cuda.blockDim.z + 1000 * high


def test_a_block_and_a_grid_have_their_sizes_on_each_axis() -> None:
    x = np.zeros(8 * 6, np.int32)
    launch(knows_its_block, (2, 3), x)
    assert (x == 6 * 1000 + 4 * 100 + 2 * 10 + 1).all()


def test_a_function_without_a_source_or_a_definition_is_no_kernel() -> None:
    with raises_naming(cpu.UnsupportedKernel, "the source of nowhere cannot be found", "notebook"):
        made: dict[str, Any] = {}
        exec("def nowhere(x): pass", made)
        source_tree(made["nowhere"])
    with raises_naming(cpu.UnsupportedKernel, "is not a plain function"):
        source_tree(lambda x: x)
