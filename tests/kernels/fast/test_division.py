"""Division by a number known before the launch: exact in the promised range."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernels.fast.division import divide, reciprocal
from kernels.targets.launch import Ints, Kernel, launch
from kernels.targets.shim import cuda

LARGEST = 2**31 - 1


def divide_all(n: Ints, quotients: Ints, total: int, by: int) -> None:
    i = cuda.grid(1)
    if i < total:
        quotients[i] = divide(n[i], by)


DIVIDE_ALL = Kernel(divide_all, "divide_all", (256, 1, 1), {})  # not declared: it is no kernel of the package


@given(
    divisor=st.one_of(
        st.integers(1, 40),
        st.integers(1, LARGEST),
        st.builds(lambda power, near: min(2**power + near, LARGEST), st.integers(1, 31), st.integers(-1, 1)),
    ),
    multiples=st.lists(st.floats(0, 1), min_size=1, max_size=50),
)
def test_on_both_sides_of_every_step(divisor: int, multiples: list[float]) -> None:
    steps = [int(share * (LARGEST // divisor)) * divisor for share in (0, *multiples, 1)]
    n = [step + near for step in steps for near in (-1, 0, 1, divisor - 1) if 0 <= step + near <= LARGEST] + [LARGEST]
    quotients = np.full(len(n), -1, np.int32)
    launch(DIVIDE_ALL, -(-len(n) // 256), np.array(n, np.int32), quotients, len(n), reciprocal(divisor))
    assert quotients.tolist() == [value // divisor for value in n]
