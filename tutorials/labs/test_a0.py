"""Lab A0, a tiled kernel: pytest tutorials/labs/test_a0.py --submission mine.py"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from kernels.checks.arguments import KernelError
from kernels.targets import cpu
from kernels.targets.cpu.checked import CheckFailed
from kernels.targets.cpu.vocabulary import UnsupportedKernel
from kernels.targets.declare import Kernel
from kernels.targets.launch import launch
from refimpl.cli.parser import error_line
from refimpl.importing import own_code
from refimpl.text import counted as number_of
from refimpl.text import one_line
from tutorials.labs.counted_threads import Line, counted
from tutorials.labs.gates import Counted
from tutorials.labs.lab import Case, Lab, Refused

NAME = "tiled"  #: of the kernel
NEIGHBOURS = 8  #: sectors of an access, at most: two rows of 16 elements are in 4 to 6
TURNS = 2  #: of the banks, in the time in which memory gives a multiprocessor a sector: 14 bytes a clock


class Shape(NamedTuple):
    """C is m×n, A m×k, B k×n."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @staticmethod
    def of(text: str) -> Shape:
        m, n, k = map(int, text.split("x"))
        return Shape(m, n, k)

    @property
    def matrices(self) -> dict[str, np.ndarray]:
        """A, B and a C of NaN: the same for the same shape."""
        numbers = np.random.default_rng([*self])
        a, b = (numbers.standard_normal(size, np.float32) for size in (self.m * self.k, self.k * self.n))
        return {"A": a, "B": b, "C": np.full(self.m * self.n, np.nan, np.float32)}

    def grid(self, kernel: Kernel) -> tuple[int, int]:
        """Blocks with one thread an element of C."""
        return -(-self.n // kernel.block[0]), -(-self.m // kernel.block[1])


PLAIN, AWKWARD = Shape(16, 16, 16), (Shape(17, 5, 9), Shape(1, 40, 20))
SEVERAL, OF_TILES = Shape(32, 24, 32), 544  #: several tiles; the sectors of tiles of 16×16, each read once by a block
CLOSE = 1.25  #: times these sectors


def product(kernel: Kernel, shape: Shape) -> np.ndarray:
    """C, by the checked mode.

    Raises:
        Refused: an index is outside, threads race, or some of them miss a barrier.
    """
    a, b, c = shape.matrices.values()
    try:
        with cpu.checked(order="reverse"):
            launch(kernel, shape.grid(kernel), a, b, c, *shape)
    except NotImplementedError as error:
        raise Refused(2, str(error)) from None
    except (Exception, SystemExit) as error:  # the checks', a compiler's, or the kernel's
        plain = isinstance(error, CheckFailed | UnsupportedKernel | KernelError)
        raise Refused(2, f"C of {shape}: {one_line(str(error) if plain else error_line(error))}") from None
    return c.reshape(shape.m, shape.n)


def wrong(c: np.ndarray, shape: Shape) -> np.ndarray:
    """Which elements differ from the product by more than rounding can do, for sums of k products."""
    a, b, _ = (one.astype(np.float64) for one in shape.matrices.values())
    expected = a.reshape(shape.m, shape.k) @ b.reshape(shape.k, shape.n)
    far: np.ndarray = ~(np.abs(c - expected) <= 1e-5 * shape.k**0.5 * (1 + np.abs(expected)))
    return far


def missing(elements: np.ndarray) -> str:
    """How many elements, and the first of them; empty: none."""
    places = np.argwhere(elements)
    return f"{number_of(len(places), 'element')}, the first C[{places[0][0]}, {places[0][1]}]," if len(places) else ""


@dataclass(frozen=True, eq=False)
class KernelLab(Lab):
    """A lab whose submission is a kernel: what is judged are sectors, and further turns of the banks."""

    def modules(self, path: Path) -> dict[str, Any]:
        found = getattr(own_code.executed(str(path), path.stat().st_mtime_ns), NAME, None)
        if not isinstance(found, Kernel):
            raise Refused(2, f"the file has no kernel {NAME}; write @kernel(block=(x, y)) above def {NAME}")
        code = found.function.__code__
        if Path(code.co_filename).resolve() != path.resolve():
            raise Refused(2, f"{NAME} is {code.co_filename}'s {found.name}; write yours")
        return {NAME: found}

    def touched(self, kernel: Kernel, shape: Shape) -> list[Line]:
        """What the kernel's lines touch, once the product is right."""
        if said := missing(wrong(product(kernel, shape), shape)):
            raise Refused(3, f"C of {shape}: {said} not the product")
        return counted(kernel, shape.grid(kernel), shape.matrices, shape)

    def figure_of(self, case: Case, modules: Mapping[str, Any]) -> tuple[float, None]:
        lines = self.touched(modules[NAME], Shape.of(case.network))
        return sum(one.sectors + one.turns / TURNS for one in lines), None

    def command(self, case: Case, path: Path) -> str:
        return f"python -m tutorials.labs.counted_threads {path} {case.network}"


LAB = KernelLab("a0", (NAME,), {}, unit=lambda sectors: f"{sectors:,.0f} sectors")


Product = Callable[[Shape], np.ndarray]
Lines = Callable[[Shape], list[Line]]


@pytest.fixture(scope="module")
def tiled(modules: dict[str, Any]) -> Kernel:
    kernel: Kernel = modules[NAME]
    return kernel


@pytest.fixture(scope="module")
def c_of(tiled: Kernel) -> Product:
    def made(shape: Shape) -> np.ndarray:
        try:
            return product(tiled, shape)
        except Refused as error:
            pytest.fail(str(error), pytrace=False)

    return made


@pytest.fixture(scope="module")
def lines_of(tiled: Kernel) -> Lines:
    @cache
    def counted_once(shape: Shape) -> list[Line]:
        try:
            return LAB.touched(tiled, shape)
        except Refused as error:
            pytest.fail(str(error), pytrace=False)

    return counted_once


# -- step 1: a thread an element ---------------------------------------------------------------------------------------


def test_every_element_of_c_is_written(c_of: Product) -> None:
    assert not (said := missing(np.isnan(c_of(PLAIN)))), f"C of {PLAIN}: {said} not written"


def test_c_is_the_product(c_of: Product) -> None:
    assert not (said := missing(wrong(c_of(PLAIN), PLAIN))), f"C of {PLAIN}: {said} not the product"


def test_no_index_is_outside(c_of: Product) -> None:
    for shape in AWKWARD:
        assert not (said := missing(wrong(c_of(shape), shape))), f"C of {shape}: {said} not the product"


def test_a_warp_reads_neighbours(lines_of: Lines) -> None:
    for one in lines_of(SEVERAL):
        sectors = one.sectors / one.accesses
        assert sectors <= NEIGHBOURS, (
            f"line {one.line}: an access of a warp to {one.array} touches {sectors:.0f} sectors; "
            f"neighbours in threadIdx.x should want neighbouring elements"
        )


# -- step 2: tiles in shared memory ------------------------------------------------------------------------------------


def test_a_tile_is_read_once_by_a_block(lines_of: Lines) -> None:
    lines = lines_of(SEVERAL)
    sectors, most = sum(one.sectors for one in lines), max(lines, key=lambda one: one.sectors)
    assert sectors <= CLOSE * OF_TILES, (
        f"{sectors:,} sectors for C of {SEVERAL}, {most.sectors:,} of them in line {most.line} ({most.array}); "
        f"tiles of 16×16 in shared memory take {OF_TILES:,}"
    )


def test_no_barrier_is_missing(lines_of: Lines) -> None:
    assert in_shared_memory(lines_of(SEVERAL)), "no array in shared memory yet, and so no barrier"


# -- step 3: banks -----------------------------------------------------------------------------------------------------


def test_shared_memory_has_no_bank_conflicts(lines_of: Lines) -> None:
    lines = in_shared_memory(lines_of(SEVERAL))
    assert lines, "no array in shared memory yet"
    one = max(lines, key=lambda one: one.turns)
    assert not one.turns, (
        f"line {one.line}: {one.turns:,} further turns in {one.accesses:,} accesses of warps to {one.array}"
    )


def in_shared_memory(lines: list[Line]) -> list[Line]:
    return [one for one in lines if one.array.startswith("shared")]


class TestMark(Counted):
    lab = LAB
