"""Kernels as Numba compiles them for the GPU, kept on disk: the same bytes, whatever a process has compiled before.

Numba counts what a process compiles, and the count is in the names of functions and shared arrays: the first kernel of
each process is `…v1…`, and two kernels of one source can have one name.  Here the names follow from the kernel alone
(`independent`), before NVVM sees them.  An entry of the cache is the PTX and the machine code that are made of it;
nothing in it is executed by Python when it is read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from cuda.bindings import nvjitlink, nvvm

from kernels.targets import emulated, private
from kernels.targets.cpu import build
from kernels.targets.declare import Kernel, Kind, kind_of
from kernels.targets.emulated import unwritten
from kernels.targets.shim import cuda

PTX, CUBIN = "kernel.ptx", "kernel.cubin"


def signature(kernel: Kernel) -> tuple[Any, ...]:
    """The argument types a kernel is compiled for: they follow from its declaration, never from a call."""
    types = cuda.types
    elements = {"Floats": types.float32, "Ints": types.int32, "int": types.int64, "float": types.float32}

    def numba_type(kind: Kind) -> Any:
        if kind.base == "ints":
            return types.UniTuple(types.int64, kind.axes)
        return types.Array(elements[kind.base], kind.axes, "C") if kind.is_array else elements[kind.base]

    return tuple(numba_type(kind_of(name)) for name in kernel.parameters.values())


def compiled(kernel: Kernel) -> Any:
    """The kernel as Numba has it; from the folder of compiled kernels where a process has compiled it before."""
    types, dispatcher, folder = signature(kernel), kernel.gpu, build.cache_directory()
    if types not in dispatcher.overloads:
        try:
            dispatcher.add_overload(_by_numba(kernel) if folder is None else _kept(folder, kernel), types)
        except (OSError, TypeError, AttributeError) as error:
            # A disk that is full, a kernel whose source is in no file, a Numba that describes kernels in another way.
            build.say_once(f"{kernel.name}, compiled for the GPU, cannot be kept: {error}")
    return dispatcher.compile(types)  # at once, if it is there


def _by_numba(kernel: Kernel) -> Any:
    """The kernel, compiled under a name of its own."""
    name = entry_name(kernel)
    with private.modules_changed(lambda modules, entry: independent(modules, entry, name)):
        made = private.made(kernel.function, signature(kernel), kernel.gpu.targetoptions, name)
    made.shown_name = kernel.name
    return made


def _kept(folder: Path, kernel: Kernel) -> Any:
    """The kernel from its entry of the cache, which is written if it is not there."""
    new: list[Any] = []

    def write(entry: Path) -> None:
        new.append(_by_numba(kernel))
        (entry / PTX).write_text(private.ptx_of(new[0]), encoding="utf-8")
        (entry / CUBIN).write_bytes(private.image_of(new[0]))

    entry = build.kept(folder, f"gpu_{kernel.name[:60]}_{_key(kernel)}", write)
    return new[0] if new else _read(entry, kernel)


def _read(entry: Path, kernel: Kernel) -> Any:
    """The kernel as `write` has left it, for Numba as if it had compiled it."""
    ptx, image = (entry / PTX).read_text(encoding="utf-8"), (entry / CUBIN).read_bytes()
    made = private.remade(kernel.function, signature(kernel), entry_name(kernel), kernel.name, ptx, image)
    made.shown_name = kernel.name
    return made


def _key(kernel: Kernel) -> str:
    """Everything that the machine code follows from, the source's lines, which it names, and how it is kept."""
    versions = metadata.version("numba-cuda"), nvvm.version(), nvjitlink.version()
    target = cuda.get_current_device().compute_capability, emulated.active()
    files = __file__, private.__file__, unwritten.__file__
    way = hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()
    parts = build.key(kernel, checked=True), kernel.options, versions, target, way
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


# --- Names -----------------------------------------------------------------------------------------------------------


def entry_name(kernel: Kernel) -> str:
    """The name that a kernel has on the GPU, as a profiler shows it; alone, "min" would be a word of PTX."""
    return re.sub(r"\W", "_", kernel.name) + "_kernel"


def independent(modules: Sequence[str], entry: str, name: str) -> list[str]:
    """The LLVM modules of a kernel, without a trace of what else its process has compiled or of where its source is.

    Functions and shared arrays are numbered in the order in which the kernel and what it calls name them, and a called
    function's module comes in that order, too: Numba has them in a set.

    Args:
        modules: Numba's; the first has the kernel.
        entry: the kernel's name in it.
        name: its new name.
    """
    texts = [_without_traces(text) for text in modules]
    home = {function: text for text in texts for function in DEFINED.findall(text)}
    names, reached = {entry: name}, texts[:1]
    for text in reached:  # which grows meanwhile
        for token in SYMBOL.findall(text):
            names.setdefault(token, f"{'shared' if token.startswith('_cudapy') else 'function'}_{len(names)}")
            if home.get(token, text) not in reached:
                reached.append(home[token])
    return [SYMBOL.sub(lambda found: names[found[0]], text) for text in reached]


SYMBOL = re.compile(r"\b(?:_Z[\w$]+|_cudapy_smem_\d+)")  #: what Numba names, and numbers
DEFINED = re.compile(rf'^define .*?@"?({SYMBOL.pattern})', flags=re.M)


def _without_traces(text: str) -> str:
    """Without the module's number, the folders above a source's own, and Numba's variables that no GPU uses."""
    text = re.sub(r'^(; ModuleID = |@"?_ZN08NumbaEnv).*\n', "", text, flags=re.M)
    return re.sub(r'directory: "[^"]*?([^/"]*)"', r'directory: "\1"', text)
