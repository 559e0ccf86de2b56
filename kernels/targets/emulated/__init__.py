"""An emulated GPU: Numba CUDA and cuda.core as they are, on a CUDA driver that computes on the CPU.

    from kernels.targets import emulated
    emulated.start()                         # before anything of CUDA is used in this process
    ...                                      # any program of Numba CUDA
    print(emulated.findings())               # what the checks have found

`start` compiles the driver (`driver.c`), loads it under the name that Numba and cuda.core look for, and has each
kernel that is loaded translated from PTX to C (`translate`) and compiled.  Numba CUDA is numba-cuda, its successor
numba-cuda-mlir, or Numba's own target.  Its own path stays as it is: NVVM makes the PTX, nvJitLink the machine code.
Streams, events, pinned memory and wait values are real; the driver checks every access.  What it shows is that a
program is right.  Its times mean nothing, unless a model's are given (`next_work`).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.targets.emulated import c_compiler
from kernels.targets.emulated.c_compiler import NoCompiler, why_not
from kernels.targets.emulated.ptx import UnsupportedPtx

if TYPE_CHECKING:
    from kernels.targets.private import CompiledKernel

__all__ = [
    "ORDERS", "RACES", "EmulationError", "NoCompiler", "UnsupportedPtx", "active", "announcement",
    "environment", "executed", "findings", "forgive", "host_work", "kernel_seconds", "learning_nothing", "most_steps",
    "next_work", "order", "pass_on", "register", "start", "take_up", "touched", "wait_in_time", "why_not",
]  # fmt: skip

#: How the driver chooses among the work that is ready: only what something waits for, as late as it can be; at once;
#: any, drawn each time; by priorities drawn for the streams; by a thread of its own, while the host goes on.
ORDERS = ("late", "early", "random", "priority", "free")

#: Which launches are searched for races, which makes them about ten times slower: of each kernel the first with a grid
#: and numbers; all; none.
RACES = ("first", "always", "never")

_driver: Any = None
_races = "first"
_order = "late"


class EmulationError(RuntimeError):
    """The emulated GPU cannot be started in this process, or has found an error; the message says which."""


def active() -> bool:
    """Whether this process's GPU is the emulated one."""
    return _driver is not None


def start(races: str | None = None) -> None:
    """Make the emulated GPU this process's GPU; whatever comes later finds it as it would find any other.

    Args:
        races: which launches of the kernels that are loaded from now on are searched for races, one of `RACES`; by
            default what REFIMPL_RACES says, and without it "first".
    """
    global _driver, _races
    if _driver is None:
        from kernels.targets import private
        from kernels.targets.emulated import unwritten

        library = _load()
        library.emulated_finding.restype = ctypes.c_char_p
        library.emulated_next.argtypes = (ctypes.c_char_p, ctypes.c_double)
        library.emulated_kernel_seconds.restype = ctypes.c_double
        library.emulated_executed.restype = ctypes.c_uint64
        _driver = library
        private.watch_numba(lambda module: unwritten.filled(module), register)
        private.watch_mlir(register)
        name, _, seed = (os.environ.get("REFIMPL_ORDER") or "late").partition(":")
        order(name, seed or 0)
        races = races or os.environ.get("REFIMPL_RACES")
        if steps := os.environ.get("REFIMPL_STEPS"):
            most_steps(steps)
    if races is not None:
        if races not in RACES:
            raise EmulationError(f"races are searched for {', '.join(RACES)}; not {races!r}")
        _races = races


def most_steps(number: int | str) -> None:
    """How many turns of loops a thread may take, over all loops of a launch, before the launch is stopped.

    A kernel without an end ends so, and one in which a thread waits in a loop for another one, which does not run
    meanwhile.  By default 2^30, which takes this computer some seconds; REFIMPL_STEPS sets it.
    """
    if not re.fullmatch("[0-9]{1,15}", str(number)) or not 0 < int(number) < 1 << 48:
        raise EmulationError(f"REFIMPL_STEPS is {str(number)[:40]!r}; give a whole number from 1 to 2^48 - 1")
    _driver.emulated_set_steps(ctypes.c_uint64(int(number)))


def _load() -> Any:
    """The driver, under the name by which Numba and cuda.core find theirs."""
    path = c_compiler.driver()
    try:
        there = ctypes.CDLL(c_compiler.DRIVER, mode=os.RTLD_NOLOAD)
    except OSError:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    if not hasattr(there, "emulated_register"):
        raise EmulationError(
            f"this computer has a CUDA driver, and it is loaded: begin the command with LD_PRELOAD={path}"
        )
    return there


# --- Kernels ---------------------------------------------------------------------------------------------------------


def register(told: CompiledKernel, drop_stop: int | None = None) -> None:
    """Give the driver a kernel that Numba has compiled.  It knows it by its image, the machine code that is loaded."""
    from kernels.targets.emulated.translate import translate

    source = translate(told.ptx, told.entry, drop_stop)
    if f"#define PARAMETER_BYTES {told.argument_bytes}\n" not in source:
        raise UnsupportedPtx(f"the arguments of kernel {told.name} are laid out in a way that is not known here")
    variants = {"never": (False,), "first": (False, True), "always": (True,)}[_races]
    with ThreadPoolExecutor(len(variants)) as compilers:  # each is a process of its own
        made = [compilers.submit(c_compiler.kernel, told.name, source, races) for races in variants]
    paths = [os.fsencode(each.result()) for each in made]
    numbers, names = ctypes.c_uint * max(1, len(told.arrays)), ctypes.c_char_p * max(1, len(told.arrays))
    status = _driver.emulated_register(
        told.image, ctypes.c_uint64(len(told.image)), told.entry.encode(), told.name.encode(), paths[0], paths[-1],
        len(told.arrays), numbers(*(array.offset for array in told.arrays)),
        numbers(*(array.axes for array in told.arrays)), numbers(*(array.item_bytes for array in told.arrays)),
        names(*(array.name.encode() for array in told.arrays)),
    )  # fmt: skip
    if status:
        raise EmulationError(f"kernel {told.name} cannot be loaded: {findings()[-1]}")


# --- What is checked and found ---------------------------------------------------------------------------------------


def findings() -> list[str]:
    """The checks' findings since `forgive`, each once."""
    if _driver is None:
        return []
    return [_driver.emulated_finding(i).decode(errors="replace") for i in range(_driver.emulated_finding_count())]


def forgive() -> list[str]:
    """The findings, which are then forgotten; the GPU can be used again."""
    found = findings()
    if _driver is not None:
        _driver.emulated_forgive()
    return found


def order(name: str, seed: int | str = 0) -> None:
    """Choose one of `ORDERS`, and the seed of what is drawn; a seed other than 0 also draws the order of blocks and of
    threads between barriers."""
    if name not in ORDERS:
        raise EmulationError(f"there is no order {name!r}; give one of {', '.join(ORDERS)}")
    if not re.fullmatch("[0-9]{1,18}", str(seed)):
        raise EmulationError(
            f"the seed of REFIMPL_ORDER is {str(seed)[:40]!r}; give a whole number of 18 digits at most"
        )
    global _order
    _driver.emulated_order(ORDERS.index(name), ctypes.c_uint64(int(seed)))
    _order = f"{name}:{seed}" if int(seed) else name


def environment() -> str:
    """Shell assignments to put before a command so that it runs in this order again."""
    return f"REFIMPL_ORDER={_order} REFIMPL_RACES={_races}"


# --- What the host tells: names of its work, times of a model, what its threads do ------------------------------------


def next_work(label: str, seconds: float = -1.0) -> None:
    """Name the work that this thread issues from now on, as findings show it, and set its seconds on the clock of
    events (by default a kernel takes what it took here)."""
    _driver.emulated_next(label.encode(errors="backslashreplace"), seconds)


def announcement(label: str) -> Callable[[float], None]:
    """`next_work` with this label, as a function of the seconds alone that costs little."""
    return partial(_driver.emulated_next, label.encode(errors="backslashreplace"))


def pass_on(key: int) -> None:
    """Publish under a key what this thread knows to have happened: to any thread that takes up the key, and to a stream
    that waits for a value n at an address if the key is address + n * 2**48."""
    _driver.emulated_pass_on(ctypes.c_uint64(key))


def take_up(key: int) -> None:
    """See `pass_on`."""
    _driver.emulated_take_up(ctypes.c_uint64(key))


@contextmanager
def learning_nothing() -> Iterator[None]:
    """Inside, this thread's waits order nothing: the happens-before check sees what orders the work without them."""
    _driver.emulated_learn_nothing(1)
    try:
        yield
    finally:
        _driver.emulated_learn_nothing(0)


def touched(address: int, nbytes: int, writes: bool, who: str) -> None:
    """A thread of the host reads or writes memory that is shared with the GPU or with other threads."""
    _driver.emulated_touched(ctypes.c_uint64(address), ctypes.c_uint64(nbytes), int(writes), who.encode())


def wait_in_time(stream: int, event: int) -> None:
    """On the clock of events alone, a stream waits for an event; both are handles."""
    _driver.emulated_wait_in_time(ctypes.c_void_p(stream), ctypes.c_void_p(event))


def host_work(stream: int) -> None:
    """Seconds of the host (`next_work`) on a stream's clock."""
    _driver.emulated_host_work(ctypes.c_void_p(stream))


def executed(kinds: Sequence[str] = ("copy in", "copy out", "copy", "fill", "launch")) -> dict[str, int]:
    """How many pieces of work of each kind have been done."""
    return {kind: int(_driver.emulated_executed(i)) for i, kind in enumerate(kinds)}


def kernel_seconds() -> float:
    """Processor time of this computer that all kernels have taken."""
    return float(_driver.emulated_kernel_seconds())
