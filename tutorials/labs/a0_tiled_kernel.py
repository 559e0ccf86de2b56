"""Lab A0: a tiled kernel.  The handout is tutorials/handouts/a0.md; the tests say, step by step, what is missing:

pytest tutorials/labs/test_a0.py -x
"""

from __future__ import annotations

import numpy as np  # noqa: F401

from kernels.targets.launch import Floats, kernel
from kernels.targets.shim import cuda  # noqa: F401

TILE = 16


@kernel(block=(TILE, TILE))
def tiled(A: Floats, B: Floats, C: Floats, m: int, n: int, k: int) -> None:
    """C = A·B; A[i, p] is A[i * k + p].  The grid has a thread an element of C: x along a row, y down a column."""
    raise NotImplementedError("write C[row * n + column] for the thread's own row and column, if C has them")
