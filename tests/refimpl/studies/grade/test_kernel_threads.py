"""Threads in turns: what a kernel may say, what it may not do, and what an access costs."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import numpy as np
import pytest

from kernels.targets import cpu
from kernels.targets.launch import launch
from refimpl.importing import own_code
from refimpl.studies.grade.kernel_lab import Shape, equal, sectors_of_tiles
from refimpl.studies.grade.kernel_threads import NotAKernel, Touched, launched, read

SOLUTION = Path(__file__).resolve().parents[4] / "tutorials" / "solutions" / "a0_tiled_kernel.py"
HEAD = "@kernel(block=(16, 2))\ndef tiled(A, B, C, m, n, k):\n"
SHAPE = Shape(2, 16, 3)
ADD = "    column, row = cuda.grid(2)\n    x = cuda.threadIdx.x\n    s = cuda.shared.array((16, 2), np.float32)\n"


def run(body: str, shape: Shape = SHAPE) -> tuple[np.ndarray, Touched]:
    return launched(read((HEAD + body).encode(), "tiled"), *shape.matrices, *shape)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    print(A)\n", "print cannot be called"),
        ("    import os\n", "no import"),
        ("    A.values[0] = 1.0\n", "no A.values"),
        ("    cuda.threadIdx.x = 3\n", "no cuda.threadIdx.x"),
        ("    x = A[__import__('os').getpid()]\n", "cannot be called"),
        ("    x = __builtins__\n", "without an underscore"),
        ("    x = [].append\n", "append here"),
        ("    x = 'a' * 10\n", "numbers alone"),
        ("    x = 9 ** 9\n", "no pow"),
        ("    return\n", "no return"),
        ("    x = (lambda: 1)()\n", "cannot be called"),
    ],
)
def test_a_kernel_is_arithmetic_and_nothing_else(body: str, said: str) -> None:
    with pytest.raises(NotAKernel, match=said):
        read((HEAD + body).encode(), "tiled")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (ADD + "    s[x, row] = A[0]\n    C[row * n + x] = s[15 - x, row]\n", "no barrier between them"),
        (ADD + "    s[0, 0] = A[0]\n", "writes what another one wrote"),
        (ADD + "    C[row * n + x] = A[x]\n", "index 6 of A, which has 0 … 5"),
        (ADD + "    C[-1] = A[0]\n", "index -1 of C"),
        (ADD + "    C[0] = A[0, 1]\n", r"A has shape \(6,\)"),
        (ADD + "    C[0] = A[0.5]\n", "index 0.5 of A"),
        (ADD + "    C[n * m] = A[0]\n", "index 32 of C, which has 0 … 31"),
        (ADD + "    if x < 3:\n        cuda.syncthreads()\n", "some threads wait at this barrier and others do not"),
        (ADD + "    t = cuda.shared.array((200, 200), np.float32)\n", "48 KiB"),
    ],
)  # fmt: skip
def test_what_a_gpu_would_not_forgive(body: str, said: str) -> None:
    with pytest.raises(NotAKernel, match=said):
        run(body)


def test_two_blocks_write_one_element() -> None:
    with pytest.raises(NotAKernel, match="both write element 0 of C"):
        run(
            "    if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0:\n        C[0] = cuda.blockIdx.x + 1\n",
            Shape(2, 32, 3),
        )


def test_sectors_of_an_access() -> None:
    """32 threads that write 2 rows of 16 elements take four sectors; the same element for all of them takes one."""
    _, along = run(ADD + "    C[row * n + x] = A[0]\n")
    assert (along.sectors, along.least) == (4 + 1, 4 + 1)
    _, across = run(ADD + "    C[x * 2 + row] = B[x * 3 + row]\n")
    assert (across.sectors, across.least) == (4 + 6, 4 + 4)


def test_conflicts_of_banks() -> None:
    """A column of an array 32 words wide is in one bank: 16 threads of a warp take 16 turns."""
    _, row = run(ADD + "    s[x, row] = A[0]\n")
    assert (row.conflicts, row.shared) == (0, 1)
    _, column = run(ADD + "    t = cuda.shared.array((16, 32), np.float32)\n    t[x, row] = A[0]\n")
    assert (column.conflicts, column.shared) == (15, 1)


def test_the_solution_is_right_compiled_and_checked_too() -> None:
    shape = Shape(17, 5, 9)
    a, b = shape.matrices
    mine, touched = launched(read(SOLUTION.read_bytes(), "tiled"), a, b, *shape)
    assert equal([float(one) for one in mine], shape) and touched.sectors <= 1.25 * sectors_of_tiles(shape)
    c = np.zeros(shape.m * shape.n, np.float32)
    with cpu.checked(order="reverse"):
        tiled = own_code.executed(str(SOLUTION), 0).tiled
        launch(tiled, (ceil(shape.n / 16), ceil(shape.m / 16)), a, b, c, *shape)
    assert equal([float(one) for one in c], shape)  # compiled, a product is added without rounding it first
