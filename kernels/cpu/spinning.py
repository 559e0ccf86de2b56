"""Waiting for another thread without going to sleep, for a while: waking a thread takes 30 to 50 µs, this less than 1.

`threads` has this module compiled once and kept with the compiled kernels.
"""

import platform
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

#: Whether there is the instruction that leaves a core's units to its other thread for some cycles.
HAS_PAUSE = platform.machine() in ("x86_64", "AMD64")


@intrinsic
def first_now(context: Any, numbers: Any) -> Any:
    """The first of the numbers, read from memory each time, after a pause."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if HAS_PAUSE:
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), pause), [])
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load_atomic(array.data, "acquire", 8)

    return types.int64(numbers), generate


@njit("boolean(int64[::1], int64, int64)", nogil=True, cache=True)
def reaches(count: np.ndarray, wanted: int, looks: int) -> bool:
    """Whether the first number is `wanted` or more within some looks at it."""
    for _ in range(looks):  # noqa: SIM110 (Numba has no generators in `any`)
        if first_now(count) >= wanted:
            return True
    return False
