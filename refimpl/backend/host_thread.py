"""The stream of the host's own work: one thread that packs and unpacks maps while everything else goes on.

The work on it is done in order, as on any stream; each piece is shared by as many threads as there are cores.  What a
map takes once it is packed is written down: it depends on the map.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from refimpl.network import Tensor
from refimpl.planner import Compress, Decompress, Program, Record, Wait


@dataclass(frozen=True)
class PackedMap:
    """What became of a map that was packed, in the last iteration.  Bytes and seconds."""

    tensor: str
    nbytes: int
    stored: int  #: in whole slots, masks included
    planned: int
    density: float  #: share of numbers that are not zero
    pack_seconds: float
    unpack_seconds: float = 0.0


class HostWork:
    """The host's work of one program, between pinned memory and the store, both as bytes."""

    def __init__(self, program: Program, pinned: np.ndarray, store: np.ndarray) -> None:
        from refimpl.memory.packing import Packed  # it imports Numba

        self._pinned = pinned
        self._places = {
            i.tensor: Packed(store[i.store :], i.nbytes) for i in program.instructions if isinstance(i, Compress)
        }
        self.packed: dict[Tensor, PackedMap] = {}

    def run(self, work: Compress | Decompress) -> None:
        """Do it, here and now."""
        given = self._pinned[work.host : work.host + work.nbytes]
        place = self._places[work.tensor]
        began = perf_counter()
        if isinstance(work, Compress):
            stored = place.pack(given)
            seconds = perf_counter() - began
            self.packed[work.tensor] = PackedMap(
                work.tensor.name, work.nbytes, stored, work.planned, place.density, seconds
            )
        else:
            place.unpack(given)
            was = self.packed[work.tensor]
            self.packed[work.tensor] = PackedMap(
                was.tensor, was.nbytes, was.stored, was.planned, was.density, was.pack_seconds, perf_counter() - began
            )


def needs(program: Program) -> dict[int, int]:
    """Position of a launch or a copy → that of the host's work which must be done before it."""
    works = {p for p, i in enumerate(program.instructions) if isinstance(i, (Compress, Decompress))}
    if not works:
        return {}
    last = -1
    recorded: dict[int, int] = {}  # event → the host's last work before it
    waiting: dict[int, int] = {}  # stream → the host's work that what comes next on it is behind
    found: dict[int, int] = {}
    host = next(i.stream for i in program.instructions if isinstance(i, (Compress, Decompress)))
    for position, instruction in enumerate(program.instructions):
        if position in works:
            last = position
        elif isinstance(instruction, Record) and instruction.stream == host:
            recorded[instruction.event] = last
        elif isinstance(instruction, Wait) and instruction.event in recorded:
            waiting[instruction.stream] = max(waiting.get(instruction.stream, -1), recorded[instruction.event])
        elif hasattr(instruction, "stream") and not isinstance(instruction, (Record, Wait)):
            behind = waiting.pop(instruction.stream, -1)
            if behind >= 0:
                found[position] = behind
    return found


class HostThread:
    """One thread; `start` gives it work, `wait_for` waits until a piece is done and raises what went wrong in it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="host stream")
        self._pieces: dict[int, Future[None]] = {}

    def start(self, position: int, work: Callable[[], None]) -> None:
        self._pieces[position] = self._thread.submit(work)

    def wait_for(self, position: int) -> None:
        self._pieces[position].result()

    def finish(self) -> None:
        """Wait for everything."""
        pieces, self._pieces = self._pieces, {}
        for piece in pieces.values():
            piece.result()
