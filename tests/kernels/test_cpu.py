"""The CPU compiler: its output does what CUDA's threads would, and checked mode finds what they must not do."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import dataclasses
import errno
import gc
import importlib
import inspect
import itertools
import linecache
import math
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numba.core.registry import cpu_target

from kernels import cpu
from kernels.arguments import KernelError
from kernels.collector import collector_paused
from kernels.cpu import barriers, build, runtime, source, threads
from kernels.cpu.checked import CheckFailed
from kernels.launch import REGISTRY, Floats, Ints, bind, ceil_div, device, kernel, launch
from kernels.shim import cuda

ORDERS = ("forward", "reverse", 11)


# ---- the slow, obvious twin: a thread is a Python generator, a barrier a yield -------------------------------------


def cuda_of_one_thread(made, grid, block, thread, shared):
    """What `cuda` means to one thread; indices are (z, y, x).  `shared` is the block's: the first thread makes it."""

    def dims(zyx):
        return types.SimpleNamespace(x=zyx[2], y=zyx[1], z=zyx[0])

    numbers = itertools.count()
    return types.SimpleNamespace(
        threadIdx=dims(thread),
        blockIdx=dims(block),
        gridDim=dims(grid),
        blockDim=dims(made.block[::-1]),
        grid=lambda _: block[2] * made.block[0] + thread[2],
        shared=types.SimpleNamespace(
            array=lambda shape, dtype, alignment=0: shared.setdefault(next(numbers), np.zeros(shape, dtype))
        ),
        local=types.SimpleNamespace(array=lambda shape, dtype, alignment=0: np.zeros(shape, dtype)),
    )


class BarriersToYields(ast.NodeTransformer):
    def visit_Expr(self, node):
        return ast.Expr(ast.Yield()) if ast.unparse(node) == "cuda.syncthreads()" else node


def run_as_generators(made, grid, *args):
    """Run a kernel as CUDA describes it, thread by thread; every barrier is met by all threads of the block."""
    tree = BarriersToYields().visit(ast.parse(textwrap.dedent(inspect.getsource(made.function))).body[0])
    tree.decorator_list, tree.body = [], [*tree.body, ast.Expr(ast.Yield())]
    code = compile(ast.fix_missing_locations(ast.Module([tree], [])), "<twin>", "exec")
    # helpers run as plain functions
    outside = {name: getattr(value, "py_func", value) for name, value in made.function.__globals__.items()}
    grid = (*grid, 1, 1)[:3][::-1] if isinstance(grid, tuple) else (1, 1, grid)
    for block in itertools.product(*map(range, grid)):
        shared, threads = {}, []
        for thread in itertools.product(*map(range, made.block[::-1])):
            namespace = {**outside, "cuda": cuda_of_one_thread(made, grid, block, thread, shared)}
            exec(code, namespace)
            threads.append(namespace[made.function.__name__](*args))
        ended = False
        while not ended:
            met = [next(thread, "end") for thread in threads]
            assert len(set(met)) == 1, "threads wait at different barriers"
            ended = met[0] == "end"


# ---- kernels to try it on ------------------------------------------------------------------------------------------

TILE = 8


@device
def scaled(value, factor):
    return value * factor + np.float32(1)


@kernel(block=(TILE, 4))
def transpose_and_scale(x: Floats, y: Floats, rows: int, columns: int, factor: float) -> None:
    tile = cuda.shared.array((4, TILE), np.float32, 16)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    row = cuda.blockIdx.y * 4 + ty
    column = cuda.blockIdx.x * TILE + tx
    if row < rows and column < columns:
        tile[ty, tx] = scaled(x[row * columns + column], factor)
    cuda.syncthreads()
    if row < rows and column < columns:
        y[column * rows + row] = tile[ty, tx]


@kernel(block=64)
def block_sums(x: Floats, y: Floats, n: int) -> None:
    part = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    part[t] = x[i] if i < n else np.float32(0)
    cuda.syncthreads()
    half = 32
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        y[cuda.blockIdx.x] = part[0]


@kernel(block=32)
def early_return(x: Floats, y: Ints, n: int) -> None:
    i = cuda.grid(1)
    if i >= n:
        return
    y[i] = np.int32(math.floor(x[i]))


@kernel(block=32)
def uniform_branch(x: Floats, y: Floats, n: int) -> None:
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    rounds = n
    if n > 2:
        rounds = 2
    while rounds > 0:
        s[t] = x[t]
        cuda.syncthreads()
        y[t] = s[31 - t] + np.float32(rounds)
        cuda.syncthreads()
        rounds -= 1


@kernel(block=32)
def diverging(x: Floats, n: int) -> None:
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if t < n:
        cuda.syncthreads()
        x[t] = s[31 - t]


@kernel(block=32)
def turns_round_in_place(x: Floats) -> None:
    t = cuda.threadIdx.x
    x[t] = x[31 - t]


@kernel(block=32)
def reads_unwritten(y: Floats) -> None:
    a = cuda.local.array(4, np.float32)
    a[0] = np.float32(1)
    y[cuda.threadIdx.x] = a[0] + a[1]


@kernel(block=32)
def off_by(x: Floats, distance: int) -> None:
    i = cuda.grid(1)
    x[i] = x[i + distance]


@kernel(block=32)
def high_half(x: Ints, y: Ints) -> None:
    i = cuda.grid(1)
    product = np.uint64(np.uint32(x[i])) * np.uint64(np.uint32(0xD2511F53))
    y[i] = np.int32(np.uint32(product >> np.uint64(32)))


def test_transpose_with_barrier_matches_numpy_and_the_twin():
    x = np.arange(7 * 13, dtype=np.float32).reshape(7, 13)
    y, twin = np.zeros((13, 7), np.float32), np.zeros((13, 7), np.float32)
    launch(transpose_and_scale, (2, 2), x, y, 7, 13, 0.5)
    np.testing.assert_array_equal(y, x.T * np.float32(0.5) + 1)
    run_as_generators(transpose_and_scale, (2, 2), x.ravel(), twin.ravel(), 7, 13, np.float32(0.5))
    np.testing.assert_array_equal(y, twin)


def test_block_sums_match_the_twin_in_every_order():
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


def test_a_branch_that_is_the_same_for_all_threads_may_decide_how_often_they_meet():
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    launch(uniform_branch, 1, x, y, 5)
    np.testing.assert_array_equal(y, x[::-1] + 1)


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


def test_a_kernel_may_use_any_name_and_infinity():
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for mode in (contextlib.nullcontext(), cpu.checked("reverse")):
        with mode:
            launch(awkward_names, 1, x, y, 2, 5)
        np.testing.assert_array_equal(y, [6, 7, 8, 9, 10, 11, 12, 12])


def test_types_are_inferred_only_where_a_variable_is_kept_across_a_barrier(monkeypatch):
    def infer(*_):
        raise AssertionError("types are inferred")

    monkeypatch.setattr(source, "infer_types", infer)
    cpu.source_of(block_sums)
    with pytest.raises(AssertionError, match="types are inferred"):
        cpu.source_of(block_sums, checked=True)  # every variable varies


def test_the_garbage_collector_is_as_it_was_after_a_compilation():
    with pytest.raises(cpu.UnsupportedKernel):
        launch(diverging, 1, np.zeros(32, np.float32), 7)
    assert gc.isenabled()
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_return_ends_one_thread_only():
    x, y = np.linspace(-3, 3, 50, dtype=np.float32), np.full(50, -99, np.int32)
    launch(early_return, 2, x, y, 45)
    np.testing.assert_array_equal(y[:45], np.floor(x[:45]))
    assert (y[45:] == -99).all()


def test_integers_are_numbas_not_numpys():
    x, y = np.arange(64, dtype=np.int32) * 12345, np.zeros(64, np.int32)
    launch(high_half, 2, x, y)
    expected = (x.astype(np.uint64) * 0xD2511F53) >> 32
    np.testing.assert_array_equal(y.view(np.uint32), expected.astype(np.uint32))
    with cpu.checked():
        launch(high_half, 2, x, y)
    np.testing.assert_array_equal(y.view(np.uint32), expected.astype(np.uint32))


# ---- drawn kernels: the cutter against the twin --------------------------------------------------------------------

STATEMENTS = {
    "vary": "v{a} = v{a} + np.float32(t * {n})",
    "mix": "v{a} = v{b} - v{a} * np.float32(0.5)",
    "uniform": "u = u + {n}",
    "use": "v{a} = v{a} + np.float32(u)",
    "local": "own[{a}] = own[{b}] + v{a}",
    "read": "v{b} = v{b} + own[{a}]",
    "scratch": "for i in range(3):\n    scratch[i] = v{a} + np.float32(i)\nv{b} = scratch[2] - scratch[0]",
    "when": "if t % 3 == {a}:\n    v{b} = np.float32({n})\n    w = t + {n}",
    "late": "v{a} = v{a} + np.float32(w)",
    "rest": "cuda.syncthreads()\nif t > {n}:\n    own[{a}] = own[{b}] + v{a}\ncuda.syncthreads()",
    "exchange": "s[t] = v{a}\ncuda.syncthreads()\nv{b} = v{b} + s[(t + {n}) % 12]\ncuda.syncthreads()",
}
BLOCKS = ["while", "for", "if"]


@st.composite
def programs(draw, depth: int = 2) -> str:
    """A few statements, some of them loops and branches around barriers; every value stays exact in float32."""
    parts = []
    for _ in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from([*STATEMENTS, *(BLOCKS if depth else [])]))
        numbers = {"a": draw(st.integers(0, 2)), "b": draw(st.integers(0, 2)), "n": draw(st.integers(1, 5))}
        if kind in STATEMENTS:
            parts.append(STATEMENTS[kind].format(**numbers))
            continue
        head = {
            "while": f"c{depth} = 0\nwhile c{depth} < n:\n    c{depth} = c{depth} + 1",
            "for": f"for k{depth} in range(0, n + {numbers['n']}, 2):\n    v0 = v0 + np.float32(k{depth})",
            "if": f"if u % 2 == {numbers['a'] % 2}:\n    u = u + 1",
        }[kind]
        body = draw(programs(depth - 1)) + "\n" + STATEMENTS["exchange"].format(**numbers)  # a barrier in every one
        parts.append(head + "\n" + textwrap.indent(body, "    "))
    return "\n".join(parts)


HEAD = """
def drawn(x: Floats, y: Floats, n: int) -> None:
    s = cuda.shared.array(12, np.float32)
    own = cuda.local.array(3, np.float32)
    scratch = cuda.local.array(3, np.float32)
    t = cuda.threadIdx.x
    i0 = cuda.blockIdx.x * 12 + t
    u = n
    w = 0
    v0 = x[i0]
    v1 = np.float32(t)
    v2 = np.float32(1)
    for i in range(3):
        own[i] = np.float32(i)
"""
TAIL = """
    y[i0] = v0 + v1 * np.float32(2) + v2 + own[0] - own[1] + own[2]
"""


# Each example compiles three times: few of them, and no shrinking.
FEW = settings(max_examples=4, phases=[Phase.explicit, Phase.reuse, Phase.generate])


@pytest.mark.slow
@FEW
@given(program=programs())
def test_drawn_kernels_do_what_their_threads_would(program):
    as_generators_would(program)


@pytest.mark.campaign
@settings(FEW, max_examples=500)
@given(program=programs())
def test_many_drawn_kernels_do_what_their_threads_would(program):
    as_generators_would(program)


def test_threads_that_rest_keep_their_local_arrays():
    """Some store into an array in one turn of a loop and read it in a later one, when others store."""
    as_generators_would("""
for k in range(0, 3):
    if t % 3 == k:
        for i in range(3):
            scratch[i] = v0 + np.float32(i)
    v1 = v1 + (scratch[k] if t % 3 <= k else np.float32(0))
    cuda.syncthreads()
    if t > 4:
        own[1] = own[1] + v1
    cuda.syncthreads()
""")


def test_a_parameter_that_a_kernel_assigns_to_is_a_variable_of_each_thread():
    """In one block as in the next; `n` is uniform until a thread's index is added to it."""
    for change in ("n = n + 2", "n = n + t"):
        as_generators_would(f"""
v0 = np.float32(n)
cuda.syncthreads()
{change}
cuda.syncthreads()
v1 = np.float32(n) + v0
""")


def as_generators_would(program):
    source = HEAD + textwrap.indent(program, "    ") + TAIL
    name = f"<drawn {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace = {"np": np, "cuda": cuda, "Floats": Floats, "__name__": "drawn"}
    exec(compile(source, name, "exec", dont_inherit=True), namespace)
    made = kernel(block=12)(namespace["drawn"])
    x = np.arange(24, dtype=np.float32)
    expected, got = np.zeros(24, np.float32), np.zeros(24, np.float32)
    with np.errstate(all="ignore"):
        run_as_generators(made, 2, x, expected, 3)
    launch(made, 2, x, got, 3)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    for order in ("forward", "reverse"):
        with cpu.checked(order):
            again = np.zeros(24, np.float32)
            launch(made, 2, x, again, 3)
        np.testing.assert_allclose(again, expected, rtol=1e-5)
    del REGISTRY["drawn"]


# ---- checked mode finds --------------------------------------------------------------------------------------------


def test_threads_that_wait_at_different_barriers_are_named():
    x = np.zeros(32, np.float32)
    threads = r"diverging, line \d+: t < n: threads \(0, 0, 0\) and \(7, 0, 0\)"
    with cpu.checked(), pytest.raises(CheckFailed, match=threads):
        launch(diverging, 1, x, 7)
    with cpu.checked():
        launch(diverging, 1, x, 32)  # all threads agree: nothing to complain about


def test_the_fast_mode_refuses_a_barrier_that_threads_may_miss():
    with pytest.raises(cpu.UnsupportedKernel, match=r"test_cpu.py:\d+: diverging: barrier under `t < n`"):
        launch(diverging, 1, np.zeros(32, np.float32), 7)


def test_a_race_in_memory_shows_in_the_order_of_threads():
    results = []
    for order in ("forward", "reverse"):
        x = np.arange(32, dtype=np.float32)
        with cpu.checked(order):
            launch(turns_round_in_place, 1, x)
        results.append(x)
    assert not np.array_equal(*results)


def test_unwritten_local_memory_is_nan():
    y = np.zeros(32, np.float32)
    with cpu.checked():
        launch(reads_unwritten, 1, y)
    assert np.isnan(y).all()


@pytest.mark.parametrize(("distance", "found"), [(5, "index 32 on axis 0"), (-1, "index -1 on axis 0")])
def test_an_index_outside_is_named(distance, found):
    with cpu.checked(), pytest.raises(CheckFailed, match=rf"off_by, line \d+: x\[i \+ distance\]: {found}.*thread"):
        launch(off_by, 1, np.zeros(32, np.float32), distance)


def test_an_unknown_order_is_refused():
    with pytest.raises(ValueError, match='give "forward", "reverse"'), cpu.checked("backwards"):
        pass


# ---- races in shared memory ----------------------------------------------------------------------------------------


@kernel(block=(8, 4))
def no_barrier_after_filling(x: Floats, y: Floats, n: int) -> None:
    tile = cuda.shared.array((4, 8), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    tile[ty, tx] = x[ty * 8 + tx]
    y[ty * 8 + tx] = tile[3 - ty, 7 - tx]
    cuda.syncthreads()


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
def from_half_way(values, t):
    return values[t // 2]


@device
def twice(factor, values, t):
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
        (no_barrier_after_filling, "tile[ty, tx]: thread (0, 2, 0) writes what thread (7, 1, 0) read"),
        (no_barrier_at_the_end_of_a_loop, "part[t]: thread (0, 0, 0) writes what thread (7, 0, 0) read"),
        (no_barrier_before_a_loop, "part[t + half]: thread (0, 0, 0) reads what thread (4, 0, 0) wrote"),
        (adds_to_what_others_read, "part[7 - t]: thread (7, 0, 0) writes what thread (0, 0, 0) read"),
        (all_write_the_same_slot, "slot[0]: thread (1, 0, 0) writes what thread (0, 0, 0) wrote"),
        (helper_reads_too_early, "values[t // 2]: thread (1, 0, 0) reads what thread (0, 0, 0) wrote"),
    ],
)
def test_a_race_is_named_with_both_threads(made, found):
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    with cpu.checked(), pytest.raises(CheckFailed) as failure:
        launch(made, 2, x, y, 24)
    complaint = re.fullmatch(r"kernel (\w+), line (\d+): (.*)", str(failure.value))
    name, line, said = complaint.groups()
    assert name == made.name
    assert said == f"{found}, with no barrier between them; block (0, 0, 0)"
    assert found.split(":")[0] in Path(__file__).read_text().splitlines()[int(line) - 1]
    for order in ("reverse", 11):
        with cpu.checked(order), pytest.raises(CheckFailed, match="no barrier between them"):
            launch(made, 2, x, y, 24)


def test_every_block_begins_anew():
    """The same slots and the same threads in each block: nothing of one block is held against the next."""
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    for order in ORDERS:
        with cpu.checked(order):
            launch(each_its_own_slot, 4, x, y, 32)
        np.testing.assert_array_equal(y, x + 1)


def test_what_a_barrier_separates_is_no_race():
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for order in ORDERS:
        with cpu.checked(order):
            launch(helper_reads_in_time, 1, x, y, 8)
        np.testing.assert_array_equal(y, 4 * x[np.arange(8) // 4])
    x, y = np.arange(7 * 13, dtype=np.float32).reshape(7, 13), np.zeros((13, 7), np.float32)
    with cpu.checked():
        launch(transpose_and_scale, (2, 2), x, y, 7, 13, 0.5)
    np.testing.assert_array_equal(y, x.T * np.float32(0.5) + 1)


@kernel(block=8)
def second_name(x: Floats) -> None:
    part = cuda.shared.array(8, np.float32)
    other = part
    other[cuda.threadIdx.x] = x[cuda.threadIdx.x]


def test_a_shared_array_with_two_names_is_refused():
    with (
        cpu.checked(),
        pytest.raises(cpu.UnsupportedKernel, match=r"other\[threadIdx_x\]: to be watched, an array must"),
    ):
        launch(second_name, 1, np.zeros(8, np.float32))


# ---- sources that cannot be translated -----------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("made", "args", "message"),
    [
        (returns_around_a_barrier, (np.zeros(32, np.float32), 3), "guard with `if`"),
        (uses_atomics, (np.zeros(32, np.float32),), "cuda.atomic.add has no CPU version"),
        (uses_a_dictionary, (np.zeros(32, np.float32),), "SETTINGS is a dict"),
    ],
)
def test_what_cannot_be_translated_is_said_with_its_line(made, args, message):
    with pytest.raises(cpu.UnsupportedKernel, match=rf"test_cpu.py:\d+: .*{message}|{message}"):
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


# ---- the hand-over to other threads --------------------------------------------------------------------------------


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
    launcher, rest_is_done, ran = threading.get_ident(), threading.Event(), []

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
    with pytest.raises(KernelError, match="is read-only; copy it first"):
        launch(make_filler(1), 1, x)


# ---- build: the key, the disk, the vectoriser ----------------------------------------------------------------------


def test_the_source_is_readable_and_on_disk():
    launch(block_sums, 1, np.ones(64, np.float32), np.zeros(1, np.float32), 64)
    text = cpu.source_of(block_sums)
    stem = f"block_sums_{build.key(block_sums, False)}"
    assert (build.cache_directory() / stem / f"{stem}.py").read_text() == text
    assert "for threadIdx_x in range(64):" in text
    assert "while half > 0:" in text
    assert max(map(len, text.splitlines())) < 200


def test_the_documentation_shows_what_is_generated():
    text = cpu.source_of(block_sums)
    body = text[text.index("    part = _stack") : text.index("y[blockIdx_x] = part[0]")]
    assert body in (Path(__file__).parents[2] / "docs" / "without-a-gpu.md").read_text(encoding="utf-8")


def make_filler(value):
    @kernel(block=32, name="filler")
    def fill(x: Floats) -> None:
        x[cuda.grid(1)] = np.float32(value)

    return fill


def test_the_key_knows_constants_options_and_helpers(monkeypatch):
    one, two = make_filler(1), make_filler(2)
    assert build.key(one, False) != build.key(two, False)
    assert build.key(one, False) == build.key(make_filler(1), False)
    assert build.key(one, False) != build.key(one, True)
    before = build.key(one, False)
    monkeypatch.setenv("REFIMPL_SLP", "0")
    assert build.key(one, False) != before
    monkeypatch.delenv("REFIMPL_SLP")
    helped = build.key(transpose_and_scale, False)
    monkeypatch.setitem(transpose_and_scale.function.__globals__, "scaled", device(lambda value, factor: value))
    assert build.key(transpose_and_scale, False) != helped


def test_the_key_of_checked_mode_knows_the_lines_that_its_messages_name(monkeypatch):
    """Of a kernel that has moved in its file the message would name the old line."""
    code = off_by.function.__code__
    moved = types.FunctionType(code.replace(co_firstlineno=code.co_firstlineno + 1), off_by.function.__globals__)
    monkeypatch.setattr(build.inspect, "getsource", lambda _: "the same")
    for checked in (False, True):
        keys = {build.key(dataclasses.replace(off_by, function=each), checked) for each in (off_by.function, moved)}
        assert len(keys) == 1 + checked


def test_the_vectoriser_is_on_for_our_compilations_only(monkeypatch):
    before = numba.config.SLP_VECTORIZE
    with build.optimised(checked=False):
        assert numba.config.SLP_VECTORIZE == 1
    assert before == numba.config.SLP_VECTORIZE
    monkeypatch.setenv("REFIMPL_SLP", "0")
    with build.optimised(checked=False):
        assert numba.config.SLP_VECTORIZE == 0


SECOND_PROCESS = """
import numpy as np
from numba.core import event
from kernels import elementwise

class Compilations(event.Listener):
    count = 0
    def on_start(self, event): self.count += 1
    def on_end(self, event): pass

listener = Compilations()
x = np.zeros(1000, np.float32)
with event.install_listener("numba:compile", listener):
    elementwise.fill(x, 3.0)
assert (x == 3).all()
print(listener.count)
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    environment = {**os.environ, "REFIMPL_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", SECOND_PROCESS]
    first, second = (subprocess.run(command, env=environment, check=True, capture_output=True) for _ in range(2))
    assert int(first.stdout) > 0
    assert int(second.stdout) == 0


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """A cache of the test's own, and a temporary folder of its own to fall back to."""
    threads._sharing()  # is in no test's cache
    monkeypatch.setenv("REFIMPL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    build.say_once.cache_clear()
    return tmp_path / "cache"


def fills(value):
    """What a filler's module fills with: it is loaded from the cache, or compiled."""
    x = np.zeros(32, np.float32)
    threads.run_blocks(threads.packed(build.load(make_filler(value)).run.address, (1, 1, 1), [x]))
    return x.tolist() == [value] * 32


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def becomes_a_folder(path):
    path.unlink()
    path.mkdir()


def entries(cache: Path) -> list[Path]:
    """The kernels in a cache; the file `lock` is what processes wait for."""
    return [path for path in cache.iterdir() if path.name != "lock"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(b""), becomes_a_folder])
def test_a_damaged_entry_is_compiled_again_and_that_is_said_once(cache, capsys, damage):
    assert fills(3) and capsys.readouterr().err == ""
    (entry,) = entries(cache)
    names = sorted(path.relative_to(entry) for path in entry.rglob("*") if path.is_file())
    assert len(names) == 4
    for name in names:
        damage(entry / name)
        assert fills(3)
        assert build.intact(entry) and entries(cache) == [entry]
    (entry / "more").write_text("")
    assert fills(3) and not (entry / "more").exists()
    assert capsys.readouterr().err == f"refimpl: compiled kernels in {cache} were damaged; they are compiled again\n"


def test_an_entry_that_is_a_file_is_replaced(cache, capsys):
    cache.mkdir(mode=0o700)
    name = f"filler_{build.key(make_filler(4), False)}"
    (cache / name).write_text("")
    assert fills(4) and build.intact(cache / name)
    assert "were damaged" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "write_text"])
def test_on_a_full_disk_kernels_are_compiled_and_not_kept(cache, capsys, monkeypatch, call):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*((os, "rename", full) if call == "rename" else (Path, "write_text", full)))
        assert fills(5) and fills(5)
    assert capsys.readouterr().err == f"refimpl: compiled kernels cannot be kept in {cache}: No space left on device\n"
    assert entries(cache) == []


def test_a_user_without_a_home_has_a_cache(cache, monkeypatch):
    monkeypatch.delenv("REFIMPL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is where nothing says where home is
    assert build.cache_directory().parent == cache.parent / "temporary"


@pytest.mark.slow
def test_a_check_is_compiled_once_and_not_for_every_place_in_the_source(cache):
    build.load(block_sums, checked=True)
    compiled = [code for code, *_ in cpu_target.target_context.cached_internal_func]
    checks = (runtime._inside, runtime._note_read, runtime._note_write)
    assert [compiled.count(check.__code__) for check in checks] == [1, 1, 1]


def test_two_processes_that_compile_the_same_are_both_right(cache, capsys, monkeypatch):
    """The other one is done while this one compiles."""
    source = build.source_text

    def slow(*kernel):
        with monkeypatch.context() as patched:
            patched.setattr(build, "source_text", source)
            assert fills(7)
        return source(*kernel)

    monkeypatch.setattr(build, "source_text", slow)
    assert fills(7)
    assert len(entries(cache)) == 1 and capsys.readouterr().err == ""


def test_an_unwritable_cache_falls_back(cache, capsys):
    cache.write_text("")  # a file where the folder should be
    assert build.cache_directory().parent == cache.parent / "temporary"
    assert "is not used: File exists" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner and no mode here")
def test_a_cache_that_others_can_write_is_not_used(cache, capsys, monkeypatch):
    fallback = cache.parent / "temporary" / f"refimpl-{os.getuid()}"
    for mode in (0o777, 0o775, 0o702):
        folder = cache.parent / f"{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        monkeypatch.setenv("REFIMPL_CACHE", str(folder))
        assert build.cache_directory() == fallback and build.cache_directory() == fallback
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and f"{folder}, for compiled kernels, is not used: others can write there" in said
    within = cache.parent / "777" / "private"
    within.mkdir(mode=0o700)
    monkeypatch.setenv("REFIMPL_CACHE", str(within))
    assert build.cache_directory() == fallback
    assert f"is not used: others can write in {within.parent}, and could put another" in capsys.readouterr().err
    within.parent.chmod(0o1777)  # as the system's temporary folder: only the owner of a folder can rename it
    build._usable.cache_clear()
    assert build.cache_directory() == within
    monkeypatch.setenv("REFIMPL_CACHE", str(folder))
    build._usable.cache_clear()
    fallback.rmdir()
    fallback.symlink_to(cache.parent)  # as another user could have made it
    assert build.cache_directory() is None and "is not used: it is not a folder" in capsys.readouterr().err
    assert fills(6) and list(folder.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner here")
def test_a_cache_of_another_user_is_not_used(cache, capsys, monkeypatch):
    cache.mkdir(mode=0o700)
    found = os.stat(cache).st_uid
    monkeypatch.setattr(os, "getuid", lambda: found + 1)
    assert build.cache_directory() is None
    assert "is not used: it belongs to another user" in capsys.readouterr().err


def test_a_wrong_number_of_threads_is_one_line(monkeypatch):
    for text in ("x", "0", "-1", "1.5", "9" * 400, "²"):
        monkeypatch.setenv("REFIMPL_THREADS", text)
        with pytest.raises(threads.ThreadsError, match="^REFIMPL_THREADS is '.*'; give a whole number from 1 to 1024$"):
            threads.thread_count.__wrapped__()
    monkeypatch.setenv("REFIMPL_THREADS", "3")
    assert threads.thread_count.__wrapped__() == 3


def test_a_wrong_switch_of_the_vectoriser_is_one_line(monkeypatch):
    for text, on in (("0", False), ("1", True), ("", True)):
        monkeypatch.setenv("REFIMPL_SLP", text)
        assert build.slp_enabled() is on
    monkeypatch.setenv("REFIMPL_SLP", "off")
    with pytest.raises(ValueError, match="^REFIMPL_SLP is 'off'; give 0 or 1$"):
        build.slp_enabled()


# ---- launching -----------------------------------------------------------------------------------------------------


def test_bound_launches_run_when_told():
    x, y = np.ones(150, np.float32), np.zeros(3, np.float32)
    bound = bind(launch, block_sums, 3, x, y, 150)
    assert (y == 0).all()
    for one in bound:
        one.run(None)
    np.testing.assert_array_equal(y, [64, 64, 22])


def test_blocks_run_on_all_threads_give_the_same_bits():
    x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    results = []
    for _ in range(3):
        y = np.zeros(ceil_div(x.size, 64), np.float32)
        launch(block_sums, y.size, x, y, x.size)
        results.append(y)
    assert all(np.array_equal(results[0], other) for other in results)


def test_wrong_arguments_are_refused_before_anything_runs():
    x = np.zeros(32, np.float32)
    with pytest.raises(KernelError, match="takes 3 arguments, got 2"):
        launch(block_sums, 1, x, x)
    with pytest.raises(KernelError, match="x must be a float32 array, not float64"):
        launch(block_sums, 1, np.zeros(3), x, 3)
    with pytest.raises(KernelError, match="cannot be launched"):
        launch(block_sums, 0, x, x, 3)


@pytest.mark.parametrize("lanes", [8, 16])
def test_a_row_of_accumulators_is_one_vector_where_a_register_is_as_long(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (source, barriers):
        monkeypatch.setattr(module, "lanes", lambda: lanes)
    for name, columns in (("gemm_register_2d", 8), ("gemm_vector_rows_nn_64", 16)):
        importlib.import_module("kernels.gemm")  # which declares them
        text = cpu.source_of(REGISTRY[name])
        assert (f", a, b, 8, {columns})" in text) == ("_move(" in text.split("def _block")[1]) == (columns == lanes), (
            name
        )
