"""Kernels without a GPU: a kernel's own source compiled for the CPU.

A CUDA kernel says what one thread does.  Here the threads of a block become a loop and the blocks are shared out over
the cores.  In five steps, one file each:

    vocabulary   the kernel's source with cuda.threadIdx and the rest replaced by plain variables
    barriers     the body cut at cuda.syncthreads(), each piece in a loop over the block's threads
    source       the result as a readable module on disk            inference   with the types of what it saves
    build        compiled by Numba, kept for later processes        runtime     what generated modules import
    threads      run on all cores           sharing   each of which has its share of the blocks
    lockstep     before the cut: element-wise kernels touch a block's elements in their order

`checked` runs the same kernels slowly and suspiciously: see there.  `source_of(kernel)` shows what was generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from threading import RLock
from typing import Any

import numpy as np

from kernels.targets.cpu.build import load, source_text
from kernels.targets.cpu.checked import checked, current_mode
from kernels.targets.cpu.lockstep import same_arrays
from kernels.targets.cpu.processor import has_avx512
from kernels.targets.cpu.threads import packed, run_blocks
from kernels.targets.cpu.vocabulary import UnsupportedKernel
from kernels.targets.declare import Dim3, Kernel

__all__ = ["UnsupportedKernel", "bind", "checked", "has_avx512", "run", "source_of"]


def run(kernel: Kernel, grid: Dim3, values: Sequence[Any], columns: int = 0) -> None:
    """Make one launch; the kernel is compiled at the first one.  `values` are as `Kernel.values` returns them."""
    mode = current_mode()
    if mode is not None:
        mode.run(kernel, grid, values)
    else:
        run_blocks(packed(_address(kernel, values), grid, values, columns))


def bind(kernel: Kernel, grid: Dim3, values: Sequence[Any], columns: int = 0) -> Callable[[Any], None]:
    """A launch to be made any number of times."""
    work: list[np.ndarray] = []  # nothing is compiled before the first run

    def launch(_stream: Any) -> None:
        if current_mode() is not None:
            run(kernel, grid, values)
            return
        if not work:
            work.append(packed(_address(kernel, values), grid, values, columns))
        run_blocks(work[0])

    return launch


def _address(kernel: Kernel, values: Sequence[Any]) -> int:
    """The address of the compiled loop over blocks; a launch of an element-wise kernel in place has one of its own."""
    first: dict[int, str] = {}
    arrays = [
        (name, value) for name, value in zip(kernel.parameters, values, strict=True) if isinstance(value, np.ndarray)
    ]
    begins = tuple((name, first.setdefault(value.ctypes.data, name)) for name, value in arrays)
    return _compiled(kernel, begins if len(first) < len(begins) else ())


COMPILING = RLock()  #: Python 3.11's parser fails where two threads, as of two ranks, are in it at a time


@cache
def _compiled(kernel: Kernel, begins: tuple[tuple[str, str], ...]) -> int:
    """`begins`: for each array, the first one that begins at the same place; empty where all begin elsewhere."""
    with COMPILING:
        address: int = load(kernel, same=same_arrays(kernel, dict(begins))).run.address
    return address


def source_of(kernel: Kernel, checked: bool = False) -> str:
    """The generated module, as text."""
    return source_text(kernel, checked)
