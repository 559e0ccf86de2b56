"""A solution of lab A0: 16×16 tiles of A and B in shared memory, and two barriers a tile."""

from __future__ import annotations

import numpy as np

from kernels.targets.launch import Floats, kernel
from kernels.targets.shim import cuda

TILE = 16


@kernel(block=(TILE, TILE))
def tiled(A: Floats, B: Floats, C: Floats, m: int, n: int, k: int) -> None:
    """C = A·B.  A thread loads an element of each tile, zero outside, and adds up products of what all have loaded."""
    a_tile = cuda.shared.array((TILE, TILE), np.float32)
    b_tile = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = np.float32(0)
    for first in range(0, k, TILE):
        a_tile[y, x] = np.float32(0)
        b_tile[y, x] = np.float32(0)
        if row < m and first + x < k:
            a_tile[y, x] = A[row * k + first + x]
        if first + y < k and column < n:
            b_tile[y, x] = B[(first + y) * n + column]
        cuda.syncthreads()
        for p in range(TILE):
            total += a_tile[y, p] * b_tile[p, x]
        cuda.syncthreads()
    if row < m and column < n:
        C[row * n + column] = total
