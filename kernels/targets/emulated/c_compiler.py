"""C sources compiled to libraries by the C compiler at hand, once for all processes.

A library is kept in the folder of compiled kernels (`kernels.targets.cpu.build`), by its rules: an entry's name has a
key of all that the machine code follows from, an entry is never changed, and one whose checksums are wrong is rebuilt.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from platform import machine, system

from kernels.targets.cpu.build import cache_directory, compiler_key, kept

HERE = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-std=gnu11", "-shared", "-fPIC", "-march=native", "-ffp-contract=off", "-fno-math-errno",
    "-fno-strict-aliasing", "-fno-trapping-math", "-w",
)  # fmt: skip
#: A check calls a function where it fails: registers should be saved for that call alone.  A kernel reads at most four
#: floats at a time; wider vectors would have to be put together from them.
FAST = ("-O1", "-ftree-vectorize", "-fcaller-saves") + (("-mprefer-vector-width=128",) if machine() == "x86_64" else ())
DRIVER = "libcuda.so.1"  #: the name that Numba and cuda.core look for


class NoCompiler(RuntimeError):
    """The emulated GPU cannot be built here; the message says what to install."""


def why_not() -> str | None:
    """The reason why the emulated GPU cannot be built here, in one line; None if it can."""
    if system() != "Linux":
        where = "use the container (.devcontainer, Containerfile), or on Windows WSL 2"
        return f"the emulated GPU takes the place of {DRIVER}, which is how the driver is found on Linux alone; {where}"
    if _compiler() is None:
        return "the emulated GPU needs a C compiler; install one: apt install gcc (or clang)"
    return None


@cache
def _compiler() -> str | None:
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


@cache
def _key() -> str:
    """Everything outside the C sources that decides their machine code."""
    version = subprocess.run([str(_compiler()), "--version"], capture_output=True, text=True).stdout
    return repr((version, FLAGS, compiler_key()))


def _with_headers(source: str) -> str:
    """A C source, and all headers of this folder that it includes."""
    found: dict[str, str] = {"": source}
    for text in (queue := [source]):
        for name in re.findall(r'#include "(.*)"', text):
            if name not in found:
                found[name] = (HERE / name).read_text(encoding="utf-8")
                queue.append(found[name])
    return "".join(found.values())


def driver() -> Path:
    """The driver, compiled; REFIMPL_DRIVER_FLAGS has more flags for the compiler, such as -fsanitize=address."""
    options = ("-O1", *os.environ.get("REFIMPL_DRIVER_FLAGS", "").split())
    return _library("emulated_driver", (HERE / "driver.c").read_text(encoding="utf-8"), options, DRIVER)


def kernel(name: str, source: str, races: bool) -> Path:
    """A kernel, compiled from its C source.

    One that looks for races runs seldom, so it is optimised less.  For the others `FAST` is as fast as -O2 within 10 %,
    and takes half the time to compile.
    """
    options = ("-DRACES=1", "-Og") if races else ("-DRACES=0", *FAST)
    return _library(f"emulated_{name}", source, options, "kernel.so")


def _library(name: str, source: str, options: tuple[str, ...], filename: str) -> Path:
    """The library that a C source is compiled to; its entry's name begins with `name`."""
    reason = why_not()
    if reason is not None:
        raise NoCompiler(reason)
    stem = f"{name[:60]}_{hashlib.sha256(repr((_key(), _with_headers(source), options)).encode()).hexdigest()[:16]}"
    folder = cache_directory()
    if folder is None:
        return _compile(_temporary() / stem, source, filename, options)
    return kept(folder, stem, lambda made: _compile(made, source, filename, options)) / filename


def _compile(folder: Path, source: str, filename: str, options: tuple[str, ...]) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "source.c").write_text(source, encoding="utf-8")
    target = folder / filename
    command = [
        str(_compiler()), *FLAGS, *options, f"-I{HERE}", f"-Wl,-soname,{filename}", "-o", str(target),
        str(folder / "source.c"), "-lm", "-ldl", "-lpthread",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoCompiler(f"{command[0]} does not compile {folder.name}: {' '.join(done.stderr.split())[:600]}")
    return target


@cache
def _temporary() -> Path:
    """A folder of this process, where no folder of compiled kernels can be used."""
    return Path(tempfile.mkdtemp(prefix="refimpl-emulated-"))
