"""Element-wise kernels in lockstep: which ones are, and that no bit depends on it."""

from __future__ import annotations

import ast
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest

from kernels import fast
from kernels.fast import dropout, join, relu
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, tiles
from kernels.targets.cpu.lockstep import put_in_lockstep, rename, same_arrays
from kernels.targets.cpu.source import KernelSource
from kernels.targets.cpu.vocabulary import Array, Lowered, parse
from kernels.targets.launch import REGISTRY, Floats, kernel, launch
from kernels.targets.shim import cuda

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
    for module in iter_modules(fast.__path__, "kernels.fast."):
        import_module(module.name)
    over_tiles = [k for k in REGISTRY.values() if k.function.__globals__.get("PER_THREAD") and k.block == (BLOCK, 1, 1)]
    over_tiles = [k for k in over_tiles if "PER_THREAD" in k.function.__code__.co_names and "sample" not in k.name]
    assert len(over_tiles) > 20
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


# -- what becomes of a kernel's text -----------------------------------------------------------------------------------

#: A kernel's body, and what it becomes; empty: it stays as it is.  Of the arrays x, y and v, v is local, of 4 numbers.
BODIES = {
    "one loop": (
        "for j in range(4): y[i + j * 256] = x[i + j * 256]",
        "for j in range(4): (y[i + j * 256] = x[i + j * 256]; yield 0)",
    ),
    "a length by its name": ("for j in range(FOUR): y[j] = x[j]", "for j in range(FOUR): (y[j] = x[j]; yield 0)"),
    "two loops that are joined": (
        "for j in range(4): v[j] = x[i + j * 256]\nfor j in range(4): y[i + j * 256] = v[j]",
        "for j in range(4): (v = x[i + j * 256]; y[i + j * 256] = v; yield 0)",
    ),
    "an index of 64 bits": (
        "for j in range(4):\n    e = np.uint32(i + j * 256)\n    y[e] = x[e]",
        "for j in range(4): (e = np.uint64(i + j * 256); y[e] = x[e]; yield 0)",
    ),
    "an index that is a number, too": (
        "for j in range(4):\n    e = np.uint32(i + j * 256)\n    y[e] = e",
        "for j in range(4): (e = np.uint32(i + j * 256); y[e] = e; yield 0)",
    ),
    "a loop under a condition joins the one before": (
        "for j in range(4): v[j] = x[i + j * 256]\nif n: \n    for j in range(4): y[i + j * 256] = v[j]",
        "for j in range(4): (v = x[i + j * 256]; if n: (y[i + j * 256] = v); yield 0)",
    ),
    "loops of both branches": (
        "if n:\n    for j in range(4): y[j] = 1\nelse:\n    for j in range(4): y[j] = 2",
        "if n: (for j in range(4): (y[j] = 1; yield 0)) else: (for j in range(4): (y[j] = 2; yield 0))",
    ),
    "other steps are not joined": (
        "for j in range(4): y[i + j * 256] = 1\nfor j in range(4): y[i + j * 128] += 1",
        "for j in range(4): (y[i + j * 256] = 1; yield 0) for j in range(4): (y[i + j * 128] += 1; yield 0)",
    ),
    "a variable that the first loop sets": (
        "for j in range(4):\n    last = x[i + j * 256]\n    y[i + j * 256] = last\n"
        "for j in range(4): y[i + j * 256] -= last",
        "for j in range(4): (last = x[i + j * 256]; y[i + j * 256] = last; yield 0) "
        "for j in range(4): (y[i + j * 256] -= last; yield 0)",
    ),
    "a turn that reads another one's place stays an array": (
        "for j in range(4): v[j] = x[i + j * 256]\nfor j in range(4): y[i + j * 256] = v[3 - j]",
        "for j in range(4): (v[j] = x[i + j * 256]; yield 0) for j in range(4): (y[i + j * 256] = v[3 - j]; yield 0)",
    ),
    "no loop": ("y[i] = x[i]", ""),
    "a long loop": ("for j in range(9): y[j] = x[j]", ""),
    "a loop of one turn": ("for j in range(1): y[j] = x[j]", ""),
    "a loop of a length that is not known": ("for j in range(n): y[j] = x[j]", ""),
    "a loop that writes one place": ("for j in range(4): y[i] = x[j]", ""),
    "a loop that writes nothing": ("for j in range(4): a = x[j]", ""),
    "a loop in a loop": ("for j in range(4):\n    for k in range(2): y[j + k] = x[j]", ""),
    "a loop that is left": ("for j in range(4):\n    y[j] = x[j]\n    break", ""),
    "a return beside it": ("if i > n: return\nfor j in range(4): y[j] = x[j]", ""),
    "a local array of another length": ("for j in range(2): v[j] = x[j]\nfor j in range(2): y[j] = v[j]", ""),
}


def in_brackets(body: list[ast.stmt]) -> str:
    """Statements in one line: what is inside one is in brackets."""
    said: list[str] = []
    for s in body:
        if isinstance(s, ast.For):
            said.append(f"for {ast.unparse(s.target)} in {ast.unparse(s.iter)}: ({in_brackets(s.body)})")
        elif isinstance(s, ast.If):
            other = f" else: ({in_brackets(s.orelse)})" if s.orelse else ""
            said.append(f"if {ast.unparse(s.test)}: ({in_brackets(s.body)}){other}")
        else:
            said.append(ast.unparse(s).replace("(yield 0)", "yield 0"))
    return "; ".join(said).replace("); for", ") for")


def lowered(text: str) -> Lowered:
    found = Lowered("sample", "sample.py", ["x", "y", "i", "n"], parse(text), constants={"FOUR": "4"})
    if "v[" in text:
        found.local["v"] = Array("v", (4,), "float32")
    return found


@pytest.mark.parametrize(("text", "becomes"), BODIES.values(), ids=BODIES)
def test_short_loops_are_joined_and_marked(text: str, becomes: str) -> None:
    made, before = lowered(text), in_brackets(parse(text))
    assert put_in_lockstep(made, (256, 1, 1)) == bool(becomes)
    assert in_brackets(made.body) == (becomes or before)
    assert ("v" in made.local) == ("v[" in (becomes or text))


def test_a_kernel_with_threads_that_meet_or_with_two_axes_is_not_put_in_lockstep() -> None:
    text = "for j in range(4): y[j] = x[j]"
    assert not put_in_lockstep(lowered(text), (16, 2, 1)) and not put_in_lockstep(lowered(text), (16, 1, 2))
    shared = lowered(text)
    shared.shared["s"] = Array("s", (4,), "float32")
    assert not put_in_lockstep(shared, (256, 1, 1))
    meets = lowered(text + "\nyield 3")
    assert meets.has_barriers and not put_in_lockstep(meets, (256, 1, 1))


def test_an_array_that_is_given_twice_has_the_name_that_is_written() -> None:
    assert same_arrays(sample_running_sum, {"x": "x", "y": "x"}) == {"x": "y"}
    assert same_arrays(sample_running_sum, {"x": "x", "y": "y"}) == {} == same_arrays(sample_running_sum, {})
    made = lowered("for j in range(4): y[j] = x[j] + n")
    rename(made, {"x": "y"})
    assert in_brackets(made.body) == "for j in range(4): (y[j] = y[j] + n)"
