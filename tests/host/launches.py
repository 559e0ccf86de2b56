"""What the host code tells the driver.  Run by `test_host_code.py`."""

from __future__ import annotations

import ctypes
import gc
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.checks.conv_shape import PASSES
from kernels.fast import conv
from kernels.targets import gpu
from kernels.targets.launch import Floats, Ints, Kernel, bind, kernel, launch
from kernels.targets.shim import cuda
from tests.messages import raises_naming

ARRAY, INT, FLOAT = "8888888", "8", "4"  # bytes of each parameter: an array is passed as seven words


class Record(ctypes.Structure):
    """As in journal.h: a launch."""

    kernel: bytes
    grid: ctypes.Array[ctypes.c_uint]
    block: ctypes.Array[ctypes.c_uint]
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_size_t),
        ("parameter_count", ctypes.c_uint),
        ("parameters", ctypes.c_uint64 * 128),
    )


driver = ctypes.CDLL("libcuda.so.1")
driver.emulated_keep_books(1)
driver.emulated_launches.restype = driver.emulated_allocations.restype = ctypes.c_long
driver.emulated_record.restype = ctypes.POINTER(Record)


def launched(act: Callable[[], object], layout: str = "") -> list[Record]:
    """The launches that reach the driver while `act` runs; `layout` are the sizes of their parameters."""
    driver.emulated_layout(layout.encode())
    before = driver.emulated_launches()
    act()
    return [driver.emulated_record(ctypes.c_long(i)).contents for i in range(before, driver.emulated_launches())]


def names(records: list[Record], known: list[Kernel]) -> list[str]:
    """The records' kernels, by the name that each had in the machine code it was compiled to."""
    compiled = {code.entry_name.encode(): each.name for each in known for code in each.gpu.overloads.values()}
    return [compiled[record.kernel] for record in records]


def ones(*shape: int) -> Any:
    return gpu.to_device(np.ones(shape, np.float32))


@kernel(block=(8, 4))
def mixed(x: Floats, table: Ints, n: int, factor: float, y: Floats) -> None:
    i = cuda.grid(1)
    if i < n:
        y[i] = x[i] * factor + np.float32(table[i])


@pytest.fixture(scope="module")
def arrays() -> tuple[Any, Any, Any]:
    return ones(100), gpu.to_device(np.arange(100, dtype=np.int32)), ones(10, 10)


def test_this_is_the_emulated_driver() -> None:
    assert gpu.why_not() is None
    assert gpu.device_name() == "emulated GPU"


def address(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def test_a_launch_reaches_the_driver_as_it_was_asked_for(arrays: tuple[Any, Any, Any]) -> None:
    x, table, y = arrays
    stream = gpu.stream()
    layout = ARRAY + ARRAY + INT + FLOAT + ARRAY
    (record,) = launched(lambda: launch(mixed, (3, 2), x, table, -7, 1.5, y[2:4, 1:5], stream=stream), layout)
    assert names([record], [mixed]) == ["mixed"]
    assert (tuple(record.grid), tuple(record.block), record.shared_bytes) == ((3, 2, 1), (8, 4, 1), 0)
    assert record.stream == int(stream.handle)
    assert record.parameters[: record.parameter_count] == [
        *(0, 0, 100, 4, address(x), 100, 4),
        *(0, 0, 100, 4, address(table), 100, 4),
        2**64 - 7,
        *struct.unpack("<I", struct.pack("<f", 1.5)),
        *(0, 0, 14, 4, address(y) + 21 * 4, 14, 4),
    ]


def test_numba_itself_passes_the_same_parameters(arrays: tuple[Any, Any, Any]) -> None:
    """The layout of an array's seven words is Numba's: if it ever changes, this shows it."""
    x, table, y = arrays
    layout = ARRAY + ARRAY + INT + FLOAT + ARRAY
    (ours,) = launched(lambda: launch(mixed, 128, x, table, 5, 0.1, y), layout)
    args = (x, table, np.int64(5), np.float32(0.1), y.reshape(100))
    (numbas,) = launched(lambda: mixed.gpu[128, mixed.block](*args), layout)
    assert len(mixed.gpu.overloads) == 1  # both ran the same machine code
    for field in ("kernel", "shared_bytes", "parameter_count"):
        assert getattr(ours, field) == getattr(numbas, field)
    for field in ("grid", "block", "parameters"):
        assert list(getattr(ours, field)) == list(getattr(numbas, field))


def test_no_stream_means_the_default_stream(arrays: tuple[Any, Any, Any]) -> None:
    x, table, y = arrays
    (record,) = launched(lambda: launch(mixed, 1, x, table, 5, 0.1, y))
    assert record.stream in (0, 1)  # two names of the stream that all blocking streams wait for


def test_streams_do_not_block_each_other_and_take_events() -> None:
    first, second = gpu.stream(), gpu.stream()
    assert first != second
    flags = [ctypes.c_uint.from_address(int(stream.handle)).value for stream in (first, second, cuda.stream())]
    assert flags == [1, 1, 0]  # as the driver got them: CU_STREAM_NON_BLOCKING, and Numba's own without it
    start, end = gpu.CudaEvent(timing=True), gpu.CudaEvent(timing=True)
    start.record(first)
    end.wait(second)
    end.record(second)
    end.synchronize()
    first.sync()
    second.sync()
    assert end.done()
    assert 0 <= start.seconds_until(end) < 60
    with raises_naming(KernelError, "stream", "str"):
        gpu.as_stream("fast")


def test_the_streams_of_other_libraries_are_taken(arrays: tuple[Any, Any, Any]) -> None:
    x, table, y = arrays
    numbas = cuda.stream()
    (record,) = launched(lambda: launch(mixed, 1, x, table, 5, 0.1, y, stream=numbas))
    assert record.stream == int(numbas.handle)


def test_a_numpy_array_is_refused_before_anything_is_copied(arrays: tuple[Any, Any, Any]) -> None:
    x, table, _ = arrays
    host = np.ones(100, np.float32)
    allocations = driver.emulated_allocations()

    def attempt() -> None:
        with raises_naming(KernelError, "CPU", "GPU"):
            launch(mixed, 1, x, table, 5, 0.1, host)
        with raises_naming(KernelError, "NumPy"):
            gpu.bind(mixed, (1, 1, 1), [gpu.flat(x), gpu.flat(table), 5, np.float32(0.1), gpu.flat(host)])

    assert launched(attempt) == []
    assert driver.emulated_allocations() == allocations


def test_a_bound_launch_is_made_once_for_every_run_and_allocates_nothing(arrays: tuple[Any, Any, Any]) -> None:
    x, table, y = arrays
    stream = gpu.stream()
    (bound,) = bind(launch, mixed, (3, 2), x, table, 5, 0.1, y)
    allocations = driver.emulated_allocations()

    def ten_times() -> None:
        for _ in range(10):
            bound.run(stream)

    records = launched(ten_times)
    assert len(records) == 10
    assert {(tuple(r.grid), tuple(r.block), r.stream) for r in records} == {((3, 2, 1), (8, 4, 1), int(stream.handle))}
    assert driver.emulated_allocations() == allocations


def test_a_bound_launch_keeps_its_arrays_alive(arrays: tuple[Any, Any, Any]) -> None:
    _, table, y = arrays
    x = ones(100)
    alive = weakref.ref(x)
    run = gpu.bind(mixed, (1, 1, 1), mixed.values([x, table, 5, 0.1, y]))
    del x
    gc.collect()
    assert alive() is not None
    del run
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("pass_", PASSES)
def test_a_convolution_makes_its_launches_and_no_others(pass_: str) -> None:
    x, w, b, y = ones(2, 8, 9, 7), ones(16, 8, 3, 3), ones(16), ones(2, 16, 9, 7)
    given = {"forward": (x, w, b, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)}[pass_]
    needed = conv.workspace_bytes(pass_, x.shape, w.shape, pad=(1, 1), algorithm="im2col")
    options: dict[str, Any] = {"pad": (1, 1), "algorithm": "im2col"}
    options |= {"workspace": gpu.empty(needed // 4) if needed else None, "stream": gpu.stream()}
    function = getattr(conv, pass_)

    expected = bind(function, *given, **options)
    assert expected
    allocations = driver.emulated_allocations()
    records = launched(lambda: function(*given, **options))
    assert driver.emulated_allocations() == allocations
    assert names(records, [each.kernel for each in expected]) == [each.kernel.name for each in expected]
    assert [tuple(record.grid) for record in records] == [each.grid for each in expected]
    assert {record.stream for record in records} == {int(options["stream"].handle)}


@pytest.mark.parametrize("what", ["launch", "synchronise a stream", "synchronise an event"])
def test_calls_that_may_last_let_other_threads_run(arrays: tuple[Any, Any, Any], what: str) -> None:
    """Where the driver's queue is full a launch waits for the GPU, which may wait for a thread that compresses."""
    stream, event = gpu.stream(), gpu.CudaEvent()
    event.record(stream)
    (bound,) = bind(launch, mixed, 1, arrays[0], arrays[1], 5, 0.1, arrays[2])
    acts: dict[str, Callable[[], object]] = {
        "launch": lambda: bound.run(stream),
        "synchronise a stream": stream.sync,
        "synchronise an event": event.synchronize,
    }
    acts[what]()
    moments: list[float] = []
    over = threading.Event()

    def tick() -> None:
        while not over.is_set():
            moments.append(time.monotonic())
            time.sleep(0.005)

    ticking = threading.Thread(target=tick)
    ticking.start()
    driver.emulated_slow(400_000)
    try:
        began = time.monotonic()
        acts[what]()
        ended = time.monotonic()
    finally:
        driver.emulated_slow(0)
        over.set()
        ticking.join()
    assert sum(began < moment < ended for moment in moments) > 1  # else one at most, before the call
