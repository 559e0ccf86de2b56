"""Lab A0: a tiled kernel.  About three hours; after notebook K1.

C = A·B with one thread an element reads every row of A and every column of B again and again.  If a block copies a
tile of each to shared memory, all its threads read it there, and memory is asked once.

What to write
    `tiled`: C = A·B, with A of m×k, B of k×n and C of m×n elements, all row-major and flat: A[i, p] is `A[i * k + p]`.
    The grid has one thread an element of C: x along a row, y down a column.  m, n and k are any numbers.

What to know
    *Coalesced*: the 32 threads of a warp have neighbouring threadIdx.x.  Their accesses to neighbouring elements are
    one; to 32 rows they are 32, of 32 bytes (a sector) each.  *Bank conflict*: shared memory has 32 banks, word after
    word; threads of a warp that want different words of one bank wait in turn.  `cuda.syncthreads()` is for all
    threads of the block: a thread outside of C comes, too.
    A kernel here has numbers, loops, conditions, elements of arrays, cuda.threadIdx, blockIdx, blockDim, gridDim, grid,
    syncthreads and shared.array, np.float32, int32, int64, uint32, and range, min, max, abs, int.  The tests run it in
    checked mode, then its threads in turns, and count what each access of a warp touches.  Run it yourself:

        from kernels.targets.launch import launch
        from kernels.targets import cpu
        with cpu.checked(order="reverse"):
            launch(tiled, (ceil(n / 16), ceil(m / 16)), A, B, C, m, n, k)    # flat float32 arrays

Steps
    1. One thread an element, from memory.  Which of x and y must be the row?
    2. A tile of A and one of B in shared memory, zeros where they stick out; two barriers a tile.
    3. Leave one of them out.  What does the checked mode say?

Test it: pytest tutorials/labs/test_a0.py --submission my_kernel.py
    This skeleton                                                  30
    A barrier is missing                                           0
    One thread an element, x down a column                         56
    One thread an element, x along a row                           63
    Tiles in shared memory                                         100
"""

from __future__ import annotations

import numpy as np

from kernels.targets.launch import Floats, kernel
from kernels.targets.shim import cuda

TILE = 16


@kernel(block=(TILE, TILE))
def tiled(A: Floats, B: Floats, C: Floats, m: int, n: int, k: int) -> None:
    """C = A·B."""
    column, row = cuda.grid(2)
    total = np.float32(0)
    if row < m and column < n and k < 0:
        C[row * n + column] = total  # yours
