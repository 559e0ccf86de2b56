"""What the emulated GPU says of kernels with a fault, and that it says nothing of kernels without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kernels.targets import emulated, gpu
from kernels.targets.emulated.ptx import Instruction, parse
from kernels.targets.private import described, ptx_of
from kernels.targets.shim import cuda
from tests.kernels.emulated.faulty_kernels import FAULTS, Fault
from tests.matrix import more

pytestmark = pytest.mark.emulated

FIRST = (
    "one_thread_too_many", "halo_not_loaded", "barrier_in_a_branch", "no_barrier_before_the_next_tile",
    "block_number_forgotten", "shuffle_in_a_branch",
)  # fmt: skip


@pytest.fixture(autouse=True)
def every_launch_is_searched() -> Iterator[None]:
    emulated.start(races="always")
    yield
    emulated.forgive()
    emulated.order("late")
    emulated.start(races="first")


def found(function: Any, grid: Any, block: Any, *arguments: Any) -> list[str]:
    """What the checks say of one launch."""
    try:
        function[grid, block](*arguments)
        gpu.synchronize()
    except Exception:
        pass  # the driver's error follows from the finding
    return emulated.forgive()


def of(fault: Fault) -> list[str]:
    x, y = (gpu.to_device(np.ones(fault.shape, np.float32)) for _ in "xy")
    return found(cuda.jit(fault.kernel), fault.grid, fault.block, x, y, fault.n)


@pytest.mark.parametrize(
    "fault",
    [fault if fault.kernel.__name__ in FIRST else more(fault) for fault in FAULTS],
    ids=lambda fault: fault.kernel.__name__,
)
def test_a_faulty_kernel_is_noticed(fault: Fault) -> None:
    (finding,) = of(fault)
    assert fault.says in finding and f"kernel {fault.kernel.__name__}" in finding
    if fault.kernel.__name__ in FIRST:
        assert "emulated/faulty_kernels.py:" in finding and "block (" in finding and "thread (" in finding


def test_an_array_within_an_arena_ends_where_it_ends() -> None:
    """The bytes after it are allocated, and are another array's."""

    def shift(x: Any, y: Any, n: int) -> None:
        i = cuda.grid(1)
        y[i] = x[np.uint32(i + n)]

    arena = gpu.to_device(np.ones(1024, np.float32))
    assert found(cuda.jit(shift), 1, 64, arena[:128], arena[512:640], 32) == []
    (finding,) = found(cuda.jit(shift), 1, 64, arena[:128], arena[512:640], 96)
    assert "512 bytes from the start of x, which has 512" in finding


def test_warp_operations_and_atomics_compute() -> None:
    def sums(x: Any, y: Any, n: int) -> None:
        i = cuda.grid(1)
        value = x[i]
        for step in (16, 8, 4, 2, 1):
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        above = cuda.ballot_sync(0xFFFFFFFF, x[i] > 100)
        every, some = cuda.all_sync(0xFFFFFFFF, x[i] >= 0), cuda.any_sync(0xFFFFFFFF, x[i] > 126)
        cuda.syncwarp()
        other = cuda.shfl_xor_sync(0xFFFFFFFF, x[i], 1)
        first = cuda.shfl_sync(0xFFFFFFFF, x[i], 0)
        before = cuda.shfl_up_sync(0xFFFFFFFF, x[i], 1)
        if i % 32 == 0:
            cuda.atomic.add(y, 0, value)
            cuda.atomic.max(y, 1, value)
            cuda.atomic.add(y, 2, np.float32(above & 0xFF))
            cuda.atomic.add(y, 3, np.float32(every))
            cuda.atomic.add(y, 4, np.float32(some))
        y[8 + i] = other * 10000 + first * 100 + before

    values = np.arange(128, dtype=np.float32)
    x, y = gpu.to_device(values), gpu.to_device(np.zeros(136, np.float32))
    assert found(cuda.jit(sums), 2, 64, x, y, 128) == []
    result = gpu.to_host(y)
    above = sum(int(v > 100) << lane % 32 & 0xFF for lane, v in enumerate(values))
    assert result[:5].tolist() == [values.sum(), values[96:].sum(), above, 4, 1]
    lane = values.astype(int) % 32
    before = np.where(lane == 0, values, values - 1)
    np.testing.assert_array_equal(result[8:], (values.astype(int) ^ 1) * 10000 + (values - lane) * 100 + before)


def test_the_order_of_blocks_and_threads_changes_nothing_in_a_right_kernel() -> None:
    def reverse(x: Any, y: Any, n: int) -> None:
        s = cuda.shared.array(64, np.float32)
        t = cuda.threadIdx.x
        s[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        y[cuda.grid(1)] = s[63 - t]

    values = np.random.default_rng(0).standard_normal(256, dtype=np.float32)
    function = cuda.jit(reverse)
    for seed in range(4):
        emulated.order("random", seed)
        x, y = gpu.to_device(values), gpu.to_device(np.zeros(256, np.float32))
        assert found(function, 4, 64, x, y, 256) == []
        np.testing.assert_array_equal(gpu.to_host(y), values.reshape(4, 64)[:, ::-1].reshape(-1))


def test_neighbours_may_use_the_bytes_of_one_word() -> None:
    def reverse(x: Any, y: Any, n: int) -> None:
        s = cuda.shared.array(64, np.uint8)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        y[t] = s[63 - t]

    values = np.arange(64, dtype=np.uint8)
    x, y = gpu.to_device(values), gpu.to_device(np.zeros(64, np.uint8))
    assert found(cuda.jit(reverse), 1, 64, x, y, 64) == []
    np.testing.assert_array_equal(gpu.to_host(y), values[::-1])


def test_shared_memory_has_generic_addresses_in_a_kernel_that_is_not_optimised() -> None:
    def reverse(x: Any, y: Any, n: int) -> None:
        s = cuda.shared.array(64, np.float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        y[t] = s[63 - t]

    values = np.arange(64, dtype=np.float32)
    x, y = gpu.to_device(values), gpu.to_device(np.zeros(64, np.float32))
    assert found(cuda.jit(opt=False)(reverse), 1, 64, x, y, 64) == []
    np.testing.assert_array_equal(gpu.to_host(y), values[::-1])


def stops(compiled: Any) -> int:
    """Barriers and warp operations of a kernel that Numba has compiled."""
    function = parse(ptx_of(compiled)).functions[compiled.entry_name]
    return sum(isinstance(item, Instruction) and item.stops for item in function.body)


def test_a_barrier_left_out_is_noticed() -> None:
    """Of a kernel of ours, by way of its PTX."""
    from kernels.fast import gemm

    size = 40
    a, b, c = (gpu.to_device(np.ones((size, size), np.float32)) for _ in "abc")
    gemm.gemm(a, b, c, algorithm="tiled")
    gpu.synchronize()
    assert emulated.forgive() == []
    (compiled,) = gemm.gemm_tiled.gpu.overloads.values()
    assert stops(compiled) == 2
    for number in range(2):
        emulated.register(described(compiled), drop_stop=number)
        gemm.gemm(a, b, c, algorithm="tiled")
        with pytest.raises(Exception, match="ILLEGAL_ADDRESS"):
            gpu.synchronize()
        (finding,) = emulated.forgive()
        assert "race" in finding or "has written" in finding
    emulated.register(described(compiled))


@pytest.mark.campaign
def test_every_barrier_of_every_kernel_left_out_is_noticed() -> None:
    """In the calls that tests/gpu makes: without the barrier one of them has a race, or reads what is not written."""
    from kernels.targets.launch import Kernel, bind
    from tests.gpu.test_kernels import CASES, OnGpu
    from tests.kernels.operations import FAST, Draw

    callers: dict[Kernel, list[Callable[[], list[str]]]] = {}
    for operation in CASES.values():
        launches: list[Any] = []
        operation(OnGpu(FAST, lambda function, given, named: launches.extend(bind(function, *given, **named))), Draw(0))  # noqa: B023

        def call(launches: list[Any] = launches) -> list[str]:
            try:
                for each in launches:
                    each.run(None)
                gpu.synchronize()
            except Exception:
                pass  # the driver's error follows from the finding
            return emulated.forgive()

        assert call() == []
        for kernel in {each.kernel for each in launches}:
            callers.setdefault(kernel, []).append(call)
    count, missed = 0, []
    for kernel, calls in callers.items():
        (compiled,) = kernel.gpu.overloads.values()
        for number in range(stops(compiled)):
            count += 1
            emulated.register(described(compiled), drop_stop=number)
            if not any(call() for call in calls):
                missed.append(f"{kernel.name}, barrier {number + 1} of {stops(compiled)}")
        emulated.register(described(compiled))
    print(f"{count} barriers of {len(callers)} kernels left out, {count - len(missed)} noticed; not: {missed}")
    assert missed == []
