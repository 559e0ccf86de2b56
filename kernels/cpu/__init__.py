"""Kernels without a GPU: a kernel's own source compiled for the CPU.

A CUDA kernel says what one thread does.  Here the threads of a block become a loop and the blocks are shared out over
the cores.  In five steps, one file each:

    vocabulary   the kernel's source with cuda.threadIdx and the rest replaced by plain variables
    barriers     the body cut at cuda.syncthreads(), each piece in a loop over the block's threads
    source       the result as a readable module on disk            inference   with the types of what it saves
    build        compiled by Numba, kept for later processes        runtime     what generated modules import
    threads      run on all cores

`checked` runs the same kernels slowly and suspiciously: see there.  `source_of(kernel)` shows what was generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

from kernels.cpu.build import load, source_text
from kernels.cpu.checked import checked, current_mode
from kernels.cpu.processor import has_avx512
from kernels.cpu.threads import run_blocks
from kernels.cpu.vocabulary import UnsupportedKernel
from kernels.declare import Dim3, Kernel

__all__ = ["UnsupportedKernel", "checked", "has_avx512", "run", "source_of"]


def run(kernel: Kernel, grid: Dim3, values: Sequence[Any]) -> None:
    """Make one launch; the kernel is compiled at the first one.  `values` are as `Kernel.values` returns them."""
    mode = current_mode()
    if mode is not None:
        mode.run(kernel, grid, values)
        return
    run_blocks(_compiled(kernel), prod(grid), *grid, *values)


@cache
def _compiled(kernel: Kernel) -> Callable[..., None]:
    run: Callable[..., None] = load(kernel).run
    return run


def source_of(kernel: Kernel, checked: bool = False) -> str:
    """The generated module, as text."""
    return source_text(kernel, checked)
