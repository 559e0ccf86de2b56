"""The plain kernels are what the others are held to: they beside NumPy, the fast kernels beside them.

With `--device emulated` every launch of either is made from its PTX, too, and has to come to the same bits.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

from kernels.targets import cpu
from tests.kernels.operations import FAST, NUMPY, OPERATIONS, PLAIN, WITH_FAST_KERNELS, Draw, as_on_a_gpu
from tests.matrix import some

#: Operations whose sums have one natural order, or of which these results are products, sums of two numbers, or
#: counted: the fast kernels have the plain ones' bits.  The others cut a sum into pieces; or LLVM vectorises the
#: products of one of the two, and then it does not fuse them with their sum.
ALL = range(9)
SAME_BITS = {
    "pool max": ALL, "pool average": ALL, "relu": ALL, "dropout": ALL, "sgd": ALL, "concat and join": ALL,
    "hardswish": ALL, "mul gate": ALL, "elementwise": ALL, "mul and scale": (0, 1, 3, 4, 5), "sigmoid": (1, 2),
    "pixel_softmax": (2,), "pieces": (1,), "conv bias": (0,),
}  # fmt: skip


def seeds() -> range:
    """As hypothesis's profile has it: few on the emulated GPU, many in a campaign."""
    return range(max(4, settings().max_examples // 2))


def close(name: str, found: list[np.ndarray], expected: list[np.ndarray], seed: int, room: float = 1e-5) -> None:
    """Relative to the largest number of an array; the plain kernels add up all values of a set, one after the other."""
    room = 1e-4 if name == "layernorm and rmsnorm" else room
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        largest = np.abs(other[np.isfinite(other)]).max(initial=1e-3)
        np.testing.assert_allclose(one, other, rtol=0, atol=room * largest, err_msg=f"{place}, seed {seed}")


@pytest.mark.ptx
@pytest.mark.parametrize("name", OPERATIONS)
def test_plain_kernels_come_to_what_numpy_comes_to(name: str) -> None:
    for seed in seeds():
        with np.errstate(all="ignore"):
            expected = OPERATIONS[name](NUMPY, Draw(seed))
        close(name, OPERATIONS[name](PLAIN, Draw(seed)), expected, seed)


#: The CPU's compiler fuses one of the products of `gemm` with the sum that it is added to, the PTX neither.
FROM_PTX = [pytest.param(name, marks=pytest.mark.ptx(rounded=name == "attention")) for name in WITH_FAST_KERNELS]


@pytest.mark.parametrize("name", FROM_PTX)
def test_fast_kernels_come_to_what_plain_ones_come_to(name: str, by_way_of_ptx: bool) -> None:
    for seed in seeds():
        fast = OPERATIONS[name](FAST, Draw(seed))
        if by_way_of_ptx:  # the test below compares these kernels
            continue
        plain = OPERATIONS[name](PLAIN, Draw(seed))
        close(name, fast, plain, seed)
        for place in {*SAME_BITS.get(name, ())} & {*range(len(plain))}:
            np.testing.assert_array_equal(fast[place], plain[place], err_msg=f"{place}, seed {seed}")


#: Operations of families that choose by where the arrays are.  What other vectors take, their own tests compare.
BY_PLACE = (
    "conv", "conv groups", "pool max", "pool_position", "fc", "fc forward", "batchnorm", "layernorm and rmsnorm",
    "pieces", "attention",
)  # fmt: skip


@pytest.mark.emulated  # with all that compiles for GPUs
@pytest.mark.slow
@pytest.mark.parametrize("name", BY_PLACE)
def test_the_kernels_for_a_gpu_come_to_the_bits_of_those_for_a_cpu(name: str) -> None:
    for seed in seeds():
        here = OPERATIONS[name](FAST, Draw(seed))
        with as_on_a_gpu():
            there = OPERATIONS[name](FAST, Draw(seed))
        if name in ("conv groups", "attention"):  # depthwise kernels and products that are added have other orders
            close(name, there, here, seed)
        else:
            assert [one.tobytes() for one in there] == [one.tobytes() for one in here], f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", some(OPERATIONS, "conv", "pool max"))
def test_every_index_of_a_plain_kernel_is_inside_its_row(name: str) -> None:
    with cpu.checked(order=1):  # fewer products are fused with their sums
        found = OPERATIONS[name](PLAIN, Draw(-1))
    close(name, found, OPERATIONS[name](PLAIN, Draw(-1)), -1)
