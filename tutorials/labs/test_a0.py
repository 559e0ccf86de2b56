"""Lab A0, a tiled kernel: pytest tutorials/labs/test_a0.py --submission my_kernel.py"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from kernels.targets import cpu
from kernels.targets.declare import Kernel
from kernels.targets.launch import launch
from refimpl.cli.parser import error_line
from refimpl.importing import own_code
from refimpl.text import RefimplError
from refimpl.text import counted as number_of
from tutorials.labs.counted_threads import SECTOR, WORD, CountedArray, counted

NAME, TILE = "tiled", 16  #: of the kernel; of the tiles that a submission is compared with
CLOSE = 1.25  #: times the sectors of these tiles
SIZES = ((16, 16, 16), (17, 5, 9), (1, 40, 50))  #: m, n, k in every run
DRAWN, LEAST, MOST = 2, 18, 52


class Shape(NamedTuple):
    """C is m×n, A m×k, B k×n."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}×{self.n}×{self.k}"

    @property
    def matrices(self) -> list[np.ndarray]:
        """A, B and a C of NaN: the same for the same shape."""
        numbers = np.random.default_rng([*self])
        a, b = (numbers.standard_normal(size, np.float32) for size in (self.m * self.k, self.k * self.n))
        return [a, b, np.full(self.m * self.n, np.nan, np.float32)]

    def grid(self, kernel: Kernel) -> tuple[int, int]:
        """Blocks with one thread an element of C."""
        return -(-self.n // kernel.block[0]), -(-self.m // kernel.block[1])


def shapes(seed: int) -> list[Shape]:
    """Sizes: plain, awkward, and drawn."""
    numbers = random.Random(f"A0 {seed}")
    drawn = [Shape(*(numbers.randint(LEAST, MOST) for _ in range(3))) for _ in range(DRAWN)]
    return [Shape(*size) for size in SIZES] + drawn


def sectors_of_tiles(shape: Shape) -> int:
    """Sectors that 16×16 tiles take: a row of a tile of A and of B once a block, and a row of C."""

    def piece(top: int, left: int, height: int, width: int) -> int:
        count, total = min(TILE, width - left), 0
        for row in range(top, min(top + TILE, height)):
            first = row * width + left
            total += (first + count - 1) * WORD // SECTOR - first * WORD // SECTOR + 1
        return total

    (m, n, k), total = shape, 0
    for top in range(0, m, TILE):
        for left in range(0, n, TILE):
            total += piece(top, left, m, n)
            total += sum(piece(top, at, m, k) + piece(at, left, k, n) for at in range(0, k, TILE))
    return total


def right(c: np.ndarray, shape: Shape) -> bool:
    """Within what rounding can do, for sums of k products."""
    a, b, _ = (one.astype(np.float64) for one in shape.matrices)
    expected = (a.reshape(shape.m, shape.k) @ b.reshape(shape.k, shape.n)).ravel()
    return bool(np.all(np.abs(c - expected) <= 1e-5 * shape.k**0.5 * (1 + np.abs(expected))))


# -- the tests ---------------------------------------------------------------------------------------------------------

Products = dict[Shape, np.ndarray | str]


@pytest.fixture(scope="module")
def tiled(submission: Path) -> Kernel:
    try:
        found = getattr(own_code.executed(str(submission), 0), NAME, None)
    except RefimplError as error:
        pytest.fail(error_line(error), pytrace=False)
    if not isinstance(found, Kernel):
        pytest.fail(f"the file has no kernel {NAME}; write @kernel(block=(x, y)) above def {NAME}", pytrace=False)
    return found


@pytest.fixture(scope="module")
def products(tiled: Kernel, seed: int) -> Products:
    """C of each shape, by the checked mode; or what it found, in one line."""
    found: Products = {}
    for shape in shapes(seed):
        a, b, c = shape.matrices
        try:
            with cpu.checked(order="reverse"):
                launch(tiled, shape.grid(tiled), a, b, c, *shape)
            found[shape] = c
        except (Exception, SystemExit) as error:  # the checks', a compiler's, or the kernel's
            found[shape] = " ".join(error_line(error).split())
    return found


@pytest.fixture(scope="module")
def touched(tiled: Kernel, products: Products) -> tuple[int, list[CountedArray]]:
    """The sectors that all shapes take, and the shared arrays of their blocks."""
    if any(isinstance(c, str) or not right(c, shape) for shape, c in products.items()):
        pytest.fail("counted once the results are right", pytrace=False)
    counts = [counted(tiled, shape.grid(tiled), shape.matrices, shape) for shape in products]
    return sum(sectors for sectors, _ in counts), [one for _, shared in counts for one in shared]


@pytest.mark.points(30)
def test_checked(products: Products, award: Any) -> None:
    """No index outside, no race in shared memory, no barrier that some threads miss."""
    wrong = next((f"{shape}: {why}" for shape, why in products.items() if isinstance(why, str)), "")
    award(not wrong, wrong or "no index outside, no race in shared memory, no barrier that some threads miss")


@pytest.mark.points(25)
def test_result(products: Products, award: Any) -> None:
    wrong = [shape for shape, c in products.items() if isinstance(c, str) or not right(c, shape)]
    good = len(products) - len(wrong)
    why = f"; {wrong[0]} is wrong" if wrong else ""
    award(good / len(products), f"{good} of {number_of(len(products), 'product')}{why}")


@pytest.mark.points(35)
def test_sectors(touched: tuple[int, list[CountedArray]], seed: int, award: Any) -> None:
    """Tiles in shared memory, and accesses of neighbours: twice the sectors are half of the points."""
    tiles, (sectors, _) = sum(map(sectors_of_tiles, shapes(seed))), touched
    why = f"{sectors:,} sectors of {SECTOR} bytes; tiles of {TILE}×{TILE} take {tiles:,}"
    award(min(1, CLOSE * tiles / max(1, sectors)), why)


@pytest.mark.points(10)
def test_banks(touched: tuple[int, list[CountedArray]], award: Any) -> None:
    """A warp whose threads want different words of one bank waits for each of them."""
    accesses, conflicts = sum(len(one.accesses) for one in touched[1]), sum(one.conflicts() for one in touched[1])
    award(accesses > 0 and not conflicts, f"{conflicts:,} further turns in {accesses:,} accesses to shared memory")
