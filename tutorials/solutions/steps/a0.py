"""A0, a tiled kernel: what is handed in after each step."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from kernels.targets.launch import Floats, kernel
from kernels.targets.shim import cuda
from tutorials.labs.lab import Case
from tutorials.labs.test_a0 import LAB as LAB
from tutorials.labs.test_a0 import NAME

TILE = 16
DRAWS, NEED = 4, 0.0

#: Part → least and most of m, n and k.
PARTS = {
    "square": ((24, 32), (24, 32), (24, 32)),
    "four columns": ((36, 48), (3, 6), (17, 32)),
    "a column": ((36, 48), (1, 2), (17, 32)),
    "deep": ((9, 16), (9, 16), (49, 80)),
    "flat": ((17, 32), (17, 32), (5, 12)),
}


def draw(part: str, numbers: random.Random) -> Case:
    return Case(part, "x".join(str(numbers.randint(*ends)) for ends in PARTS[part]), 0)


@kernel(block=(TILE, TILE))
def down_a_column(A: Floats, B: Floats, C: Floats, m: int, n: int, k: int) -> None:
    row = cuda.blockIdx.y * TILE + cuda.threadIdx.x
    column = cuda.blockIdx.x * TILE + cuda.threadIdx.y
    total = np.float32(0)
    if row < m and column < n:
        for p in range(k):
            total += A[row * k + p] * B[p * n + column]
        C[row * n + column] = total


@kernel(block=(TILE, TILE))
def along_a_row(A: Floats, B: Floats, C: Floats, m: int, n: int, k: int) -> None:
    column, row = cuda.grid(2)
    total = np.float32(0)
    if row < m and column < n:
        for p in range(k):
            total += A[row * k + p] * B[p * n + column]
        C[row * n + column] = total


@kernel(block=(TILE, TILE))
def one_tile(A: Floats, B: Floats, C: Floats, m: int, n: int, k: int) -> None:
    a_tile = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = np.float32(0)
    for first in range(0, k, TILE):
        if row < m and first + x < k:
            a_tile[y, x] = A[row * k + first + x]
        cuda.syncthreads()
        if row < m and column < n:
            for p in range(min(TILE, k - first)):
                total += a_tile[y, p] * B[(first + p) * n + column]
        cuda.syncthreads()
    if row < m and column < n:
        C[row * n + column] = total


@kernel(block=(TILE, TILE))
def two_tiles_with_conflicts(A: Floats, B: Floats, C: Floats, m: int, n: int, k: int) -> None:
    """The tile of A is transposed: a warp writes it down two columns, 8 words in each of 4 banks."""
    a_tile = cuda.shared.array((TILE, TILE), np.float32)
    b_tile = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = np.float32(0)
    for first in range(0, k, TILE):
        a_tile[x, y] = np.float32(0)
        b_tile[y, x] = np.float32(0)
        if row < m and first + x < k:
            a_tile[x, y] = A[row * k + first + x]
        if first + y < k and column < n:
            b_tile[y, x] = B[(first + y) * n + column]
        cuda.syncthreads()
        for p in range(TILE):
            total += a_tile[p, y] * b_tile[p, x]
        cuda.syncthreads()
    if row < m and column < n:
        C[row * n + column] = total


ZERO = {NAME: down_a_column}
STEPS = {
    "x along a row": {NAME: along_a_row},
    "a tile of A": {NAME: one_tile},
    "two tiles, with bank conflicts": {NAME: two_tiles_with_conflicts},
}
FULL = LAB.modules(Path(__file__).parents[1] / "a0_tiled_kernel.py")
