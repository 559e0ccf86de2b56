"""What users of Numba CUDA write beside this project's kernels: arguments of all kinds, functions, launches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kernels.targets import emulated
from kernels.targets.shim import cuda

pytestmark = pytest.mark.emulated


@pytest.fixture(autouse=True)
def nothing_is_found() -> Any:
    emulated.start(races="always")
    yield
    found = emulated.forgive()
    emulated.start(races="first")
    assert found == []


@cuda.jit
def line(a: Any, b: Any, x: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        x[i] = a * x[i] + b


def test_numbers_before_an_array_take_the_bytes_that_they_have() -> None:
    """Two of four bytes are one word; and so on."""
    for a, b in ((np.float32(2), np.float32(3)), (np.int8(2), 3.0), (np.float32(2), True), (2, np.int16(3))):
        x = cuda.to_device(np.ones(8, np.float32))
        line[1, 8](a, b, x)
        np.testing.assert_array_equal(x.copy_to_host(), np.full(8, a + b, np.float32))


def test_a_numpy_array_is_copied_there_and_back() -> None:
    x = np.ones(8, np.float32)
    line[1, 8](np.float32(2), np.float32(3), x)
    np.testing.assert_array_equal(x, np.full(8, 5))


def test_forall_asks_how_many_threads_a_block_has() -> None:
    x = cuda.to_device(np.ones(3000, np.float32))
    line.forall(3000)(np.float32(2), np.float32(3), x)
    np.testing.assert_array_equal(x.copy_to_host(), np.full(3000, 5))


@cuda.jit
def waves(x: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        x[i] = math.sin(x[i]) * math.cos(x[i])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sines_of_large_numbers(kind: Any) -> None:
    """For these the compiler brings a multiplication of several words, in PTX that was written by hand."""
    values = np.array([0.5, -2, 1e5, 1e10, -1e20, 3e38], kind)
    x = cuda.to_device(values)
    waves[1, 8](x)
    exact = np.sin(values.astype(np.float64)) * np.cos(values.astype(np.float64))
    np.testing.assert_allclose(x.copy_to_host(), exact, rtol=8 * np.finfo(kind).eps)


def test_a_launch_gives_the_bytes_of_a_shared_array() -> None:
    """Two arrays of a size that the launch gives are in one place."""

    @cuda.jit
    def turned(x: Any) -> None:
        numbers, words = cuda.shared.array(0, np.float32), cuda.shared.array(0, np.int32)
        i = cuda.threadIdx.x
        numbers[i] = x[i]
        words[i] ^= np.int32(-(2**31))
        cuda.syncthreads()
        x[i] = numbers[cuda.blockDim.x - 1 - i] + numbers.size

    x = cuda.to_device(np.arange(8, dtype=np.float32))
    turned[1, 8, 0, 32](x)
    np.testing.assert_array_equal(x.copy_to_host(), 8 - np.arange(8, dtype=np.float32)[::-1])
