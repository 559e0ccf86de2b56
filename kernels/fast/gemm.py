"""Matrix multiplication, C = alpha·op(A)·op(B) + beta·C, as a ladder of kernels from the obvious one to a fast one.

**Computed.** op(A) is m×k, op(B) k×n and C m×n, all row-major; op(X) is X or its transpose.  Rows may be further
apart than they are long (`lda`, `ldb`, `ldc`), and a batch of products has its matrices `stride_a`, `stride_b`,
`stride_c` elements apart.  With beta = 0, C is only written.  Every rung but `skinny` adds up an element of C over k in
ascending order in one accumulator; `skinny` cuts k into slices, which follow from m, n and k alone, and adds the
slices' sums in ascending order.

**Launch.** C is cut into tiles and a block computes one of them: blockIdx.x counts the tiles along the rows of C
(there are `across` in a row), blockIdx.y the batch.

**Cost.** 2·m·n·k floating-point operations.  At least 4·(m·k + k·n + m·n) bytes move; a rung with tiles of r×c
elements asks the memory for 4·m·n·k·(1/r + 1/c) bytes of A and B, of which the caches serve a part.

The ladder, from the first rung to the last:

    coalesced         neighbouring threads along a row                 double_buffered  loads while it computes
    tiled             pieces of A and B in shared memory               split_fragments  what the machine code wants
    register_1d       8 elements a thread                              vector_rows      what a CPU with AVX-512 wants
    register_2d       8×8 elements a thread                            skinny           few rows, split over k

The plain product is that of `kernels.fc`.  `best`, the default, is the rung that the machine runs best: `best_rung`.
`skinny` has a signature of its own, all others share one.  An element of op(A) or op(B) is found by two strides, so
that a kernel serves every transposition: op(A)[i, p] is `A[i * a_row + p * a_column]`.  Indices are cast to uint32
there: an index that may be negative costs instructions, because Numba then counts from the end as Python does.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, dtype_of, flat, given_workspace, is_array, place, strides
from kernels.targets import cpu
from kernels.targets.launch import Floats, Kernel, ceil_div, device, kernel, launch
from kernels.targets.shim import cuda

ZERO = np.float32(0)


@device
def put(C: Floats, at: int, alpha: float, total: float, beta: float) -> None:
    """Store alpha·total + beta·C.  With beta = 0 the old value is not read: it may be anything, NaN included."""
    if beta == ZERO:
        C[at] = alpha * total
    else:
        C[at] = alpha * total + beta * C[at]


@kernel(block=(32, 8))
def gemm_coalesced(
    A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
    a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
    stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
) -> None:  # fmt: skip
    """One thread an element; neighbouring threads are beside each other in a row of C.

    A warp's 32 reads of B, and its writes to C, are one wide access each, and its reads of A the same element.
    """
    row = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * 8 + cuda.threadIdx.y
    column = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * 32 + cuda.threadIdx.x
    if row < m and column < n:
        at_a = cuda.blockIdx.y * stride_a + row * a_row
        at_b = cuda.blockIdx.y * stride_b + column * b_column
        total = ZERO
        for p in range(k):
            total += A[np.uint32(at_a + p * a_column)] * B[np.uint32(at_b + p * b_row)]
        put(C, np.uint32(cuda.blockIdx.y * stride_c + row * ldc + column), alpha, total, beta)


@kernel(block=(16, 16))
def gemm_tiled(
    A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
    a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
    stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
) -> None:  # fmt: skip
    """The block copies a 16×16 piece of A and of B to shared memory, where all its threads read them.

    Each element comes from memory once a block instead of 16 times.  What sticks out of a matrix is filled with zeros.
    """
    a_tile = cuda.shared.array((16, 16), np.float32, 16)
    b_tile = cuda.shared.array((16, 16), np.float32, 16)
    x = np.uint32(cuda.threadIdx.x)
    y = np.uint32(cuda.threadIdx.y)
    row = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * 16 + y
    column = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * 16 + x
    at_a = cuda.blockIdx.y * stride_a + row * a_row
    at_b = cuda.blockIdx.y * stride_b + column * b_column
    total = ZERO
    for p0 in range(0, k, 16):
        a_tile[y, x] = A[np.uint32(at_a + (p0 + x) * a_column)] if row < m and p0 + x < k else ZERO
        b_tile[y, x] = B[np.uint32(at_b + (p0 + y) * b_row)] if column < n and p0 + y < k else ZERO
        cuda.syncthreads()
        for p in range(16):
            total += a_tile[y, p] * b_tile[p, x]
        cuda.syncthreads()
    if row < m and column < n:
        put(C, np.uint32(cuda.blockIdx.y * stride_c + row * ldc + column), alpha, total, beta)


@kernel(block=512)
def gemm_register_1d(
    A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
    a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
    stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
) -> None:  # fmt: skip
    """A thread computes 8 elements of a column of a 64×64 tile, in registers.

    `tiled` reads shared memory twice for one multiply-add, and that is its limit.  Here an element of B, once read,
    serves 8 of them.  The piece of A is stored transposed, so that a thread's 8 elements of it are adjacent.
    """
    a_tile = cuda.shared.array((8, 64), np.float32, 16)
    b_tile = cuda.shared.array((8, 64), np.float32, 16)
    total = cuda.local.array(8, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    row0 = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * 64
    column0 = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * 64
    a_i = t // 8  # the elements that this thread copies: of A (a_i, a_p) ...
    a_p = t % 8
    b_p = t // 64  # ... and of B (b_p, b_j)
    b_j = t % 64
    at_a = cuda.blockIdx.y * stride_a + (row0 + a_i) * a_row
    at_b = cuda.blockIdx.y * stride_b + (column0 + b_j) * b_column
    for i in range(8):
        total[i] = ZERO
    for p0 in range(0, k, 8):
        a_tile[a_p, a_i] = A[np.uint32(at_a + (p0 + a_p) * a_column)] if row0 + a_i < m and p0 + a_p < k else ZERO
        b_tile[b_p, b_j] = B[np.uint32(at_b + (p0 + b_p) * b_row)] if column0 + b_j < n and p0 + b_p < k else ZERO
        cuda.syncthreads()
        for p in range(8):
            b = b_tile[p, t % 64]
            for i in range(8):
                total[i] += a_tile[p, t // 64 * 8 + i] * b
        cuda.syncthreads()
    column = column0 + t % 64
    for i in range(8):
        row = row0 + t // 64 * 8 + i
        if row < m and column < n:
            put(C, np.uint32(cuda.blockIdx.y * stride_c + row * ldc + column), alpha, total[i], beta)


@kernel(block=256)
def gemm_register_2d(
    A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
    a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
    stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
) -> None:  # fmt: skip
    """A thread computes 8×8 elements of a 128×128 tile: 16 elements read from shared memory serve 64 multiply-adds.

    A thread with no row or no column in C rests: on a CPU, where the threads take turns, that time is saved.
    """
    a_tile = cuda.shared.array((8, 128), np.float32, 16)
    b_tile = cuda.shared.array((8, 128), np.float32, 16)
    total = cuda.local.array((8, 8), np.float32)
    a = cuda.local.array(8, np.float32)
    b = cuda.local.array(8, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    row0 = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * 128
    column0 = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * 128
    a_i = t // 8  # the first of the four elements that this thread copies: of A (a_i, a_p), the others 32 rows apart
    a_p = t % 8
    b_p = t // 128  # of B (b_p, b_j), the others two rows apart
    b_j = t % 128
    at_a = cuda.blockIdx.y * stride_a + (row0 + a_i) * a_row + a_p * a_column
    at_b = cuda.blockIdx.y * stride_b + (column0 + b_j) * b_column + b_p * b_row
    for i in range(8):
        for j in range(8):
            total[i, j] = ZERO
    for p0 in range(0, k, 8):
        for s in range(4):
            inside = row0 + a_i + s * 32 < m and p0 + a_p < k
            a_tile[a_p, a_i + s * 32] = A[np.uint32(at_a + p0 * a_column + s * 32 * a_row)] if inside else ZERO
        for s in range(4):
            inside = column0 + b_j < n and p0 + b_p + s * 2 < k
            b_tile[b_p + s * 2, b_j] = B[np.uint32(at_b + (p0 + s * 2) * b_row)] if inside else ZERO
        cuda.syncthreads()
        if row0 + t // 16 * 8 < m and column0 + t % 16 * 8 < n:
            for p in range(8):
                for i in range(8):
                    a[i] = a_tile[p, t // 16 * 8 + i]
                for j in range(8):
                    b[j] = b_tile[p, t % 16 * 8 + j]
                for i in range(8):
                    for j in range(8):
                        total[i, j] += a[i] * b[j]
        cuda.syncthreads()
    for i in range(8):
        for j in range(8):
            row = row0 + t // 16 * 8 + i
            column = column0 + t % 16 * 8 + j
            if row < m and column < n:
                put(C, np.uint32(cuda.blockIdx.y * stride_c + row * ldc + column), alpha, total[i, j], beta)


@kernel(block=256)
def gemm_double_buffered(
    A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
    a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
    stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
) -> None:  # fmt: skip
    """Two pieces of shared memory in turn: the next piece is on its way from memory while this one is multiplied.

    `register_2d` waits for every piece it loads.  Here the loads are started first, into registers, and stored away
    after the arithmetic, into the other half: no thread reads that one now, so one barrier a piece is enough instead of
    two.
    """
    a_tile = cuda.shared.array((2, 8, 128), np.float32, 16)
    b_tile = cuda.shared.array((2, 8, 128), np.float32, 16)
    total = cuda.local.array((8, 8), np.float32)
    a = cuda.local.array(8, np.float32)
    b = cuda.local.array(8, np.float32)
    next_a = cuda.local.array(4, np.float32)
    next_b = cuda.local.array(4, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    row0 = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * 128
    column0 = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * 128
    a_i = t // 8
    a_p = t % 8
    b_p = t // 128
    b_j = t % 128
    at_a = cuda.blockIdx.y * stride_a + (row0 + a_i) * a_row + a_p * a_column
    at_b = cuda.blockIdx.y * stride_b + (column0 + b_j) * b_column + b_p * b_row
    for i in range(8):
        for j in range(8):
            total[i, j] = ZERO
    for s in range(4):
        inside = row0 + a_i + s * 32 < m and a_p < k
        a_tile[0, a_p, a_i + s * 32] = A[np.uint32(at_a + s * 32 * a_row)] if inside else ZERO
        inside = column0 + b_j < n and b_p + s * 2 < k
        b_tile[0, b_p + s * 2, b_j] = B[np.uint32(at_b + s * 2 * b_row)] if inside else ZERO
    cuda.syncthreads()
    for p0 in range(8, k + 8, 8):  # p0: where the next piece starts
        now = 1 - (p0 >> 3) & 1
        for s in range(4):
            inside = row0 + a_i + s * 32 < m and p0 + a_p < k
            next_a[s] = A[np.uint32(at_a + p0 * a_column + s * 32 * a_row)] if inside else ZERO
            inside = column0 + b_j < n and p0 + b_p + s * 2 < k
            next_b[s] = B[np.uint32(at_b + (p0 + s * 2) * b_row)] if inside else ZERO
        for p in range(8):
            for i in range(8):
                a[i] = a_tile[now, p, t // 16 * 8 + i]
            for j in range(8):
                b[j] = b_tile[now, p, t % 16 * 8 + j]
            for i in range(8):
                for j in range(8):
                    total[i, j] += a[i] * b[j]
        for s in range(4):
            a_tile[1 - now, a_p, a_i + s * 32] = next_a[s]
            b_tile[1 - now, b_p + s * 2, b_j] = next_b[s]
        cuda.syncthreads()
    for i in range(8):
        for j in range(8):
            row = row0 + t // 16 * 8 + i
            column = column0 + t % 16 * 8 + j
            if row < m and column < n:
                put(C, np.uint32(cuda.blockIdx.y * stride_c + row * ldc + column), alpha, total[i, j], beta)


@device
def multiply_fragments(
    a_tile: Floats, b_tile: Floats, p: int, row: int, column: int, half_rows: int, half_columns: int, total: Floats
) -> None:
    """total += (column p of the piece of A) × (row p of the piece of B), for this thread's 8×8 elements."""
    a = cuda.local.array(8, np.float32)
    b = cuda.local.array(8, np.float32)
    for i in range(4):
        a[i] = a_tile[p, row + i]
        a[i + 4] = a_tile[p, half_rows + row + i]
    for j in range(4):
        b[j] = b_tile[p, column + j]
        b[j + 4] = b_tile[p, half_columns + column + j]
    for i in range(8):
        for j in range(8):
            total[i, j] += a[i] * b[j]


def split_fragments(rows: int, columns: int, trans_a: bool, trans_b: bool, resident: int) -> Kernel:
    """The rung `split_fragments` for tiles of rows×columns, one kernel for each pair of transpositions.

    What has changed since `register_2d`, each read off the machine code:

    - A thread's 8×8 elements are four blocks of 4×4, half a tile apart.  Neighbouring threads then read neighbouring
      groups of four floats, 128 bits each, and no two of them the same memory bank.  A's piece gets 4 more columns, so
      that storing it transposed meets few bank conflicts.
    - Neighbouring threads copy elements that are neighbours in memory, however the matrix is stored: along k where a
      row holds k, along the tile's rows or columns otherwise.  That is what the four kernels differ in.
    - Pieces are 16 deep, and a piece that is wholly inside the matrices is copied without looking at the edges.
    - Four steps of k in a row are written out: loop and address arithmetic once for 256 multiply-adds.
    - `resident` blocks have to fit on a multiprocessor, which bounds their registers.  While one block waits for memory
      the other computes: what two pieces in turn would do, and the registers for that go into deeper pieces instead.
    """
    DEPTH = 16
    THREADS = rows * columns // 64
    GROUPS = columns // 8  #: threads beside each other in the tile
    HALF_ROWS = rows // 2
    HALF_COLUMNS = columns // 2
    A_COPIES = rows * DEPTH // THREADS  #: elements of A that a thread copies, this far apart in the tile:
    A_APART = 0 if trans_a else THREADS // DEPTH
    A_DEEPER = THREADS // rows if trans_a else 0
    B_COPIES = columns * DEPTH // THREADS
    B_APART = THREADS // DEPTH if trans_b else 0
    B_DEEPER = 0 if trans_b else THREADS // columns
    A_WIDTH = rows + 4
    B_WIDTH = columns + 4 if trans_b else columns

    def product(
        A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
        a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
        stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
    ) -> None:  # fmt: skip
        """A tile of C a block, 8×8 elements a thread in four fragments of 4×4, pieces 16 deep."""
        a_tile = cuda.shared.array((DEPTH, A_WIDTH), np.float32, 16)
        b_tile = cuda.shared.array((DEPTH, B_WIDTH), np.float32, 16)
        total = cuda.local.array((8, 8), np.float32)
        next_a = cuda.local.array(A_COPIES, np.float32)
        next_b = cuda.local.array(B_COPIES, np.float32)
        t = np.uint32(cuda.threadIdx.x)
        thread_row = t // GROUPS * 4
        thread_column = t % GROUPS * 4
        row0 = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * rows
        column0 = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * columns
        no_edge = row0 + rows <= m and column0 + columns <= n
        for i in range(8):
            for j in range(8):
                total[i, j] = ZERO
        if trans_a:
            a_i = t % rows
            a_p = t // rows
        else:
            a_i = t // DEPTH
            a_p = t % DEPTH
        if trans_b:
            b_j = t // DEPTH
            b_p = t % DEPTH
        else:
            b_j = t % columns
            b_p = t // columns
        at_a = np.uint32(cuda.blockIdx.y * stride_a + (row0 + a_i) * a_row + a_p * a_column)
        at_b = np.uint32(cuda.blockIdx.y * stride_b + (column0 + b_j) * b_column + b_p * b_row)
        a_step = A_DEEPER * a_column + A_APART * a_row
        b_step = B_DEEPER * b_row + B_APART * b_column
        p0 = 0
        while p0 < k:
            at = at_a
            if no_edge and p0 + DEPTH <= k:
                for s in range(A_COPIES):
                    next_a[s] = A[at]
                    at = np.uint32(at + a_step)
                at = at_b
                for s in range(B_COPIES):
                    next_b[s] = B[at]
                    at = np.uint32(at + b_step)
            else:
                for s in range(A_COPIES):
                    inside = p0 + a_p + s * A_DEEPER < k and row0 + a_i + s * A_APART < m
                    next_a[s] = A[at] if inside else ZERO
                    at = np.uint32(at + a_step)
                at = at_b
                for s in range(B_COPIES):
                    inside = p0 + b_p + s * B_DEEPER < k and column0 + b_j + s * B_APART < n
                    next_b[s] = B[at] if inside else ZERO
                    at = np.uint32(at + b_step)
            for s in range(A_COPIES):
                a_tile[a_p + s * A_DEEPER, a_i + s * A_APART] = next_a[s]
            for s in range(B_COPIES):
                b_tile[b_p + s * B_DEEPER, b_j + s * B_APART] = next_b[s]
            p0 += DEPTH
            at_a = np.uint32(at_a + DEPTH * a_column)
            at_b = np.uint32(at_b + DEPTH * b_row)
            cuda.syncthreads()
            p = 0
            while p < DEPTH:
                multiply_fragments(a_tile, b_tile, p, thread_row, thread_column, HALF_ROWS, HALF_COLUMNS, total)
                multiply_fragments(a_tile, b_tile, p + 1, thread_row, thread_column, HALF_ROWS, HALF_COLUMNS, total)
                multiply_fragments(a_tile, b_tile, p + 2, thread_row, thread_column, HALF_ROWS, HALF_COLUMNS, total)
                multiply_fragments(a_tile, b_tile, p + 3, thread_row, thread_column, HALF_ROWS, HALF_COLUMNS, total)
                p += 4
            cuda.syncthreads()
        for i in range(8):
            row = row0 + thread_row + i % 4 + i // 4 * HALF_ROWS
            for j in range(8):
                column = column0 + thread_column + j % 4 + j // 4 * HALF_COLUMNS
                if row < m and column < n:
                    put(C, np.uint32(cuda.blockIdx.y * stride_c + row * ldc + column), alpha, total[i, j], beta)

    name = f"gemm_split_fragments_{rows}x{columns}_{'nt'[trans_a]}{'nt'[trans_b]}"
    return kernel(THREADS, name, launch_bounds=(THREADS, resident))(product)


BOTH = (False, True)
SPLIT_128 = {(ta, tb): split_fragments(128, 128, ta, tb, 2) for ta in BOTH for tb in BOTH}
SPLIT_64 = {(ta, tb): split_fragments(64, 64, ta, tb, 6) for ta in BOTH for tb in BOTH}


def vector_rows(tile: int, trans_a: bool, trans_b: bool) -> Kernel:
    """The rung `vector_rows` for square tiles, one kernel for each pair of transpositions: for a CPU with AVX-512.

    What has changed since `register_2d`, each read off the CPU's machine code:

    - A thread has 8 rows of 16 elements.  A row is one vector register, and 8 multiply-adds that do not wait for each
      other keep both of a core's multipliers busy.
    - The piece of A is stored as A is, not transposed: one element of it is multiplied by a whole row of B.
    - A thread copies a whole row or column of a piece, so that a copy is a loop over neighbours in memory, however the
      matrix is stored.  The barrier between the two copies makes them two loops, each of which becomes vectors.
    - The last piece is as deep as k is, and what a tile has beyond the matrix is filled with zeros once.
    """
    DEPTH = 16
    HEIGHT = 8
    WIDTH = 16
    THREADS = tile * tile // (HEIGHT * WIDTH)
    GROUPS = tile // WIDTH  #: threads beside each other in the tile
    TURNS = tile // THREADS  #: rows of A, and columns of B, that a thread copies
    A_ROW = 1 if trans_a else DEPTH
    A_STEP = tile if trans_a else 1
    SIZE = tile * DEPTH

    def product(
        A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
        a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
        stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
    ) -> None:  # fmt: skip
        """A tile of C a block, 8 rows of 16 elements a thread, pieces 16 deep."""
        a_tile = cuda.shared.array(SIZE, np.float32, 16)
        b_tile = cuda.shared.array((DEPTH, tile), np.float32, 16)
        total = cuda.local.array((HEIGHT, WIDTH), np.float32)
        a = cuda.local.array(HEIGHT, np.float32)
        b = cuda.local.array(WIDTH, np.float32)
        t = np.uint32(cuda.threadIdx.x)
        row0 = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * tile
        column0 = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * tile
        row = np.uint32(t // GROUPS * HEIGHT)
        column = np.uint32(t % GROUPS * WIDTH)
        at_a = cuda.blockIdx.y * stride_a + row0 * a_row
        at_b = cuda.blockIdx.y * stride_b + column0 * b_column
        for i in range(HEIGHT):
            for j in range(WIDTH):
                total[i, j] = ZERO
        for s in range(TURNS):
            i = s * THREADS + t
            for p in range(DEPTH):
                if row0 + i >= m:
                    a_tile[np.uint32(i * A_ROW + p * A_STEP)] = ZERO
                if column0 + i >= n:
                    b_tile[np.uint32(p), i] = ZERO
        cuda.syncthreads()
        for p0 in range(0, k, DEPTH):
            steps = min(DEPTH, k - p0)
            for s in range(TURNS):
                i = s * THREADS + t
                if row0 + i < m:
                    if trans_a:  # along the rows of the tile, which are neighbours; a_row is 1
                        for p in range(DEPTH):
                            if p < steps:
                                a_tile[np.uint32(p * tile + i)] = A[np.uint32(at_a + i + (p0 + p) * a_column)]
                    elif steps == DEPTH:  # along k; a_column is 1
                        for p in range(DEPTH):
                            a_tile[np.uint32(i * DEPTH + p)] = A[np.uint32(at_a + i * a_row + p0 + p)]
                    else:
                        for p in range(steps):
                            a_tile[np.uint32(i * DEPTH + p)] = A[np.uint32(at_a + i * a_row + p0 + p)]
            cuda.syncthreads()
            for s in range(TURNS):
                j = s * THREADS + t
                if column0 + j < n:
                    if not trans_b:  # along the columns of the tile; b_column is 1
                        for p in range(DEPTH):
                            if p < steps:
                                b_tile[p, j] = B[np.uint32(at_b + (p0 + p) * b_row + j)]
                    elif steps == DEPTH:  # along k; b_row is 1
                        for p in range(DEPTH):
                            b_tile[p, j] = B[np.uint32(at_b + j * b_column + p0 + p)]
                    else:
                        for p in range(steps):
                            b_tile[np.uint32(p), j] = B[np.uint32(at_b + j * b_column + p0 + p)]
            cuda.syncthreads()
            if row0 + row < m and column0 + column < n:
                for p in range(steps):
                    for i in range(HEIGHT):
                        a[i] = a_tile[np.uint32((row + i) * A_ROW + p * A_STEP)]
                    for j in range(WIDTH):
                        b[j] = b_tile[np.uint32(p), column + j]
                    for i in range(HEIGHT):
                        for j in range(WIDTH):
                            total[i, j] += a[i] * b[j]
            cuda.syncthreads()
        at_c = cuda.blockIdx.y * stride_c + (row0 + row) * ldc + column0 + column
        if row0 + row + HEIGHT <= m and column0 + column + WIDTH <= n and beta == ZERO:
            for i in range(HEIGHT):
                for j in range(WIDTH):
                    C[np.uint32(at_c + i * ldc + j)] = alpha * total[i, j]
        else:
            for i in range(HEIGHT):
                for j in range(WIDTH):
                    if row0 + row + i < m and column0 + column + j < n:
                        put(C, np.uint32(at_c + i * ldc + j), alpha, total[i, j], beta)

    return kernel(THREADS, f"gemm_vector_rows_{'nt'[trans_a]}{'nt'[trans_b]}_{tile}")(product)


VECTOR_ROWS = {(tile, ta, tb): vector_rows(tile, ta, tb) for tile in (64, 128) for ta in BOTH for tb in BOTH}


def skinny(trans_b: bool) -> Kernel:
    """The rung `skinny`: tiles of 32×128, 8×4 elements a thread, and k cut into slices that different blocks sum up.

    With few rows there are few tiles, far fewer than a GPU has multiprocessors, while B is as large as ever: it has
    to be read at the memory's full speed, by all of them. blockIdx.z is the slice.  A block's sums go to the
    workspace, and `gemm_skinny_sum` adds them.  Without a workspace one block takes all the slices, one after the
    other (`slices` of them instead of 1), and adds their sums in the same order.
    """
    DEPTH = 16
    THREADS = 128
    B_APART = 8 if trans_b else 0  #: the 16 elements of B that a thread copies are this far apart in the tile
    B_DEEPER = 0 if trans_b else 1
    B_WIDTH = 132 if trans_b else 128

    def product(
        A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
        a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
        stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
        slice_length: int, slices: int, stride_slice: int,
    ) -> None:  # fmt: skip
        """A tile of 32×128 and a slice of k a block, 8×4 elements a thread."""
        a_tile = cuda.shared.array((DEPTH, 36), np.float32, 16)
        b_tile = cuda.shared.array((DEPTH, B_WIDTH), np.float32, 16)
        total = cuda.local.array((8, 4), np.float32)
        part = cuda.local.array((8, 4), np.float32)
        a = cuda.local.array(8, np.float32)
        b = cuda.local.array(4, np.float32)
        next_a = cuda.local.array(4, np.float32)
        next_b = cuda.local.array(16, np.float32)
        t = np.uint32(cuda.threadIdx.x)
        row0 = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * 32
        column0 = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * 128
        a_i = t // DEPTH
        a_p = t % DEPTH
        if trans_b:
            b_j = t // DEPTH
            b_p = t % DEPTH
        else:
            b_j = t % 128
            b_p = t // 128
        b_step = B_DEEPER * b_row + B_APART * b_column
        for i in range(8):
            for j in range(4):
                total[i, j] = ZERO
        z = 0
        while z < slices:
            start = (cuda.blockIdx.z + z) * slice_length
            end = min(start + slice_length, k)
            at_a = np.uint32(cuda.blockIdx.y * stride_a + (row0 + a_i) * a_row + (start + a_p) * a_column)
            at_b = np.uint32(cuda.blockIdx.y * stride_b + (column0 + b_j) * b_column + (start + b_p) * b_row)
            for i in range(8):
                for j in range(4):
                    part[i, j] = ZERO
            p0 = start
            while p0 < end:
                at = at_a
                for s in range(4):
                    next_a[s] = A[at] if p0 + a_p < end and row0 + a_i + s * 8 < m else ZERO
                    at = np.uint32(at + 8 * a_row)
                at = at_b
                if column0 + 128 <= n and p0 + DEPTH <= end:
                    for s in range(16):
                        next_b[s] = B[at]
                        at = np.uint32(at + b_step)
                else:
                    for s in range(16):
                        inside = p0 + b_p + s * B_DEEPER < end and column0 + b_j + s * B_APART < n
                        next_b[s] = B[at] if inside else ZERO
                        at = np.uint32(at + b_step)
                for s in range(4):
                    a_tile[a_p, a_i + s * 8] = next_a[s]
                for s in range(16):
                    b_tile[b_p + s * B_DEEPER, b_j + s * B_APART] = next_b[s]
                p0 += DEPTH
                at_a = np.uint32(at_a + DEPTH * a_column)
                at_b = np.uint32(at_b + DEPTH * b_row)
                cuda.syncthreads()
                if row0 + t // 32 * 8 < m:
                    p = 0
                    while p < DEPTH:
                        for i in range(8):
                            a[i] = a_tile[p, t // 32 * 8 + i]
                        for j in range(4):
                            b[j] = b_tile[p, t % 32 * 4 + j]
                        for i in range(8):
                            for j in range(4):
                                part[i, j] += a[i] * b[j]
                        p += 1
                cuda.syncthreads()
            for i in range(8):
                for j in range(4):
                    total[i, j] += part[i, j]
            z += 1
        for i in range(8):
            row = row0 + t // 32 * 8 + i
            for j in range(4):
                column = column0 + t % 32 * 4 + j
                if row < m and column < n:
                    at_c = cuda.blockIdx.y * stride_c + cuda.blockIdx.z * stride_slice + row * ldc + column
                    put(C, np.uint32(at_c), alpha, total[i, j], beta)

    return kernel(THREADS, f"gemm_skinny_{'nt'[trans_b]}", launch_bounds=(THREADS, 4))(product)


@kernel(block=32)
def gemm_skinny_rows_t(
    A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
    a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
    stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
    slice_length: int, slices: int, stride_slice: int,
) -> None:  # fmt: skip
    """`skinny` for a CPU with AVX-512, B transposed: 16 rows × 8 columns of C a thread.

    A vector register has a column of C.  So B is read where it is, 8 rows at a time from their start to their end, as
    fast as memory gives it; what is rearranged, the piece of A, is small.
    """
    DEPTH = 128
    a_tile = cuda.shared.array((128, 32), np.float32, 16)
    total = cuda.shared.array((128, 32), np.float32, 16)  # by column and row: with `part` it would fill the registers
    part = cuda.local.array((8, 16), np.float32)
    a = cuda.local.array(16, np.float32)
    b = cuda.local.array(8, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    row0 = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * 32
    column0 = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * 128
    row = np.int64(t // 16 * 16)
    column = np.int64(t % 16 * 8)
    at_a = cuda.blockIdx.y * stride_a + (row0 + t) * a_row
    at_b = cuda.blockIdx.y * stride_b + (column0 + column) * b_column
    last = max(0, min(8, n - column0 - column) - 1)  # of this thread's columns; read again in place of those beyond it
    for j in range(8):
        for i in range(16):
            total[column + j, row + i] = ZERO
    if row0 + t >= m:  # rows that are not there
        for p in range(DEPTH):
            a_tile[np.uint32(p), t] = ZERO
    z = 0
    while z < slices:
        start = (cuda.blockIdx.z + z) * slice_length
        end = min(start + slice_length, k)
        for j in range(8):
            for i in range(16):
                part[j, i] = ZERO
        for p0 in range(start, end, DEPTH):
            steps = min(DEPTH, end - p0)
            if row0 + t < m:
                for p in range(steps):
                    a_tile[np.uint32(p), t] = A[np.uint32(at_a + (p0 + p) * a_column)]
            cuda.syncthreads()
            if row0 + row < m and column0 + column < n:
                for p in range(steps):
                    for j in range(8):
                        b[j] = B[np.uint32(at_b + min(j, last) * b_column + (p0 + p) * b_row)]
                    for i in range(16):
                        a[i] = a_tile[np.uint32(p), np.uint32(row + i)]
                    for j in range(8):
                        for i in range(16):
                            part[j, i] += b[j] * a[i]
            cuda.syncthreads()
        for j in range(8):
            for i in range(16):
                total[column + j, row + i] += part[j, i]
        z += 1
    for i in range(16):
        for j in range(8):
            if row0 + row + i < m and column0 + column + j < n:
                at_c = cuda.blockIdx.y * stride_c + cuda.blockIdx.z * stride_slice + (row0 + row + i) * ldc
                put(C, np.uint32(at_c + column0 + column + j), alpha, total[column + j, row + i], beta)


@kernel(block=64)
def gemm_skinny_rows_n(
    A: Floats, B: Floats, C: Floats, m: int, n: int, k: int, across: int,
    a_row: int, a_column: int, b_row: int, b_column: int, ldc: int,
    stride_a: int, stride_b: int, stride_c: int, alpha: float, beta: float,
    slice_length: int, slices: int, stride_slice: int,
) -> None:  # fmt: skip
    """`skinny` for a CPU with AVX-512, B as it is: 8 rows of 16 columns of C a thread, 32×256 a block.

    B is read where it is, 16 rows side by side, each for 1 KiB: shorter stretches would not be fetched ahead.
    """
    DEPTH = 16
    a_tile = cuda.shared.array((16, 32), np.float32, 16)
    total = cuda.shared.array((32, 256), np.float32, 16)
    part = cuda.local.array((8, 16), np.float32)
    a = cuda.local.array(8, np.float32)
    b = cuda.local.array(16, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    row0 = np.int64(np.uint32(cuda.blockIdx.x) // np.uint32(across)) * 32
    column0 = np.int64(np.uint32(cuda.blockIdx.x) % np.uint32(across)) * 256
    row = np.int64(t // 16 * 8)
    column = np.int64(t % 16 * 16)
    at_a = cuda.blockIdx.y * stride_a + (row0 + t % 32) * a_row
    at_b = cuda.blockIdx.y * stride_b + column0 + column
    for i in range(8):
        for j in range(16):
            total[row + i, column + j] = ZERO
    if row0 + t % 32 >= m:  # rows that are not there
        for s in range(8):
            a_tile[np.uint32(s * 2 + t // 32), t % 32] = ZERO
    z = 0
    while z < slices:
        start = (cuda.blockIdx.z + z) * slice_length
        end = min(start + slice_length, k)
        for i in range(8):
            for j in range(16):
                part[i, j] = ZERO
        for p0 in range(start, end, DEPTH):
            steps = min(DEPTH, end - p0)
            if row0 + t % 32 < m:
                for s in range(8):
                    p = np.int64(s * 2 + t // 32)
                    if p < steps:
                        a_tile[np.uint32(p), t % 32] = A[np.uint32(at_a + (p0 + p) * a_column)]
            cuda.syncthreads()
            if row0 + row < m and column0 + column < n:
                for p in range(steps):
                    for i in range(8):
                        a[i] = a_tile[np.uint32(p), np.uint32(row + i)]
                    at = at_b + (p0 + p) * b_row
                    if column0 + column + 16 <= n:
                        for j in range(16):
                            b[j] = B[np.uint32(at + j)]
                    else:
                        for j in range(16):
                            b[j] = B[np.uint32(at + j)] if column0 + column + j < n else ZERO
                    for i in range(8):
                        for j in range(16):
                            part[i, j] += a[i] * b[j]
            cuda.syncthreads()
        for i in range(8):
            for j in range(16):
                total[row + i, column + j] += part[i, j]
        z += 1
    for i in range(8):
        for j in range(16):
            if row0 + row + i < m and column0 + column + j < n:
                at_c = cuda.blockIdx.y * stride_c + cuda.blockIdx.z * stride_slice + (row0 + row + i) * ldc
                put(C, np.uint32(at_c + column0 + column + j), alpha, total[row + i, column + j], beta)


@kernel(block=256)
def gemm_skinny_sum(
    partials: Floats, C: Floats, size: int, n: int, slices: int, ldc: int, stride_c: int, alpha: float, beta: float
) -> None:
    """One thread an element of C: the slices' sums, m×n = `size` elements each, added in ascending order."""
    i = cuda.blockIdx.x * 256 + cuda.threadIdx.x
    if i < size:
        total = ZERO
        for z in range(slices):
            total += partials[np.uint32((cuda.blockIdx.y * slices + z) * size + i)]
        row = np.int64(np.uint32(i) // np.uint32(n))
        put(C, np.uint32(cuda.blockIdx.y * stride_c + row * (ldc - n) + i), alpha, total, beta)


@dataclass(frozen=True)
class Product:
    """One call of `strided`, checked."""

    a: Any
    b: Any
    c: Any
    m: int
    n: int
    k: int
    batch: int
    trans_a: bool
    trans_b: bool
    strides: tuple[int, int, int, int]  #: elements from one row and one column of op(A) to the next, and of op(B)
    ldc: int
    apart: tuple[int, int, int]  #: elements from one matrix of the batch to the next, in a, b and c
    scale: tuple[float, float]  #: alpha and beta
    workspace: Any
    stream: Any
    by_columns: bool


@dataclass(frozen=True)
class Tiles:
    """A kernel and the part of C that one of its blocks computes."""

    kernel: Kernel
    rows: int
    columns: int

    def run(self, product: Product) -> None:
        p, across = product, ceil_div(product.n, self.columns)
        grid = (ceil_div(p.m, self.rows) * across, p.batch)
        sizes = (p.m, p.n, p.k, across, *p.strides, p.ldc, *p.apart, *p.scale)
        launch(self.kernel, grid, p.a, p.b, p.c, *sizes, stream=p.stream, columns=across if p.by_columns else 0)


SKINNY = {trans_b: Tiles(skinny(trans_b), 32, 128) for trans_b in BOTH}
SKINNY_ROWS = {True: Tiles(gemm_skinny_rows_t, 32, 128), False: Tiles(gemm_skinny_rows_n, 32, 256)}


def _run_split_fragments(p: Product) -> None:
    """64×64 tiles where C has so few rows or columns that 128×128 would be half empty; the sums are the same."""
    few = min(p.m, p.n) <= 64
    (Tiles(SPLIT_64[p.trans_a, p.trans_b], 64, 64) if few else Tiles(SPLIT_128[p.trans_a, p.trans_b], 128, 128)).run(p)


def _run_vector_rows(p: Product) -> None:
    tile = 64 if min(p.m, p.n) <= 64 else 128
    Tiles(VECTOR_ROWS[tile, p.trans_a, p.trans_b], tile, tile).run(p)


def best_rung(where: str) -> str:
    """The rung that the machine runs best: "cpu" or "gpu" is where the arrays are.

    All of them add up in the same order, so the choice changes no bit.  A CPU wants an accumulator's rows to be whole
    vector registers: of 16 elements with AVX-512, of 8 without; the four fragments of `split_fragments` are neither.
    """
    if where == "gpu":
        return "split_fragments"
    return "vector_rows" if cpu.has_avx512() else "register_2d"


def skinny_tiles(where: str) -> dict[bool, Tiles]:
    """The kernels of `skinny`, by whether B is transposed: for the reason of `best_rung`, and with the same sums."""
    return SKINNY_ROWS if best_rung(where) == "vector_rows" else SKINNY


def _run_best(p: Product) -> None:
    ALGORITHMS[best_rung(place(p.a))].run(p)


SLICE_STEP = 16  #: slices of k are multiples of the depth of skinny's pieces
SHORTEST_SLICE = 128  #: under this the partial results cost more than the parallel slices win
WANTED_BLOCKS = 512  #: four blocks for each multiprocessor of a large GPU


def slices_of(m: int, n: int, k: int) -> tuple[int, int]:
    """(how many slices of k `skinny` makes, how long each is but the last): enough to have WANTED_BLOCKS blocks."""
    tiles = ceil_div(m, 32) * ceil_div(n, 128)
    wanted = max(1, min(ceil_div(WANTED_BLOCKS, tiles), k // SHORTEST_SLICE))
    length = ceil_div(ceil_div(k, wanted), SLICE_STEP) * SLICE_STEP
    return ceil_div(k, length), length


def _run_skinny(p: Product) -> None:
    (slices, length), size, run = slices_of(p.m, p.n, p.k), p.m * p.n, skinny_tiles(place(p.a))[p.trans_b]
    across = ceil_div(p.n, run.columns)
    tiles, strides_ab, apart_ab = ceil_div(p.m, run.rows) * across, p.strides, p.apart[:2]
    head = (p.m, p.n, p.k, across, *strides_ab)
    if slices == 1 or p.workspace is None:
        tail = (p.ldc, *p.apart, *p.scale, length, slices, 0)
        launch(run.kernel, (tiles, p.batch), p.a, p.b, p.c, *head, *tail, stream=p.stream)
        return
    partials = flat(p.workspace)
    tail = (p.n, *apart_ab, slices * size, 1.0, 0.0, length, 1, size)
    launch(run.kernel, (tiles, p.batch, slices), p.a, p.b, partials, *head, *tail, stream=p.stream)
    grid = (ceil_div(size, 256), p.batch)
    launch(gemm_skinny_sum, grid, partials, p.c, size, p.n, slices, p.ldc, p.apart[2], *p.scale, stream=p.stream)


def _skinny_workspace(m: int, n: int, k: int, batch: int) -> int:
    slices, _ = slices_of(m, n, k)
    return 4 * slices * m * n * batch if slices > 1 else 0


def _no_workspace(m: int, n: int, k: int, batch: int) -> int:
    return 0


@dataclass(frozen=True)
class Rung:
    """A step of the ladder."""

    summary: str
    run: Callable[[Product], None]
    workspace_bytes: Callable[[int, int, int, int], int] = _no_workspace  #: of (m, n, k, batch)


ALGORITHMS: dict[str, Rung] = {
    "coalesced": Rung("neighbouring threads along a row", Tiles(gemm_coalesced, 8, 32).run),
    "tiled": Rung("pieces of A and B in shared memory", Tiles(gemm_tiled, 16, 16).run),
    "register_1d": Rung("8 elements a thread, in registers", Tiles(gemm_register_1d, 64, 64).run),
    "register_2d": Rung("8×8 elements a thread", Tiles(gemm_register_2d, 128, 128).run),
    "double_buffered": Rung("loads the next pieces while it computes", Tiles(gemm_double_buffered, 128, 128).run),
    "split_fragments": Rung("wide reads, deep pieces, two blocks at a time", _run_split_fragments),
    "vector_rows": Rung("rows of 16 elements, a CPU's vector registers", _run_vector_rows),
    "skinny": Rung("few rows: k in slices, added in order", _run_skinny, workspace_bytes=_skinny_workspace),
    "best": Rung("the rung that the machine runs best", _run_best),
}
BEST = "best"


def workspace_bytes(m: int, n: int, k: int, algorithm: str = BEST, batch: int = 1) -> int:
    """Bytes of workspace that `algorithm` wants for a batch of m×k times k×n; it runs without one too, slower."""
    return _rung("gemm.workspace_bytes", algorithm).workspace_bytes(m, n, k, batch)


def gemm(
    a: Any, b: Any, c: Any, *, trans_a: bool = False, trans_b: bool = False, alpha: float = 1.0, beta: float = 0.0,
    algorithm: str = BEST, workspace: Any = None, stream: Any = None,
) -> None:  # fmt: skip
    """C = alpha·op(A)·op(B) + beta·C over matrices or batches of them (three axes; one matrix may serve a whole batch).

    The elements of a row must be neighbours in memory; rows and matrices may have gaps between them.
    """
    where = "gemm.gemm"
    for name, array in (("a", a), ("b", b), ("c", c)):
        _check_matrix(where, name, array)
    m, n = c.shape[-2:]
    k = a.shape[-2] if trans_a else a.shape[-1]
    batch = c.shape[0] if c.ndim == 3 else 1
    for name, array, matrix in (("a", a, (k, m) if trans_a else (m, k)), ("b", b, (n, k) if trans_b else (k, n))):
        expected = (batch, *matrix) if array.ndim == 3 else matrix
        if tuple(array.shape) != expected:
            raise KernelError(f"{where}: {name} has shape {tuple(array.shape)}, expected {expected}")
    (stride_a, lda), (stride_b, ldb), (stride_c, ldc) = _steps(a), _steps(b), _steps(c)
    strided(
        flat(a), flat(b), flat(c), m=m, n=n, k=k, lda=lda, ldb=ldb, ldc=ldc, batch=batch,
        stride_a=stride_a, stride_b=stride_b, stride_c=stride_c, trans_a=trans_a, trans_b=trans_b,
        alpha=alpha, beta=beta, algorithm=algorithm, workspace=workspace, stream=stream,
    )  # fmt: skip


def strided(
    a: Any, b: Any, c: Any, *, m: int, n: int, k: int, lda: int, ldb: int, ldc: int, batch: int = 1,
    stride_a: int = 0, stride_b: int = 0, stride_c: int = 0, trans_a: bool = False, trans_b: bool = False,
    alpha: float = 1.0, beta: float = 0.0, algorithm: str = BEST, workspace: Any = None, stream: Any = None,
    by_columns: bool = False,
) -> None:  # fmt: skip
    """The same over flat arrays; an array that starts further on is a slice.

    `lda` is the number of elements from one row of A, as it is stored, to the next, `stride_a` the number from one
    matrix of the batch to the next (0: the same one for all); so for b and c.  `by_columns`: the images are side by
    side in the columns of C, so each thread of a CPU computes some columns of all matrices (see `launch`).
    """
    where = "gemm.strided"
    rung = _rung(where, algorithm)
    if min(m, n, k, batch) < 1 or batch > 65535:
        raise KernelError(
            f"{where}: m, n and k are {m}, {n} and {k}, batch is {batch}; at least 1, the batch at most 65535"
        )
    for name, array, rows, columns, line, stride in (
        ("a", a, k if trans_a else m, m if trans_a else k, lda, stride_a),
        ("b", b, n if trans_b else k, k if trans_b else n, ldb, stride_b),
        ("c", c, m, n, ldc, stride_c),
    ):
        if line < columns or stride < 0:
            raise KernelError(f"{where}: ld{name} is {line} and stride_{name} {stride}; rows of {name} have {columns}")
        needed = (batch - 1) * stride + (rows - 1) * line + columns
        if array.ndim != 1 or array.shape[0] < needed:
            raise KernelError(f"{where}: {name} has shape {tuple(array.shape)}; give {needed} elements or more, flat")
        if place(array) != place(a):
            raise KernelError(f"{where}: a is on the {place(a).upper()} but {name} on the {place(array).upper()}")
    one_by_one = stride_c >= (m - 1) * ldc + n
    interleaved = stride_c >= n and ldc >= (batch - 1) * stride_c + n
    if batch > 1 and not one_by_one and not interleaved:
        raise KernelError(f"{where}: matrices of c overlap: {m} rows of {n}, ldc is {ldc} and stride_c {stride_c}")
    workspace = given_workspace(workspace)
    if workspace is not None:
        check(where, a=a, workspace=workspace)
        have, wanted = 4 * math.prod(workspace.shape), rung.workspace_bytes(m, n, k, batch)
        if have < wanted:
            raise KernelError(f"{where}: workspace has {have} bytes, {algorithm} needs {wanted} (or None)")
    product = Product(
        a, b, c, m, n, k, batch, trans_a, trans_b,
        (*((1, lda) if trans_a else (lda, 1)), *((1, ldb) if trans_b else (ldb, 1))),
        ldc, (stride_a, stride_b, stride_c), (alpha, beta), workspace, stream, by_columns,
    )  # fmt: skip
    rung.run(product)


def _rung(where: str, algorithm: str) -> Rung:
    if algorithm in ALGORITHMS:
        return ALGORITHMS[algorithm]
    near = difflib.get_close_matches(str(algorithm), ALGORITHMS, 1, 0)[0]
    raise KernelError(f"{where}: no algorithm {algorithm!r}; did you mean {near!r}? There are {', '.join(ALGORITHMS)}")


def _steps(array: Any) -> tuple[int, int]:
    """Elements from one matrix to the next (0 for a single one), and from one row to the next."""
    rows, columns = array.shape[-2:]
    line = strides(array)[-2] if rows > 1 else columns
    return (strides(array)[0] if array.ndim == 3 and array.shape[0] > 1 else 0), line


def _check_matrix(where: str, name: str, array: Any) -> None:
    if not is_array(array):
        raise KernelError(f"{where}: {name} is a {type(array).__name__}; give a NumPy array or a device array")
    if dtype_of(array) != np.float32:
        raise KernelError(f"{where}: {name} is {dtype_of(array)}; only float32 is supported here")
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise KernelError(
            f"{where}: {name} has shape {tuple(array.shape)}; give a matrix or a batch of them, not empty"
        )
    if (array.shape[-1] > 1 and strides(array)[-1] != 1) or min(strides(array)) < 0:
        raise KernelError(
            f"{where}: {name} has strides {strides(array)} elements; the elements of a row must be neighbours"
        )
