"""The instructions of the processor that kernels are compiled for: the one at hand, or NUMBA_CPU_NAME's.

They are those that Numba gives to LLVM: the processor's own, or NUMBA_CPU_FEATURES, which lists them all
("+avx2,+fma").  A name alone (NUMBA_CPU_NAME) leaves those of the processor at hand.
"""

from functools import cache

from numba.core.registry import cpu_target


@cache
def features() -> frozenset[str]:
    """The instructions, by LLVM's names."""
    _, _, listed = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(each[1:] for each in listed.split(",") if each.startswith("+"))


def has_avx512() -> bool:
    """Whether kernels are compiled for a CPU with AVX-512."""
    return "avx512f" in features()


def has_avx2() -> bool:
    """Whether kernels are compiled for a CPU with AVX2, for which the targets of the bench were set."""
    return "avx2" in features()


def lanes() -> int:
    """Numbers of 32 bits in a vector register."""
    return 16 if has_avx512() else 8
