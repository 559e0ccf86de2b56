"""Element-wise kernels in lockstep: which ones are, and that no bit depends on it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest

import kernels
from kernels import dropout, join, relu
from kernels.elementwise import BLOCK, PER_THREAD, TILE, tiles
from kernels.launch import REGISTRY, Floats, kernel, launch
from kernels.shim import cuda
from kernels.targets.cpu.source import KernelSource

SIZES = (1, BLOCK + 1, TILE, 2 * TILE + 3)


@kernel(block=BLOCK)
def sample_running_sum(x: Floats, y: Floats, n: int) -> None:
    """A turn adds to what the turn before has found."""
    i = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    total = np.float32(0)
    for j in range(PER_THREAD):
        total = total + x[np.uint32(i + j * BLOCK)]
        y[np.uint32(i + j * BLOCK)] = total


@kernel(block=BLOCK)
def sample_last_element(x: Floats, y: Floats, n: int) -> None:
    """The second loop reads what the first one's last turn has found."""
    i = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    for j in range(PER_THREAD):
        last = x[np.uint32(i + j * BLOCK)]
        y[np.uint32(i + j * BLOCK)] = last
    for j in range(PER_THREAD):
        y[np.uint32(i + j * BLOCK)] -= last


@kernel(block=BLOCK)
def sample_backwards(x: Floats, y: Floats, n: int) -> None:
    """A thread writes its elements in the opposite order: the second loop needs all of the first one's."""
    value = cuda.local.array(PER_THREAD, np.float32)
    i = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    for j in range(PER_THREAD):
        value[j] = x[np.uint32(i + j * BLOCK)]
    for j in range(PER_THREAD):
        y[np.uint32(i + j * BLOCK)] = value[PER_THREAD - 1 - j]


@kernel(block=BLOCK)
def sample_next_element(x: Floats, y: Floats, n: int) -> None:
    """The second loop reads what a later turn of the first one has read."""
    value = cuda.local.array(PER_THREAD, np.float32)
    i = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    for j in range(PER_THREAD):
        value[j] = x[np.uint32(i + j * BLOCK)]
    for j in range(PER_THREAD):
        y[np.uint32(i + j * BLOCK)] = value[j] + value[(j + 1) % PER_THREAD]


def by_thread(x: np.ndarray) -> np.ndarray:
    """A view of whole tiles: tile, turn, thread."""
    return x.reshape(-1, PER_THREAD, BLOCK)


def test_all_kernels_over_tiles_are_in_lockstep() -> None:
    for module in iter_modules(kernels.__path__, "kernels."):
        import_module(module.name)
    over_tiles = [k for k in REGISTRY.values() if k.function.__globals__.get("PER_THREAD") and k.block == (BLOCK, 1, 1)]
    over_tiles = [k for k in over_tiles if "PER_THREAD" in k.function.__code__.co_names and "sample" not in k.name]
    assert len(over_tiles) > 30
    sources = {k.name: KernelSource(k) for k in over_tiles}
    assert [name for name, source in sources.items() if "_one_thread" in source.text] == []
    arrays = {name: set(source.lowered.local) for name, source in sources.items() if source.lowered.local}
    assert arrays == {"dropout_apply": {"word"}}  # one Philox call draws its four words; other local arrays are scalars


def test_a_variable_that_runs_through_the_turns_keeps_its_value() -> None:
    x, y = np.arange(2 * TILE, dtype=np.float32), np.zeros(2 * TILE, np.float32)
    launch(sample_running_sum, tiles(x.size), x, y, x.size)
    assert np.array_equal(by_thread(y), np.cumsum(by_thread(x), axis=1))
    launch(sample_last_element, tiles(x.size), x, y, x.size)
    assert np.array_equal(by_thread(y), by_thread(x) - by_thread(x)[:, -1:])


def test_a_loop_that_needs_all_turns_of_the_one_before_is_not_joined_with_it() -> None:
    x, y = np.arange(2 * TILE, dtype=np.float32), np.zeros(2 * TILE, np.float32)
    launch(sample_backwards, tiles(x.size), x, y, x.size)
    assert np.array_equal(by_thread(y), by_thread(x)[:, ::-1])
    launch(sample_backwards, tiles(x.size), x, x, x.size)
    assert np.array_equal(x, y)
    launch(sample_next_element, tiles(x.size), x, y, x.size)
    assert np.array_equal(by_thread(y), by_thread(x) + np.roll(by_thread(x), -1, axis=1))


@pytest.mark.parametrize("size", SIZES)
def test_in_place_the_bits_are_the_same(size: int) -> None:
    x, dy = np.random.default_rng(size).standard_normal((2, size), np.float32)
    y, dx, total, part = (np.empty(size, np.float32) for _ in range(4))

    def drop(given: np.ndarray, out: np.ndarray) -> None:
        dropout.forward(given, out, probability=0.3, seed=5, layer=1, iteration=2)

    def add(given: np.ndarray, out: np.ndarray) -> None:
        join.forward([given, dy, dx], out)

    def turn_back(given: np.ndarray, out: np.ndarray) -> None:
        relu.backward(y, given, out)

    for function, given, out in ((relu.forward, x, y), (turn_back, dy, dx), (add, x, total), (drop, x, part)):
        function(given, out)
        same = given.copy()
        function(same, same)
        assert np.array_equal(same, out)
