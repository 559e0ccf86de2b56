"""What the trainer asks of a backend: two arenas, ways in and out of them, and programs made ready to be replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from refimpl.backend.bound import Settings
from refimpl.backend.host_thread import CompressedMap
from refimpl.machine import Timeline
from refimpl.planner import Allocate, Free, Program

#: Position of a launch → what the host does when that launch is done, and before anything behind it is started.
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


class Replay(Protocol):
    """A program made ready: everything that is the same in every iteration has been done."""

    @property
    def host_seconds_per_instruction(self) -> float | None:
        """The host's time that an instruction takes to start; None where the host does the work itself."""

    @property
    def compressed(self) -> list[CompressedMap]:
        """The maps that threads of the host compressed in the last iteration."""

    @property
    def driver_calls(self) -> CallTimes | None:
        """Of the last iteration; None where the program's memory is a pool's, and on the CPU, which has no driver."""

    def set(self, settings: Settings) -> None:
        """The settings of the next iteration."""

    def issue(self, pauses: Pauses) -> None:
        """Start an iteration.  What a pause raises ends it there."""

    def finish(self) -> None:
        """Wait until all that was started is done."""

    def timed(self) -> Timeline:
        """Run an iteration and measure it."""


class Device(Protocol):
    """An arena on the device and one in pinned memory.  All methods but `replay` are ordered behind the launches."""

    @property
    def pinned(self) -> np.ndarray:
        """The pinned arena, as bytes."""

    def view(self, address: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """A typed array in the device arena, made once."""

    def read(self, address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """A copy of an array in the device arena, there when this returns."""

    def write(self, address: int, values: np.ndarray) -> None:
        """Fill an array in the device arena, done when this returns."""

    def copy_out(self, address: int, pinned_address: int, nbytes: int) -> None:
        """Start a copy from the device arena to the pinned one."""

    def copy_in(self, address: int, pinned_address: int, nbytes: int) -> None:
        """Start a copy from the pinned arena to the device arena."""

    def replay(self, program: Program, settings: Settings) -> Replay: ...

    def close(self) -> None:
        """Give the memory back."""


def recount(program: Program) -> int:
    """The most bytes held at any time: counted again from the blocks that the instructions take and give back."""
    rounded = program.setup.allocator.open(program.budget).rounded
    held = peak = sum(rounded(tensor.nbytes) for tensor in program.resident)
    for instruction in program.instructions:
        if isinstance(instruction, Allocate):
            held += instruction.nbytes
            peak = max(peak, held)
        elif isinstance(instruction, Free):
            held -= instruction.nbytes
    return peak
