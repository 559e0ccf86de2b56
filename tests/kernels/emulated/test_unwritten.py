"""Elements of a local array that are read before they are written: found wherever the compiler keeps the array."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from kernels.fast import gemm, lrn
from kernels.fast.conv import bias
from kernels.targets import compiled, emulated, gpu
from kernels.targets.declare import REGISTRY, Kernel
from kernels.targets.emulated import unwritten
from kernels.targets.private import ptx_of
from kernels.targets.shim import cuda
from tests.kernels.emulated.test_checks import found
from tests.matrix import more, some

pytestmark = pytest.mark.emulated

SAYS = "an element of a local array that the thread has not written"
RECORD = np.dtype([("small", np.uint8), ("number", np.float32)], align=True)


@pytest.fixture(autouse=True)
def unsearched() -> Iterator[None]:
    emulated.start(races="never")
    yield
    emulated.forgive()
    emulated.start(races="first")


def launched(function: Any, n: int, **options: Any) -> tuple[list[str], np.ndarray]:
    """What is found in 2 blocks of 32 threads that are given 256 numbers, and what they write."""
    x, y = gpu.to_device(np.arange(256, dtype=np.float32)), gpu.to_device(np.zeros(256, np.float32))
    told = found(cuda.jit(**options)(function), 2, 32, x, y, n)
    return told, gpu.to_host(y)


def line_of(finding: str) -> int:
    return int(finding.split("test_unwritten.py:")[1].split(":")[0])


# -- arrays that nothing, or not everything, is written to -------------------------------------------------------------


def never_written(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(4, np.float32)
    y[cuda.grid(1)] = a[n & 3]


def last_one_forgotten(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(4, np.float32)
    i = cuda.grid(1)
    for k in range(3):
        a[k] = x[i + k]
    y[i] = a[0] + a[1] + a[2] + a[3]


def index_of_run_time(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(16, np.float32)
    i = cuda.grid(1)
    for k in range(n % 16):
        a[np.uint32(k)] = x[i + k]
    y[i] = a[np.uint32(n + i) % np.uint32(16)]


def decides(x: Any, y: Any, n: int) -> None:
    seen = cuda.local.array(2, np.bool_)
    i = cuda.grid(1)
    seen[n & 1] = True
    if seen[(n + 1) & 1]:
        y[i] = x[i]


def complex_half(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(3, np.complex64)
    i = cuda.grid(1)
    a[n % 3] = x[i] + 1j
    y[i] = a[(n + 1) % 3].imag


def field_of_a_record(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(2, RECORD)
    i = cuda.grid(1)
    a[0].number = x[i]
    y[i] = a[0].number + a[0].small


def to_other_threads(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(2, np.float32)
    i = cuda.grid(1)
    if i % 2 == 0:
        a[0] = x[i]
    y[i] = cuda.shfl_down_sync(0xFFFFFFFF, a[0], 2)


def before_a_barrier(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(2, np.float32)
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if n > 250:
        a[0] = s[t]
    cuda.syncthreads()
    y[cuda.grid(1)] = s[31 - t] * a[0]


def new_in_each_turn(x: Any, y: Any, n: int) -> None:
    i = cuda.grid(1)
    for k in range(n % 8):
        a = cuda.local.array(2, np.float32)
        if k == 0:
            a[0] = x[i]
        y[i] += a[0]


@cuda.jit(device=True)
def largest_of(x: Any, i: int, n: int) -> float:
    best = cuda.local.array(4, np.float32)
    for k in range(n % 4):
        best[k] = x[i + k]
    return max(best[0], best[n % 4])


def in_a_function(x: Any, y: Any, n: int) -> None:
    i = cuda.grid(1)
    y[i] = largest_of(x, i, n)


@cuda.jit(device=True)
def falling(n: int, given: Any) -> float:
    own = cuda.local.array(4, np.float32)
    own[n & 3] = n
    if n <= 0:
        return given[0] + own[1]
    return falling(n - 1, own) + own[n & 3]


def in_recursion(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(4, np.float32)
    a[0], a[1], a[2], a[3] = 1, 2, 3, 4
    y[cuda.grid(1)] = falling(n % 8, a)


FAULTY = (
    never_written, last_one_forgotten, index_of_run_time, decides, complex_half, field_of_a_record, to_other_threads,
    before_a_barrier, new_in_each_turn, in_a_function, in_recursion,
)  # fmt: skip


#: How Numba compiles: arrays in registers where that can be, or all in local memory, with generic addresses.
AS_WRITTEN = {"opt": False}


def ways(functions: Sequence[Any], in_every_run: Collection[Any], not_optimised: Collection[Any]) -> Any:
    """Each function as it is compiled in both ways: some in every run, some where the GPU is emulated."""
    return pytest.mark.parametrize(
        ("function", "options"),
        [
            *((one, {}) if one in in_every_run else pytest.param(one, {}, marks=pytest.mark.slow) for one in functions),
            *(
                pytest.param(one, AS_WRITTEN, marks=pytest.mark.slow) if one in not_optimised else more(one, AS_WRITTEN)
                for one in functions
            ),
        ],
        ids=lambda given: getattr(given, "__name__", "as_written" if given else "optimised"),
    )


@ways(FAULTY, (index_of_run_time, before_a_barrier, in_a_function), (never_written, field_of_a_record, in_recursion))
def test_a_read_before_a_write_is_noticed(function: Any, options: dict[str, Any]) -> None:
    (finding,), _ = launched(function, 250, **options)
    assert SAYS in finding and finding.startswith(f"kernel {function.__name__}, emulated/test_unwritten.py:")
    assert "block (" in finding and "thread (" in finding
    sources = [inspect.getsourcelines(each) for each in (function, largest_of.py_func, falling.py_func)]
    assert any(first <= line_of(finding) < first + len(lines) for lines, first in sources)


def test_it_is_noticed_in_a_launch_that_is_searched_for_races() -> None:
    emulated.start(races="always")
    (finding,), _ = launched(index_of_run_time, 250)
    assert SAYS in finding


def test_the_line_is_the_one_that_needs_the_number() -> None:
    (finding,), _ = launched(last_one_forgotten, 250)
    assert line_of(finding) == last_one_forgotten.__code__.co_firstlineno + 5
    assert "a number that is written to memory depends on" in finding
    (finding,), _ = launched(decides, 250)
    assert line_of(finding) == decides.__code__.co_firstlineno + 4 and "a branch depends on" in finding


# -- arrays of which every element is written before it is read --------------------------------------------------------


def written_in_a_branch_and_read_in_one(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(4, np.float32)
    i = cuda.grid(1)
    if i % 2:
        a[i & 3] = x[i]
    y[i] = a[i & 3] if i % 2 else x[i]


def read_after_a_test(x: Any, y: Any, n: int) -> None:
    seen = cuda.local.array(8, np.bool_)
    i = cuda.grid(1)
    count = i % 8
    for k in range(count):
        seen[k] = x[k] > 2
    for k in range(8):
        if k < count and seen[k]:
            y[i] += 1


def grows(x: Any, y: Any, n: int) -> None:
    stack = cuda.local.array(64, np.int64)
    i = cuda.grid(1)
    top = 0
    for k in range(i):
        stack[top] = k
        top += 1
        while top > 1 and stack[top - 1] > 2 * stack[top - 2]:
            top -= 1
            stack[top - 1] = stack[top]
    for k in range(top):
        y[i] += stack[k]


def kept_over_a_barrier(x: Any, y: Any, n: int) -> None:
    a = cuda.local.array(8, np.float32)
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    for k in range(n % 8):
        a[k] = x[t + k]
    s[t] = x[t]
    cuda.syncthreads()
    for k in range(n % 8):
        y[cuda.grid(1)] += s[31 - t] * a[k]


RIGHT = (
    written_in_a_branch_and_read_in_one, read_after_a_test, grows, kept_over_a_barrier,
)  # fmt: skip


@ways(RIGHT, (grows, kept_over_a_barrier), (read_after_a_test,))
def test_nothing_is_said_where_what_is_read_is_written(function: Any, options: dict[str, Any]) -> None:
    told, result = launched(function, 250, **options)
    assert told == []
    assert result.any()


# -- what a real GPU is given, and what the project's own kernels have -------------------------------------------------


def ptx_with_and_without(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, int]:
    """A kernel's PTX with its local arrays filled and as for a real GPU, and how many arrays were filled."""
    count = 0

    def counted(module: str, real: Any = unwritten.filled) -> str:
        nonlocal count
        count += real(module).count(unwritten.SOURCE)
        return real(module)

    with monkeypatch.context() as patched:
        patched.setattr(unwritten, "filled", counted)
        one = ptx_of(compiled._by_numba(kernel))
    with monkeypatch.context() as patched:
        patched.setattr(unwritten, "filled", lambda module: module)
        return one, ptx_of(compiled._by_numba(kernel)), count


@pytest.mark.parametrize(
    "kernel",
    some([gemm.gemm_register_2d, bias.conv_bias_gradient, lrn.lrn_backward], lrn.lrn_backward),
    ids=lambda kernel: kernel.name,
)
def test_our_kernels_read_nothing_that_is_not_written(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler has shown it: what it makes of them has the same bytes as without the check."""
    checked, plain, count = ptx_with_and_without(kernel, monkeypatch)
    assert count > 0 and checked == plain and unwritten.SOURCE not in checked


@pytest.mark.campaign
def test_none_of_our_kernels_reads_what_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.kernels.operations import FAMILIES  # which imports every kernel

    assert FAMILIES
    differ, arrays = [], 0
    for name, kernel in REGISTRY.items():
        checked, plain, count = ptx_with_and_without(kernel, monkeypatch)
        arrays += count
        differ += [name] if checked != plain else []
    print(f"{arrays} local arrays in {len(REGISTRY)} kernels")
    assert arrays > 50 and differ == []


def test_a_module_is_changed_for_the_emulated_gpu_alone() -> None:
    """PTX that is compiled in its process for a real one is the compiler's own."""
    kind = cuda.types.Array(cuda.types.float32, 1, "C")
    made = cuda.jit(last_one_forgotten)
    made.compile((kind, kind, cuda.types.int64))
    (ours,) = made.inspect_asm().values()
    ptx, _ = cuda.compile_ptx(last_one_forgotten, (kind, kind, cuda.types.int64), cc=(9, 0))
    assert unwritten.SOURCE in ours and unwritten.SOURCE not in ptx


def test_numba_keeps_the_emulated_gpus_kernels_apart() -> None:
    """With `cache=True` a process on a real GPU finds none of them in the folder where Numba keeps kernels."""
    from numba.cuda.descriptor import cuda_target

    assert cuda_target.target_context.codegen().magic_tuple()[-1] == "emulated"
