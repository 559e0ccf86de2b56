"""What generated modules import: memory on the stack, and the checks of checked mode."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["AGREE", "INDEX", "agree", "at", "carray", "stack"]

# Reports of checked mode: what a failed check writes down before it raises (see `checked`).
KIND, SITE, INDEX_FOUND, SIZE, THREAD, OTHER_THREAD, BLOCK_X, BLOCK_Y, BLOCK_Z = range(9)
REPORT_LENGTH = 9
INDEX, AGREE = 1, 2


@intrinsic(prefer_literal=True)
def stack(typing_context: Any, length: Any, dtype: Any) -> Any:
    """A pointer to `length` (a literal) elements on the stack.

    LLVM knows such memory: it cannot alias an argument, and a small array under constant loops becomes registers.
    """
    element = dtype.dtype
    signature = types.CPointer(element)(length, dtype)

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        data_type = context.get_data_type(element)
        pointer = cgutils.alloca_once(builder, ir.ArrayType(data_type, length.literal_value))
        pointer.align = 64
        return builder.bitcast(pointer, ir.PointerType(data_type))

    return signature, generate


@njit(forceinline=True)
def at(index, size, site, report):  # type: ignore[no-untyped-def]
    """`index`, if it is one of 0 … size - 1; otherwise the report says where, and the run ends."""
    wide = np.int64(index)
    if wide < 0 or wide >= size:
        report[KIND] = INDEX
        report[SITE] = site
        report[INDEX_FOUND] = wide
        report[SIZE] = size
        raise IndexError("index out of range")
    return wide


@njit
def agree(values, site, report):  # type: ignore[no-untyped-def]
    """The value that all threads of the block have; otherwise the report names two that differ, and the run ends."""
    for thread in range(1, values.size):
        if values[thread] != values[0]:
            report[KIND] = AGREE
            report[SITE] = site
            report[THREAD] = 0
            report[OTHER_THREAD] = thread
            raise RuntimeError("threads disagree")
    return values[0]
