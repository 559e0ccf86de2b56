"""What generated modules import: memory on the stack, and the checks of checked mode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np import arrayobj

from kernels.arguments import contiguous_strides

# Reports of checked mode: what a failed check writes down before it raises (see `checked`).
KIND, SITE, INDEX_FOUND, SIZE, THREAD, OTHER_THREAD, BLOCK_X, BLOCK_Y, BLOCK_Z = range(9)
REPORT_LENGTH = 9
INDEX, AGREE = 1, 2


@intrinsic(prefer_literal=True)
def stack(typing_context: Any, shape: Any, dtype: Any) -> Any:
    """An array of this shape (a tuple of literals) on the stack.

    LLVM knows such memory: it cannot alias an argument, and a small array under constant loops becomes registers.
    """
    dimensions = [length.literal_value for length in shape]
    array_type = types.Array(dtype.dtype, len(dimensions), "C")

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        element, length = context.get_data_type(array_type.dtype), math.prod(dimensions)
        with builder.goto_entry_block():  # cgutils.alloca_once would fill it with zeros too, in minutes of compilation
            memory = builder.alloca(ir.ArrayType(element, length))
        memory.align = 64
        data = builder.bitcast(memory, ir.PointerType(element))
        itemsize = context.get_abi_sizeof(element)
        strides = [itemsize * stride for stride in contiguous_strides(tuple(dimensions))]
        shape, strides, (itemsize,) = (
            [context.get_constant(types.intp, value) for value in values]
            for values in (dimensions, strides, [itemsize])
        )
        array = context.make_array(array_type)(context, builder)
        arrayobj.populate_array(array, data, shape, strides, itemsize, meminfo=None)  # nobody counts references to it
        return array._getvalue()

    return array_type(shape, dtype), generate


@njit
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
