"""`refimpl check-kernel`: a kernel of the reader's, run on the emulated GPU with every check on."""

from __future__ import annotations

import argparse
import inspect
import os
import re
from math import prod
from pathlib import Path
from typing import Any

from refimpl.cli.parser import DEVICE_FAILED, DONE, WRONG, Fail, Parser
from refimpl.cli.terminal import say
from refimpl.importing.own_code import executed
from refimpl.text import counted, one_line, size

TYPES = ("float32", "f4", "float64", "f8", "int32", "i4", "int64", "i8")
SEEDS = 4  #: orders of blocks and threads that are drawn, beside the plain one
MOST_BLOCKS = 2**31 - 1
LARGEST = 1 << 28  #: bytes of an array
MOST_AXES = 32
STAR, STARS = inspect.CO_VARARGS, inspect.CO_VARKEYWORDS


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


def numbers(text: str) -> tuple[int, ...]:
    """One to three whole numbers, as in 16,16."""
    found = re.fullmatch(r"[1-9][0-9]{0,9}(,[1-9][0-9]{0,9}){0,2}", text)
    if not found or max(sizes := tuple(map(int, text.split(",")))) > MOST_BLOCKS:
        wanted = f"one to three whole numbers of 1 to {MOST_BLOCKS}, as in 16,16"
        raise argparse.ArgumentTypeError(f"give {wanted}; not {text!r}")
    return sizes


def run(options: argparse.Namespace) -> int:
    from kernels.targets import emulated, gpu

    if reason := emulated.why_not() or gpu.why_not_compile():
        raise Fail(reason, DEVICE_FAILED)
    try:
        emulated.start(races="always")
        function, name, block = loaded(options.kernel)
        threads = options.block or block or (64,)
        for seed in range(SEEDS + 1):
            emulated.order("late", seed)
            found = launched(function, options.grid, threads, options.given)
            if found:
                order = f"in the order drawn from seed {seed}" if seed else "in the plain order"
                say(f"{name}: found {order} of blocks and threads:")
                for finding in found:
                    say(f"  {finding}")
                return WRONG
    except emulated.UnsupportedPtx as error:
        raise Fail(f"{options.kernel}: the emulated GPU does not know this: {error}") from None
    except (emulated.EmulationError, emulated.NoCompiler) as error:
        raise Fail(str(error), DEVICE_FAILED) from None
    say(f"{name}: nothing found in {counted(SEEDS + 1, 'order')} of blocks and threads.")
    return DONE


def loaded(text: str) -> tuple[Any, str, tuple[int, ...] | None]:
    """Numba's dispatcher of the kernel that was named, its name, and its block if its declaration has one."""
    import numba

    from kernels.targets.declare import Kernel
    from kernels.targets.shim import cuda

    numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a small grid is what one checks with

    path, _, name = text.rpartition(":")
    if not path or not Path(path).is_file():
        raise Fail(f"{text}: give a file and a kernel in it, as in my_kernels.py:scale")
    found = getattr(executed(path, os.stat(path).st_mtime_ns), name, None) if name else None
    if found is None:
        raise Fail(f"{path} has no kernel {name}".rstrip())
    if isinstance(found, Kernel):
        return found.gpu, name, found.block
    function = getattr(found, "py_func", found)
    if not inspect.isfunction(function):
        raise Fail(f"{path}: {name} is a {type(found).__name__}, not a kernel: a function, or one under @cuda.jit")
    if inspect.isgeneratorfunction(function) or function.__code__.co_flags & (STAR | STARS):
        raise Fail(f"{path}: {name} yields or takes any number of arguments, which no kernel can")
    if getattr(found, "targetoptions", {}).get("device"):
        raise Fail(f"{path}: {name} is a function for kernels to call (device=True); give a kernel that calls it")
    return cuda.jit(found) if found is function else found, name, None


def launched(function: Any, grid: tuple[int, ...], block: tuple[int, ...], arguments: list[str]) -> list[str]:
    """Run a kernel once on fresh arguments; what the checks found."""
    from kernels.targets import emulated, gpu

    wanted = len(function.py_func.__code__.co_varnames[: function.py_func.__code__.co_argcount])
    if len(arguments) != wanted:
        raise Fail(f"{function.py_func.__name__} takes {wanted} arguments, and {len(arguments)} are given")
    values = [argument(text) for text in arguments]
    try:
        function[grid, block](*values)
        gpu.synchronize()
    except emulated.UnsupportedPtx:
        raise
    except Exception as error:  # Numba's compiler raises its own errors and Python's, NVVM and the linker theirs
        if not emulated.findings():
            raise Fail(f"{function.py_func.__name__} cannot be compiled: {reason(error, function)}") from None
    return emulated.forgive()


def reason(error: Exception, function: Any) -> str:
    """In one line why a kernel cannot be compiled, and where in its source if Numba says it."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    place = re.search(r'File "([^"]+)", line (\d+)', text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in lines if not line.startswith("Failed in ")), "") or type(error).__name__
    if said.endswith("found for signature:"):
        said = f"{said.removesuffix(' found for signature:')} for {' '.join(lines[lines.index(said) + 1 :][:1])}"
    if said.startswith("ERROR_"):  # NVVM's, or the linker's, whose words come after it
        said = re.sub(r"'_Z\w+'|\s*\b_Z\w+", "", " ".join(lines))
    where = f" ({place[1]}, line {place[2]})" if place else f" ({function.py_func.__code__.co_filename})"
    atomic = atomics(function.py_func) if type(error).__module__.startswith("numba.cuda.cudadrv") else ""
    return f"{one_line(said)}{where}{atomic}"


def atomics(function: Any) -> str:
    """The lines of a kernel with atomic operations, which NVVM has for some types and places alone."""
    lines, first = inspect.getsourcelines(function)
    found = [f"line {first + n}: {line.strip()}" for n, line in enumerate(lines) if ".atomic." in line]
    return f"; NVVM does not have every atomic operation for every type: {'; '.join(found)}" if found else ""


def argument(text: str) -> Any:
    """A device array for `float32[250]`, or a number."""
    import numpy as np

    from kernels.targets import gpu

    if found := re.fullmatch(r"(\w+)\[([0-9]+(?:,[0-9]+)*)\]", text):
        if found[1] not in TYPES:
            raise Fail(f"{text}: give an array of {', '.join(TYPES)}")
        shape = tuple(int(part) for part in found[2].split(","))
        dtype = np.dtype(found[1])
        if prod(shape) * dtype.itemsize > LARGEST or len(shape) > MOST_AXES:
            raise Fail(f"{one_line(text)[:80]}: give an array of at most {size(LARGEST)} and {MOST_AXES} axes")
        drawn = np.arange(prod(shape)) if dtype.kind == "i" else np.random.default_rng(0).standard_normal(prod(shape))
        return gpu.to_device(drawn.astype(dtype).reshape(shape))
    if re.fullmatch(r"[+-]?[0-9]+", text):
        if not -(2**63) <= (number := int(text[:40])) < 2**64:
            raise Fail(f"{one_line(text)[:80]}: give a number that 64 bits hold")
        return number
    try:
        return np.float32(text)
    except ValueError:
        raise Fail(f"{text!r} is neither an array, as in float32[250], nor a number") from None
