"""Lab A0: a tiled matrix multiplication.  What its threads touch is counted, in a process of its own with limits."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refimpl.studies.grade.confined import CannotConfine, Ended, Limits, confine, confined
from refimpl.studies.grade.criteria import Criterion, Grade
from refimpl.studies.grade.kernel_threads import SECTOR, WORD, NotAKernel, Touched, launched, read
from refimpl.text import RefimplError, counted, one_line

NAME = "tiled"  #: of the kernel
TILE = 16  #: of the count that a submission is compared with
CLOSE = 1.25  #: times that many sectors
COALESCED = 2.0  #: times the sectors that the same bytes take side by side
SIZES = ((16, 16, 16), (17, 5, 9), (1, 40, 50))  #: m, n, k that everybody has
DRAWN, LEAST, MOST = 2, 18, 52


class Shape(NamedTuple):
    """C is m×n, A m×k, B k×n."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}×{self.n}×{self.k}"

    @property
    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """The same for the same shape."""
        numbers = np.random.default_rng([*self])
        return numbers.standard_normal(self.m * self.k, np.float32), numbers.standard_normal(
            self.k * self.n, np.float32
        )


def shapes(seed: int) -> list[Shape]:
    """Sizes: plain, awkward, and drawn."""
    numbers = random.Random(f"A0 {seed}")
    return [Shape(*size) for size in SIZES] + [
        Shape(*(numbers.randint(LEAST, MOST) for _ in range(3))) for _ in range(DRAWN)
    ]


def sectors_of_tiles(shape: Shape) -> int:
    """Sectors that 16×16 tiles take: a row of a tile of A and of B once a block, and a row of C."""
    m, n, k = shape

    def row(first: int, count: int) -> int:
        return (first + count - 1) * WORD // SECTOR - first * WORD // SECTOR + 1

    def piece(top: int, left: int, height: int, width: int) -> int:
        rows, columns = min(TILE, height - top), min(TILE, width - left)
        return sum(row((top + y) * width + left, columns) for y in range(rows))

    total = 0
    for top in range(0, m, TILE):
        for left in range(0, n, TILE):
            total += piece(top, left, m, n)
            total += sum(piece(top, at, m, k) + piece(at, left, k, n) for at in range(0, k, TILE))
    return total


# -- the confined process ----------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """`python -m refimpl.studies.grade.kernel_lab FILE PIPE SECONDS BYTES`, with the shapes on standard input."""
    path, pipe, processor, memory = arguments[0], *map(int, arguments[1:])
    source, given = Path(path).read_bytes(), [Shape(*one) for one in json.loads(sys.stdin.read())]

    def tell(**what: Any) -> None:
        line = json.dumps(what).encode() + b"\n"
        while line:
            line = line[os.write(pipe, line) :]

    inputs = [one.matrices for one in given]
    try:
        confine(processor, memory, str(Path(path).parent), lambda what: tell(forbidden=what))
        kernel = read(source, NAME)
        for shape, (a, b) in zip(given, inputs, strict=True):
            c, touched = launched(kernel, a, b, *shape)
            tell(c=[float(one) for one in c], **asdict(touched))
    except CannotConfine as error:
        tell(cannot=str(error))
    except BaseException as error:  # whatever the kernel does: it is told, and graded
        kind = "" if isinstance(error, NotAKernel) else f"{type(error).__name__}: "
        tell(error=one_line(f"{kind}{error}"))
    return 0


# -- the grade ---------------------------------------------------------------------------------------------------------


def grade_kernel(source: bytes, name: str, given: Sequence[Shape], limits: Limits) -> Grade:
    """Judge a kernel by its results and by what its threads touch."""
    try:
        read(source, NAME)
    except NotAKernel as error:
        return Grade("A0", [Criterion("runs", 0, 100, one_line(str(error)))])
    ended = confined("refimpl.studies.grade.kernel_lab", source, name, json.dumps([*given]).encode(), limits)
    said = [*lines_of(ended)]
    if cannot := next((one["cannot"] for one in said if "cannot" in one), ""):
        raise RefimplError(cannot)
    found = [one for one in said if "c" in one]
    why = next((str(one[key]) for one in said for key in ("error", "forbidden") if key in one), ended.why)
    if why or len(found) < len(given):
        broken = Criterion("checked", 0, 20, f"{given[min(len(found), len(given) - 1)]}: {why or 'it ended early'}")
        rest = [Criterion(name, 0, of, "no result") for name, of in (("result", 25), ("tiled", 20), ("coalesced", 15))]
        return Grade("A0", [Criterion("runs", 10, 10, "it is a kernel"), broken, *rest, banks([], 10)])
    return Grade("A0", judged(found, given), {str(shape): None for shape in given})


def lines_of(ended: Ended) -> Iterator[dict[str, Any]]:
    """What the process said, up to a line in the middle of which it was ended."""
    with suppress(ValueError):
        for line in ended.lines:
            yield json.loads(line)


def judged(found: Sequence[dict[str, Any]], given: Sequence[Shape]) -> list[Criterion]:
    right = [equal(one["c"], shape) for one, shape in zip(found, given, strict=True)]
    wrong = next((f"; {shape} is wrong" for shape, good in zip(given, right, strict=True) if not good), "")
    counts = [Touched(**{key: one[key] for key in ("sectors", "least", "conflicts", "shared")}) for one in found]
    criteria = [
        Criterion("runs", 10, 10, "it is a kernel"),
        Criterion("checked", 20, 20, "no index outside, no race, no barrier that some threads miss"),
        Criterion(
            "result", 25 * sum(right) // len(right), 25, f"{sum(right)} of {counted(len(right), 'product')}{wrong}"
        ),
    ]
    if wrong:
        rest = (("tiled", 20), ("coalesced", 15), ("banks", 10))
        return criteria + [Criterion(name, 0, of, "the result is wrong") for name, of in rest]
    sectors, least = sum(one.sectors for one in counts), sum(one.least for one in counts)
    tiles = sum(map(sectors_of_tiles, given))
    return [
        *criteria,
        Criterion("tiled", 20 * (sectors <= CLOSE * tiles), 20,
                  f"{sectors:,} sectors of {SECTOR} bytes; tiles of {TILE}×{TILE} take {tiles:,}"),
        Criterion("coalesced", 15 * (sectors <= COALESCED * least), 15,
                  f"{sectors / max(1, least):.2f} × the sectors that the same bytes take side by side"),
        banks(counts, 10),
    ]  # fmt: skip


def banks(counts: Sequence[Touched], of: int) -> Criterion:
    """A warp whose threads want different words of one bank waits for each of them."""
    shared, conflicts = sum(one.shared for one in counts), sum(one.conflicts for one in counts)
    if not shared:
        return Criterion("banks", 0, of, "no shared memory")
    return Criterion("banks", of * (not conflicts), of, f"{conflicts:,} further turns in {shared:,} shared accesses")


def equal(c: Sequence[float], shape: Shape) -> bool:
    """Within what rounding can do, for sums of k products."""
    a, b = (one.astype(np.float64) for one in shape.matrices)
    expected = a.reshape(shape.m, shape.k) @ b.reshape(shape.k, shape.n)
    error = np.abs(np.asarray(c).reshape(expected.shape) - expected)
    return bool(np.all(error <= 1e-5 * max(1, shape.k) ** 0.5 * (1 + np.abs(expected))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
