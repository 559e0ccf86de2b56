"""Integer division by a number that is the same for all threads: one multiplication and a shift.

A GPU has no instruction that divides integers: `//` on uint32 becomes about 20, while an element-wise kernel has about
76 in all before it costs bandwidth.  But what an index is decoded by (the width of a map, a stride) is known before the
launch.  So the host computes a scaled reciprocal once, and the kernel multiplies by it (Granlund and Montgomery,
"Division by invariant integers using multiplication", PLDI 1994):

    launch(rows, grid, x, width, reciprocal(width))         # on the host: one more int argument
    row = divide(i, by_width)                               # in the kernel: i // width, exactly, for 0 <= i < 2**31
    column = i - row * width
"""

from __future__ import annotations

import numpy as np

from kernels.targets.declare import device


def reciprocal(divisor: int) -> int:
    """What `divide` needs for a divisor from 1 to 2**31 - 1: a multiplier (low 32 bits) and a shift (above).

    With 2**(l-1) < divisor <= 2**l the multiplier is 2**(31+l) / divisor rounded up.  It is too large by less than
    2**-31 of its value, so the product with n < 2**31, shifted right by 31 + l, is never one too many.
    """
    shift = 31 + (divisor - 1).bit_length()
    return shift << 32 | -(-(1 << shift) // divisor)


@device
def divide(n: int, by: int) -> int:
    """n // divisor for 0 <= n < 2**31, where by = reciprocal(divisor); an int32."""
    product = np.uint64(np.uint32(n)) * np.uint64(np.uint32(by))
    return np.int32(product >> np.uint64(by >> 32))
