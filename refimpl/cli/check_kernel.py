"""`refimpl check-kernel`: a kernel of the reader's, run on the emulated GPU with every check on."""

from __future__ import annotations

import argparse
import os
import re
from math import prod
from pathlib import Path
from typing import Any

from refimpl.cli.arguments import DEVICE_FAILED, DONE, WRONG, Fail, Parser, whole
from refimpl.cli.terminal import say
from refimpl.network.imported.own_code import executed
from refimpl.text import counted

TYPES = ("float32", "f4", "float64", "f8", "int32", "i4", "int64", "i8")
SEEDS = 4


def add(parser: Parser) -> None:
    parser.describe(
        "Compile a Numba CUDA kernel, run it on the emulated GPU in several orders of its blocks and threads, and say "
        "what the checks find: accesses outside of the arrays or misaligned, shared memory that was not written, "
        "barriers that not all threads reach, and races.  An array is filled with drawn numbers, one of whole numbers "
        "with 0, 1, 2, …  It shows errors; that a kernel computes what you want is for you to test.",
        [
            "refimpl check-kernel my_kernels.py:scale --grid 4 --block 64 --with float32[250] float32[250] 250",
            "refimpl check-kernel my_kernels.py:transpose --grid 2,2 --block 16,16 --with f4[32,32] f4[32,32]",
        ],
    )  # fmt: skip
    parser.add_argument("kernel", metavar="FILE:NAME", help="a file and the name of a kernel in it")
    parser.add_argument(
        "--with", dest="given", nargs="+", default=[], metavar="ARGUMENT",
        help="what it is given: an array as float32[250], or a number",
    )  # fmt: skip
    parser.add_argument("--grid", type=numbers, default=(1,), metavar="X[,Y[,Z]]", help="blocks (default: 1)")
    parser.add_argument("--block", type=numbers, metavar="X[,Y[,Z]]", help="threads of a block (default: 64)")
    parser.add_argument(
        "--seeds", type=whole(0, 1000), default=SEEDS, metavar="N",
        help=f"orders that are drawn, beside the plain one (default: {SEEDS})",
    )  # fmt: skip


def numbers(text: str) -> tuple[int, ...]:
    """One to three whole numbers, as in 16,16."""
    if not re.fullmatch(r"[1-9][0-9]{0,9}(,[1-9][0-9]{0,9}){0,2}", text):
        raise argparse.ArgumentTypeError(f"give one to three whole numbers of at least 1, as in 16,16; not {text!r}")
    return tuple(int(part) for part in text.split(","))


def run(options: argparse.Namespace) -> int:
    from kernels import emulated, gpu

    if reason := emulated.why_not() or gpu.why_not_compile():
        raise Fail(reason, DEVICE_FAILED)
    try:
        emulated.start(races="always")
        function, name, block = loaded(options.kernel)
        threads = options.block or block or (64,)
        for seed in range(options.seeds + 1):
            emulated.order("late", seed)
            found = launched(function, options.grid, threads, options.given)
            if found:
                order = f"in the order drawn from seed {seed}" if seed else "in the plain order"
                say(f"{name}: found {order} of blocks and threads:")
                for finding in found:
                    say(f"  {finding}")
                return WRONG
    except emulated.Unsupported as error:
        raise Fail(f"{options.kernel}: the emulated GPU does not know this: {error}") from None
    except (emulated.EmulationError, emulated.NoCompiler) as error:
        raise Fail(str(error), DEVICE_FAILED) from None
    say(f"{name}: nothing found in {counted(options.seeds + 1, 'order')} of blocks and threads.")
    return DONE


def loaded(text: str) -> tuple[Any, str, tuple[int, ...] | None]:
    """Numba's dispatcher of the kernel that was named, its name, and its block if its declaration has one."""
    import numba

    from kernels.declare import Kernel
    from kernels.shim import cuda

    numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a small grid is what one checks with

    path, _, name = text.rpartition(":")
    if not path or not Path(path).is_file():
        raise Fail(f"{text}: give a file and a kernel in it, as in my_kernels.py:scale")
    found = getattr(executed(path, os.stat(path).st_mtime_ns), name, None)
    if isinstance(found, Kernel):
        return found.gpu, name, found.block
    if hasattr(found, "py_func"):
        return found, name, None
    if callable(found):
        return cuda.jit(found), name, None
    raise Fail(f"{path} has no kernel {name}")


def launched(function: Any, grid: tuple[int, ...], block: tuple[int, ...], arguments: list[str]) -> list[str]:
    """Run a kernel once on fresh arguments; what the checks found."""
    from numba.core.errors import NumbaError

    from kernels import emulated, gpu

    wanted = len(function.py_func.__code__.co_varnames[: function.py_func.__code__.co_argcount])
    if len(arguments) != wanted:
        raise Fail(f"{function.py_func.__name__} takes {wanted} arguments, and {len(arguments)} are given")
    values = [argument(text) for text in arguments]
    try:
        function[grid, block](*values)
        gpu.synchronize()
    except NumbaError as error:
        raise Fail(f"{function.py_func.__name__} cannot be compiled: {str(error).strip().splitlines()[0]}") from None
    except Exception:
        if not emulated.findings():
            raise
    return emulated.forgive()


def argument(text: str) -> Any:
    """A device array for `float32[250]`, or a number."""
    import numpy as np

    from kernels import gpu

    if found := re.fullmatch(r"(\w+)\[([0-9]+(?:,[0-9]+)*)\]", text):
        if found[1] not in TYPES:
            raise Fail(f"{text}: give an array of {', '.join(TYPES)}")
        shape = tuple(int(part) for part in found[2].split(","))
        dtype = np.dtype(found[1])
        drawn = np.arange(prod(shape)) if dtype.kind == "i" else np.random.default_rng(0).standard_normal(prod(shape))
        return gpu.to_device(drawn.astype(dtype).reshape(shape))
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return np.float32(text)
    except ValueError:
        raise Fail(f"{text!r} is neither an array, as in float32[250], nor a number") from None
