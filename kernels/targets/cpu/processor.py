"""The vector registers of the processor that kernels are compiled for."""

from functools import cache

from numba.core.registry import cpu_target


@cache
def has_avx512() -> bool:
    """Whether kernels are compiled for a CPU with AVX-512; Numba's settings (NUMBA_CPU_FEATURES) are heeded."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return "+avx512f" in features.split(",")


def lanes() -> int:
    """Numbers of 32 bits in a vector register."""
    return 16 if has_avx512() else 8
