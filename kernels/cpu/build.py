"""Step 4: the generated module on disk, compiled once for all processes.

A module's file name carries a key of everything its machine code follows from: the kernel's and its helpers' source and
constants, the block, the options, this compiler, and the versions of Python, Numba, llvmlite and NumPy.  So the file
is written once and never changes, and Numba's own cache beside it is always right (Numba's key alone knows nothing of
helpers or of the SLP switch).

    REFIMPL_CACHE=DIR   where (default: ~/.cache/refimpl)          REFIMPL_SLP=0   without the superword-level
    vectoriser
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np

from kernels.cpu.vocabulary import constant_source, outside_names
from kernels.declare import Kernel

_lock = threading.RLock()


def slp_enabled() -> bool:
    return os.environ.get("REFIMPL_SLP", "1") != "0"


@contextmanager
def slp_vectoriser() -> Iterator[None]:
    """LLVM's SLP vectoriser for what is compiled inside.

    It is what makes 8 × 8 register blocks fast on the CPU.  Numba leaves it off since LLVM miscompiled with it in
    2023, so it is switched on for our own compilations alone, and every kernel's tests against its oracles run with
    it on.
    """
    before = numba.config.SLP_VECTORIZE
    numba.config.SLP_VECTORIZE = int(slp_enabled())
    try:
        yield
    finally:
        numba.config.SLP_VECTORIZE = before


def cache_directory() -> Path:
    """Where generated modules live; a folder in the system's temporary one if the usual place cannot be written."""
    wanted = Path(
        os.environ.get("REFIMPL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "refimpl"
    ).expanduser()
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        if os.access(wanted, os.W_OK):
            return wanted
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"refimpl-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    fallback.mkdir(parents=True, exist_ok=True)
    return fallback


@cache
def _compiler_key() -> str:
    """Everything outside a kernel that decides its machine code."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
    return hashlib.sha256(repr(versions).encode() + b"".join(path.read_bytes() for path in sources)).hexdigest()


def _describe(function: Callable[..., Any], seen: set[Any]) -> list[str]:
    """The source of a function and, in turn, of the helpers it calls, with the constants they see."""
    if function in seen:
        return []
    seen.add(function)
    described, outside = [inspect.getsource(function)], outside_names(function)
    code_names = set(function.__code__.co_names) | set(function.__code__.co_freevars)
    for name in sorted(code_names & set(outside)):
        value = outside[name]
        if getattr(value, "targetoptions", {}).get("device"):
            described += [name, *_describe(value.py_func, seen)]
        else:
            described.append(f"{name}={constant_source(value)}")
    return described


def key(kernel: Kernel, checked: bool) -> str:
    parts = [
        _compiler_key(),
        kernel.name,
        repr(kernel.block),
        f"checked={checked} slp={slp_enabled()}",
        *_describe(kernel.function, set()),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def module_path(kernel: Kernel, checked: bool = False) -> Path:
    return cache_directory() / f"{kernel.name}{'_checked' if checked else ''}_{key(kernel, checked)}.py"


def load(kernel: Kernel, checked: bool = False) -> ModuleType:
    """The kernel's generated module, compiled; from disk where a process has made it before."""
    with _lock:
        path = module_path(kernel, checked)
        if not path.exists():
            from kernels.cpu.source import KernelSource

            source = KernelSource(kernel, checked)
            sites = f"SITES = {[(site.line, site.text, site.axis) for site in source.sites]!r}\n" if checked else ""
            _write(path, source.text + sites)
        name = f"kernels.cpu.generated.{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where Numba's cache looks it up
        with slp_vectoriser():
            spec.loader.exec_module(module)
        return module


def _write(path: Path, text: str) -> None:
    """All or nothing, also beside another process that writes the same file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(temporary, path)
