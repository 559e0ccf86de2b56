"""The interface of a backend: its memories, copies in and out of them, and programs made ready to be replayed."""

from __future__ import annotations

import mmap
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from refimpl.backend.alone import Alone, Communicator
from refimpl.backend.bound_program import Settings
from refimpl.backend.host_thread import StoredMap
from refimpl.backend.run_errors import DeviceFailed, RunError
from refimpl.machine import HOST, Timeline
from refimpl.planner import Allocate, Free, Program
from refimpl.planner.instructions import HOST_STREAM
from refimpl.text import size

#: Position of a launch → what the host does when that launch is done, and before anything after it is started.
Pauses = Mapping[int, Callable[[], None]]


@dataclass
class CallTimes:
    """The driver calls of one iteration that allocate and free, and the host's seconds in them.

    A free returns when the device has done all that it was given: the waiting is in its seconds.
    """

    allocations: int = 0
    frees: int = 0
    allocating: float = 0.0
    freeing: float = 0.0

    @property
    def seconds(self) -> float:
        return self.allocating + self.freeing


@dataclass(frozen=True)
class Sizes:
    """A device's resources: bytes of each memory, enough for every program that it is to run, and its own streams."""

    arena: int  #: bytes of device memory
    pinned: int  #: bytes of pinned memory
    store: int  #: bytes of ordinary memory, for maps in the store
    streams: int  #: without the host's
    tiers: Mapping[str, int] = field(default_factory=dict)  #: bytes of each tier beside the host's

    @classmethod
    def of(cls, programs: Sequence[Program]) -> Sizes:
        """The least that runs all of these, one after another."""
        return cls(
            arena=max(program.arena_bytes for program in programs),
            pinned=max(program.pinned_bytes for program in programs),
            store=max(program.store_bytes for program in programs),
            streams=max(sum(name != HOST_STREAM for name in program.streams) for program in programs),
            tiers={
                name: max(program.tier_bytes.get(name, 0) for program in programs)
                for one in programs
                for name in one.tier_bytes
            },
        )


class Replay(ABC):
    """A program made ready: everything that is the same in every iteration has been done."""

    @property
    def host_seconds_per_instruction(self) -> float | None:
        """The host's time that an instruction takes to start; None where the host does the work itself."""
        return None

    @property
    def driver_calls(self) -> CallTimes | None:
        """Of the last iteration; None where the program's memory is a pool's, and on the CPU, which has no driver."""
        return None

    @property
    @abstractmethod
    def stored(self) -> list[StoredMap]:
        """The maps that threads of the host copied into the store in the last iteration."""

    @abstractmethod
    def set(self, settings: Settings) -> None:
        """The settings of the next iteration."""

    @abstractmethod
    def issue(self, pauses: Pauses) -> None:
        """Start an iteration.  What a pause raises ends it there."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all that was started is done."""

    @abstractmethod
    def timed(self) -> Timeline:
        """Run an iteration and measure it."""


class Device(ABC):
    """An arena on the device, one in pinned memory and in every other tier, and the store.

    All methods but `replay` are ordered after the launches.
    """

    pinned: np.ndarray  #: the pinned arena, as bytes
    communicator: Communicator = Alone()  #: that makes the collective calls
    rung = "fast"  #: of `kernels`

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        try:
            self.store = lazy_zeros(sizes.store)  #: as bytes; pages that are never touched cost nothing
        except MemoryError:
            raise DeviceFailed(
                f"no {size(sizes.store)} of memory for the store of maps; plan for a smaller batch"
            ) from None
        self._views: dict[tuple[int, tuple[int, ...], np.dtype[Any]], Any] = {}

    def view(self, address: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """A typed array in the device arena, made once."""
        key = address, shape, np.dtype(dtype)
        if key not in self._views:
            end = address + key[2].itemsize * prod(shape)
            if not 0 <= address <= end <= self.sizes.arena:
                raise RunError(f"bytes {address} to {end} are outside of the arena of {self.sizes.arena} bytes")
            self._views[key] = self._array(*key)
        return self._views[key]

    @abstractmethod
    def _array(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any: ...

    @abstractmethod
    def read(self, address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """A copy of an array in the device arena, there when this returns."""

    @abstractmethod
    def write(self, address: int, values: np.ndarray) -> None:
        """Fill an array in the device arena, done when this returns."""

    @abstractmethod
    def copy(self, out: bool, address: int, pinned_address: int, nbytes: int, tier: str = HOST) -> None:
        """Start a copy from the device arena to the pinned one, or to another tier's; or back."""

    def host_access(self, start: int, nbytes: int, writes: bool, what: str) -> None:  # noqa: B027
        """The trainer itself is about to use bytes of the pinned arena: told to a device that checks it."""

    @abstractmethod
    def replay(self, program: Program, settings: Settings) -> Replay:
        """The program made ready; the device has at least the memory that it needs."""

    @abstractmethod
    def close(self) -> None:
        """Give the memory back."""


NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  #: Linux's number; older Pythons do not name it


def lazy_zeros(nbytes: int) -> np.ndarray:
    """`nbytes` zeros, which the operating system gives page by page as they are touched.  Raises `MemoryError`.

    A program's addresses may reach far without filling what is between: what vDNN++ keeps is at the right end of the
    budget, and a map in the store has room for its worst.  `numpy.zeros` of nearly all memory may write every zero.
    """
    if not nbytes or sys.platform != "linux":
        return np.zeros(nbytes, np.uint8)
    try:
        taken = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    except (OSError, OverflowError) as error:
        raise MemoryError(str(error)) from None
    return np.frombuffer(taken, np.uint8)


def recounted_peak(program: Program) -> int:
    """The most bytes held at any time: counted again from the blocks that the instructions allocate and free."""
    rounded = program.setup.allocator.open(program.budget).rounded
    held = peak = sum(rounded(tensor.nbytes) for tensor in program.resident)
    for instruction in program.instructions:
        if isinstance(instruction, Allocate):
            held += instruction.nbytes
            peak = max(peak, held)
        elif isinstance(instruction, Free):
            held -= instruction.nbytes
    return peak
