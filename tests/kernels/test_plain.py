"""The plain kernels are what the others are held to: they beside NumPy, the fast kernels beside them.

With `--device emulated` every launch of either is made from its PTX, too, and has to come to the same bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings

import kernels.fast
from kernels.checks import arguments
from kernels.targets import cpu
from tests.kernels.operations import FAST, NUMPY, OPERATIONS, PLAIN, WITH_FAST_KERNELS, Draw
from tests.matrix import some

pytestmark = pytest.mark.ptx

#: Operations whose sums have one natural order, or of which these results are products, sums of two numbers, or
#: counted: the fast kernels have the plain ones' bits.  The others cut a sum into pieces; or LLVM vectorises the
#: products of one of the two, and then it does not fuse them with their sum.
ALL = range(9)
SAME_BITS = {
    "pool max": ALL, "pool average": ALL, "relu": ALL, "dropout": ALL, "sgd": ALL, "concat and join": ALL,
    "hardswish": ALL, "mul gate": ALL, "elementwise": ALL, "mul and scale": (0, 1, 3, 4, 5), "sigmoid": (1, 2),
    "pixel_softmax": (2,), "pieces": (1,), "conv bias": (0,),
}  # fmt: skip
FAMILIES = [import_module(module.name) for module in walk_packages(kernels.fast.__path__, "kernels.fast.")]


def seeds() -> range:
    """As hypothesis's profile has it: few on the emulated GPU, many in a campaign."""
    return range(settings().max_examples * 4 // 5)


def close(name: str, found: list[np.ndarray], expected: list[np.ndarray], seed: int, room: float = 1e-5) -> None:
    """Relative to the largest number of an array; the plain kernels add up all values of a set, one after the other."""
    room = 1e-4 if name == "layernorm and rmsnorm" else room
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        largest = np.abs(other[np.isfinite(other)]).max(initial=1e-3)
        np.testing.assert_allclose(one, other, rtol=0, atol=room * largest, err_msg=f"{place}, seed {seed}")


@contextlib.contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """The families choose the kernels that they would choose for arrays on a GPU."""
    with contextlib.ExitStack() as patches:
        for module in FAMILIES:
            for name in [name for name, one in vars(module).items() if one is arguments.place]:
                patches.enter_context(mock.patch.object(module, name, lambda array: "gpu"))
        yield


@contextlib.contextmanager
def with_other_vectors() -> Iterator[None]:
    has = cpu.has_avx512()
    with mock.patch.object(cpu, "has_avx512", lambda: not has):
        yield


@pytest.mark.parametrize("name", OPERATIONS)
def test_plain_kernels_come_to_what_numpy_comes_to(name: str) -> None:
    for seed in seeds():
        with np.errstate(all="ignore"):
            expected = OPERATIONS[name](NUMPY, Draw(seed))
        close(name, OPERATIONS[name](PLAIN, Draw(seed)), expected, seed)


#: The CPU's compiler fuses one of the products of `gemm` with the sum that it is added to, the PTX neither.
GEMM_ADDS = [pytest.param("attention", marks=pytest.mark.ptx(rounded=True))]


@pytest.mark.parametrize("name", [*(name for name in WITH_FAST_KERNELS if name != "attention"), *GEMM_ADDS])
def test_fast_kernels_come_to_what_plain_ones_come_to(name: str) -> None:
    """And to the same bits by the kernels that another processor, or a GPU, would take."""
    for seed in seeds():
        plain, fast = OPERATIONS[name](PLAIN, Draw(seed)), OPERATIONS[name](FAST, Draw(seed))
        close(name, fast, plain, seed)
        for place in {*SAME_BITS.get(name, ())} & {*range(len(plain))}:
            np.testing.assert_array_equal(fast[place], plain[place], err_msg=f"{place}, seed {seed}")
        for elsewhere in (as_on_a_gpu, with_other_vectors):
            with elsewhere():
                again = OPERATIONS[name](FAST, Draw(seed))
            if name in ("conv groups", "attention"):  # depthwise kernels and products that are added have other orders
                close(name, again, fast, seed)
                continue
            assert [one.tobytes() for one in again] == [one.tobytes() for one in fast], f"{elsewhere.__name__}, {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", some(OPERATIONS, "conv", "pool max", "embedding, position and prepend"))
def test_every_index_of_a_plain_kernel_is_inside_its_row(name: str) -> None:
    with cpu.checked(order=1):  # fewer products are fused with their sums
        found = OPERATIONS[name](PLAIN, Draw(-1))
    close(name, found, OPERATIONS[name](PLAIN, Draw(-1)), -1)
