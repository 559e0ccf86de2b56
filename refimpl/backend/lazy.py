"""Memory that the operating system gives page by page, as it is touched.

A program's addresses may reach far without filling what is between: what vDNN++ keeps is at the right end of the
budget, and a compressed map has room for its worst.  `numpy.zeros` would do for small sizes; for one near that of the
machine's memory it may fill all of it with zeros, one by one.
"""

from __future__ import annotations

import mmap
import sys

import numpy as np

NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  #: Linux's number; older Pythons do not name it


def lazy_zeros(nbytes: int) -> np.ndarray:
    """`nbytes` zeros.  Raises `MemoryError`."""
    if not nbytes or sys.platform != "linux":
        return np.zeros(nbytes, np.uint8)
    try:
        taken = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    except (OSError, OverflowError) as error:
        raise MemoryError(str(error)) from None
    return np.frombuffer(taken, np.uint8)
