"""What only a GPU can show of the host side: streams that run beside each other, and what a launch costs."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pytest

from kernels.fast import conv, elementwise
from kernels.targets import gpu
from kernels.targets.launch import Floats, Kernel, bind, launch
from kernels.targets.shim import cuda
from tests.gpu_device import BACKEND, sized

pytestmark = pytest.mark.gpu

LIMIT = 5.0  # microseconds of host time that a bound launch may take


def spin(x: Floats, steps: int) -> None:
    """One thread, each of its steps waiting for the one before: about a second for 3e8 of them."""
    value = x[0]
    for _ in range(steps):
        value = value * value + np.float32(0.25)
    x[0] = value


busy_kernel = Kernel(spin, "spin", (1, 1, 1), {})  # not declared, so that it is not among the package's kernels


def zeros(*shape: int) -> Any:
    return gpu.to_device(np.zeros(shape, np.float32))


@pytest.mark.parametrize(("blocking", "finished"), [(False, False), (True, True)], ids=["ours", "Numba's"])
def test_work_on_the_default_stream_waits_for_blocking_streams_only(blocking: bool, finished: bool) -> None:
    x, y = zeros(1), zeros(1000)
    launch(busy_kernel, 1, x, 1)  # compiled and loaded
    elementwise.fill(y, 1.0)
    gpu.synchronize()

    stream, busy, filled = cuda.stream() if blocking else gpu.stream(), gpu.CudaEvent(), gpu.CudaEvent()
    launch(busy_kernel, 1, x, sized(300_000_000, 3_000_000), stream=stream)
    busy.record(stream)
    elementwise.fill(y, 2.0)
    filled.record()
    filled.synchronize()
    assert busy.done() is finished
    gpu.synchronize()
    assert busy.done()
    assert gpu.to_host(y)[0] == 2


def test_an_event_orders_two_streams() -> None:
    x, y = zeros(1), zeros(1)
    first, second, ready = gpu.stream(), gpu.stream(), gpu.CudaEvent()
    launch(busy_kernel, 1, x, sized(30_000_000, 3_000_000), stream=first)  # tends to 0.5
    ready.record(first)
    ready.wait(second)
    elementwise.copy(x, y, stream=second)
    assert abs(gpu.to_host(y)[0] - 0.5) < 1e-3


@pytest.mark.timing
def test_a_bound_launch_costs_the_host_next_to_nothing() -> None:
    """Measured in bursts that fit the driver's queue, so that the host never waits for the GPU."""
    x, w, b, y = zeros(1, 1, 4, 4), zeros(1, 1, 3, 3), zeros(1), zeros(1, 1, 2, 2)
    bound, stream = bind(conv.forward, x, w, b, y, algorithm="direct")[0], gpu.stream()
    tries = []
    for _ in range(sized(100, 10)):
        start = time.thread_time()
        for _ in range(200):
            bound.run(stream)
        tries.append((time.thread_time() - start) / 200 * 1e6)
        gpu.synchronize()
    middle = statistics.median(tries)
    print(f"{gpu.device_name()}: a bound launch takes {middle:.2f} µs of host time, {min(tries):.2f} at best")
    assert middle < LIMIT


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_the_arrays_and_streams_of_other_libraries_are_taken(library: str) -> None:
    if BACKEND == "emulated":
        pytest.skip(f"{library} has no kernels for an emulated GPU")
    values = np.linspace(-1, 1, 1000, dtype=np.float32)
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    if library == "torch":
        if not module.cuda.is_available():
            pytest.skip("this PyTorch is built without CUDA")
        x, y, stream = module.tensor(values, device="cuda"), module.zeros(1000, device="cuda"), module.cuda.Stream()
    else:
        x, y, stream = module.asarray(values), module.zeros(1000, np.float32), module.cuda.Stream(non_blocking=True)
    gpu.synchronize()
    elementwise.axpy(2.0, x, y, stream=stream)
    np.testing.assert_array_equal(gpu.to_host(y), 2 * values)
