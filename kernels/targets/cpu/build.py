"""Step 4: the generated module on disk, compiled once for all processes.

A module's name carries a key of everything its machine code follows from: the kernel's and its helpers' source and
constants, the block, the options, this compiler, the processor, and the versions of Python, Numba, llvmlite and NumPy.
So an entry is written once and never changes, and Numba's own cache in it is always right (Numba's key alone knows
nothing of helpers or of the SLP switch).  Numba's cache is pickles, which execute what they hold: an entry is loaded
only if its checksums are right, and only from a folder that no one else can write.

    REFIMPL_CACHE=DIR   where (default: ~/.cache/refimpl)          REFIMPL_SLP=0   without the superword-level
    vectoriser
"""

from __future__ import annotations

import errno
import hashlib
import inspect
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.registry import cpu_target

from kernels.targets.collector import collector_paused
from kernels.targets.cpu.vocabulary import constant_source, outside_names
from kernels.targets.declare import Kernel

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_lock = threading.RLock()


def slp_enabled() -> bool:
    """Whether REFIMPL_SLP leaves the superword-level vectoriser on."""
    wanted = os.environ.get("REFIMPL_SLP") or "1"
    if wanted not in ("0", "1"):
        raise ValueError(f"REFIMPL_SLP is {wanted[:40]!r}; give 0 or 1")
    return wanted == "1"


@contextmanager
def numba_config(**values: Any) -> Iterator[None]:
    """Numba's settings changed for what is compiled inside."""
    before = {name: getattr(numba.config, name) for name in values}
    vars(numba.config).update(values)
    try:
        yield
    finally:
        vars(numba.config).update(before)


def optimised(checked: bool, plain: bool = False) -> AbstractContextManager[None]:
    """Numba's settings for our own compilations alone.

    LLVM's SLP vectoriser is what makes 8 × 8 register blocks fast on the CPU.  Numba leaves it off since LLVM
    miscompiled with it in 2023, so every kernel's tests against its oracles run with it on.  Checked mode runs small
    arrays: there compiling takes longer than running, and LLVM does little more than it must.  Plain kernels come to
    the bits of their PTX, for which neither vectoriser runs: one that vectorises a product does not fuse it with its
    sum.
    """
    if checked:
        return numba_config(OPT=numba.config._OptLevel(1), LOOP_VECTORIZE=0, SLP_VECTORIZE=0)
    if plain:
        return numba_config(LOOP_VECTORIZE=0, SLP_VECTORIZE=0)
    return numba_config(SLP_VECTORIZE=int(slp_enabled()))


# -- where -------------------------------------------------------------------------------------------------------------


def cache_directory() -> Path | None:
    """The folder of compiled kernels, or one in the system's temporary folder; None where neither can be used."""
    named = os.environ.get("REFIMPL_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/refimpl"
    wanted = os.path.expanduser(named)
    folders = [] if wanted.startswith("~") else [Path(os.path.realpath(wanted))]  # a user without a home folder
    folders.append(Path(tempfile.gettempdir()) / f"refimpl-{os.getuid() if hasattr(os, 'getuid') else 'user'}")
    return next((folder for folder in folders if _usable(folder)), None)


@cache
def _usable(folder: Path) -> bool:
    """Whether the folder is there, can be written, and only by us: loading what is in it executes it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()  # a link to somewhere is not ours to follow in a folder that all can write
    except OSError as error:
        say_once(f"{folder}, for compiled kernels, is not used: {error.strerror or error}")
        return False
    if not stat.S_ISDIR(found.st_mode):
        trouble = "it is not a folder"
    elif hasattr(os, "getuid") and found.st_uid != os.getuid():
        trouble = "it belongs to another user, who could put other code there"
    elif hasattr(os, "getuid") and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        trouble = "others can write there, and could put other code there; delete it, or name another in REFIMPL_CACHE"
    elif not os.access(folder, os.W_OK):
        trouble = "it cannot be written"
    elif open_to_all := next(filter(_open_to_all, folder.parents), None):
        trouble = f"others can write in {open_to_all}, and could put another folder in its place"
    else:
        return True
    say_once(f"{folder}, for compiled kernels, is not used: {trouble}")
    return False


def _open_to_all(folder: Path) -> bool:
    """Whether every user can rename what is in the folder, also what belongs to another user."""
    mode = folder.stat().st_mode
    return hasattr(os, "getuid") and bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


@cache
def say_once(text: str) -> None:
    print(f"refimpl: {text}", file=sys.stderr)


# -- which -------------------------------------------------------------------------------------------------------------


@cache
def compiler_key() -> str:
    """Everything outside a kernel that decides its machine code."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    processor = cpu_target.target_context.codegen().magic_tuple()
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__, processor)
    return hashlib.sha256(repr(versions).encode() + b"".join(path.read_bytes() for path in sources)).hexdigest()


def _describe(function: Callable[..., Any], seen: set[Any], lines: bool) -> list[str]:
    """The source of a function and, in turn, of the helpers it calls, with the constants they see.

    `lines`: with the numbers of their lines, which checked mode's messages name.
    """
    if function in seen:
        return []
    seen.add(function)
    described, outside = [inspect.getsource(function)], outside_names(function)
    if lines:
        described.append(f"line {function.__code__.co_firstlineno}")
    code_names = set(function.__code__.co_names) | set(function.__code__.co_freevars)
    for name in sorted(code_names & set(outside)):
        value = outside[name]
        if getattr(value, "targetoptions", {}).get("device"):
            described += [name, *_describe(value.py_func, seen, lines)]
        else:
            described.append(f"{name}={constant_source(value)}")
    return described


def key(kernel: Kernel, checked: bool) -> str:
    parts = [
        compiler_key(),
        f"{kernel.function.__module__}.{kernel.name}",
        repr((kernel.block, kernel.kinds)),
        f"checked={checked} slp={slp_enabled()}",
        *_describe(kernel.function, set(), lines=checked),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


# -- what --------------------------------------------------------------------------------------------------------------

CHECKSUMS = "SHA256"  #: the file that `sha256sum --check` reads; every other file of an entry is named in it


def source_text(kernel: Kernel, checked: bool = False, same: Mapping[str, str] = MappingProxyType({})) -> str:
    """The generated module; `same`: see `KernelSource`."""
    from kernels.targets.cpu.source import KernelSource

    source = KernelSource(kernel, checked, same)
    sites = f"SITES = {[(site.line, site.text, site.axis) for site in source.sites]!r}\n" if checked else ""
    return source.text + sites


def load(kernel: Kernel, checked: bool = False, same: Mapping[str, str] = MappingProxyType({})) -> ModuleType:
    """The kernel's generated module, compiled; from disk where a process has compiled it before."""
    kind = "_checked" if checked else "".join(f"_{name}_is_{other}" for name, other in same.items())
    stem = f"{kernel.name}{kind}_{key(kernel, checked)}"
    with _lock, collector_paused(), optimised(checked, kernel.is_plain):
        return _load(stem, lambda: source_text(kernel, checked, same))


def load_source(path: Path) -> ModuleType:
    """A module of functions that Numba compiles with `cache=True`, kept like a kernel's."""
    text = path.read_text(encoding="utf-8")
    key = hashlib.sha256(f"{compiler_key()}\0{text}".encode()).hexdigest()[:16]
    with _lock, collector_paused():
        return _load(f"{path.stem}_{key}", lambda: text)


def _load(stem: str, source: Callable[[], str]) -> ModuleType:
    """A module that Numba compiles when it is executed.

    An entry of the cache is a folder.  It is written beside its place, renamed when it is complete, and then never
    changed.  One whose files are not those that were written is removed and written again.

    Args:
        stem: the module's name; it has a key of everything that the machine code follows from.
        source: makes the module's text, where it is not on disk.
    """
    folder = cache_directory()
    if folder is None:
        return _executed(stem, source())
    entry = folder / stem
    try:
        if not intact(entry):
            with no_other_process(folder, stem):
                if not intact(entry):  # no other process has compiled it meanwhile
                    return _compiled(folder, entry, source())
        return _executed(stem, (entry / f"{stem}.py").read_text(encoding="utf-8"), entry)
    except (OSError, RuntimeError) as error:  # Numba's, if it cannot write
        made = _executed(stem, source())  # what is wrong with the kernel itself is raised here
        say_once(f"compiled kernels cannot be kept in {folder}: {getattr(error, 'strerror', None) or error}")
        return made


def kept(folder: Path, stem: str, write: Callable[[Path], object]) -> Path:
    """The entry of that name, for what is not a generated module.

    Args:
        folder: the folder of compiled kernels.
        stem: the entry's name; it has a key of everything that its files follow from.
        write: writes the files into the folder that it is given, where they are not on disk or are damaged.
    """
    entry = folder / stem
    if not intact(entry):
        with no_other_process(folder, stem):
            if not intact(entry):
                with tempfile.TemporaryDirectory(dir=folder, prefix="new-", ignore_cleanup_errors=True) as temporary:
                    made = Path(temporary) / stem
                    made.mkdir(mode=0o700)
                    write(made)
                    if os.path.lexists(entry) and not intact(
                        entry
                    ):  # damaged, not completed by another process meanwhile
                        os.rename(entry, Path(temporary) / "damaged")
                    _complete(made, entry)
    return entry


@contextmanager
def no_other_process(folder: Path, stem: str) -> Iterator[None]:
    """One process compiles an entry; another one that wants it too waits, and loads what the first has compiled."""
    with open(folder / "lock", "ab") as file:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks: both compile
                fcntl.lockf(file, fcntl.LOCK_EX, 1, int(stem[-7:], 16))  # a byte of the file is an entry's lock
        yield


def _compiled(folder: Path, entry: Path, text: str) -> ModuleType:
    """Compile the module for a new entry; a damaged one is removed."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="new-", ignore_cleanup_errors=True) as temporary:
        if os.path.lexists(entry) and not intact(entry):
            say_once(f"compiled kernels in {folder} were damaged; they are compiled again")
            with suppress(FileNotFoundError):  # another process was quicker
                os.rename(entry, Path(temporary) / "damaged")
        return _written(Path(temporary) / entry.name, entry, text)


def _written(temporary: Path, entry: Path, text: str) -> ModuleType:
    """Compile the module in a temporary folder, which then becomes the entry."""
    temporary.mkdir(mode=0o700)
    (temporary / f"{entry.name}.py").write_text(text, encoding="utf-8")
    module = _executed(entry.name, text, temporary)
    _complete(temporary, entry)
    return module


def _complete(made: Path, entry: Path) -> None:
    """What was made becomes the entry."""
    (made / CHECKSUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in digests(made).items()))
    try:
        os.rename(made, entry)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # there, too
            raise


def digests(entry: Path) -> dict[str, str]:
    """The SHA-256 of every file of an entry, by its path in it."""
    files = sorted(path for path in entry.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    return {str(path.relative_to(entry)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def intact(entry: Path) -> bool:
    """Whether the files of an entry are those that were written, to the last bit."""
    try:
        lines = (entry / CHECKSUMS).read_text().splitlines()
        return digests(entry) == {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    except (OSError, ValueError):
        return False


def _executed(stem: str, text: str, folder: Path | None = None) -> ModuleType:
    """The module, with Numba's cache beside it in the folder; without one, compiled and not kept."""
    path = str(folder / f"{stem}.py") if folder else f"<{stem}>"
    module = ModuleType(f"kernels.targets.cpu.generated.{stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where Numba's cache looks it up
    with numba_config(CACHE_DIR="", CACHE_LOCATOR_CLASSES="InTreeCacheLocator"):
        exec(compile(text if folder else text.replace(", cache=True", ""), path, "exec"), module.__dict__)
    return module
