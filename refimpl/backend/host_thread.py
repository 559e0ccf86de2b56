"""A stream of the host's own work: one thread that copies maps to the store and back while everything else goes on.
Another one reduces gradients.

The work on it is done in order, as on any stream; each piece is shared by as many threads as there are cores.  How a
map is written in the store is its codec's (`refimpl.slots.planner_only`), and the only one is vDNN++'s, which
compresses: the figures of the last iteration say so.  What a map takes in the store is written down: it depends on the
map.

A piece that fails, or that never ends, must not become a hang.  Those after a failed piece are skipped and count as
ended, and every waiting thread gets the error.  A wait has a time limit, and its error names the piece.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Event, Thread
from time import perf_counter

import numpy as np

from refimpl.backend.orders import awaited
from refimpl.backend.run_errors import DeviceFailed, RunError
from refimpl.network import Tensor
from refimpl.planner import HostCopy, Launch, Program, Record, ToStore, Wait, Work
from refimpl.planner.instructions import HOST_STREAM, NETWORK_STREAM
from refimpl.slots.planner_only import StoredCopy

PATIENCE = 120.0  #: seconds without the end of any piece, after which a wait is given up


@dataclass(frozen=True)
class StoredMap:
    """The figures of a map that was in the store in the last iteration.  Bytes and seconds."""

    tensor: str
    nbytes: int
    stored: int  #: in whole slots, masks included
    planned: int
    density: float  #: share of numbers that are not zero
    compress_seconds: float
    decompress_seconds: float = 0.0


class HostWork:
    """The host's work of one program, between pinned memory and the store, both as bytes."""

    def __init__(self, program: Program, pinned: np.ndarray, store: np.ndarray) -> None:
        self._pinned = pinned
        self._places: dict[tuple[int, int], StoredCopy] = {}  #: by address in the store, and the map's bytes
        for i in program.instructions:
            if isinstance(i, HostCopy) and (i.store_address, i.nbytes) not in self._places:
                self._places[i.store_address, i.nbytes] = i.codec.place(store[i.store_address :], i.nbytes)
        self._stored: dict[Tensor, StoredMap] = {}

    @property
    def stored(self) -> list[StoredMap]:
        """The maps of the last iteration, in the order in which they were first stored."""
        return list(self._stored.values())

    def run(self, work: HostCopy) -> None:
        """Do it, here and now."""
        given = self._pinned[work.pinned_address : work.pinned_address + work.nbytes]
        place = self._places[work.store_address, work.nbytes]
        began = perf_counter()
        if isinstance(work, ToStore):
            stored = place.pack(given)
            seconds, name = perf_counter() - began, work.tensor.name
            found = StoredMap(name, work.nbytes, stored, work.planned, place.density, seconds)
            self._stored[work.tensor] = found
        else:
            place.unpack(given)
            seconds = perf_counter() - began
            self._stored[work.tensor] = replace(self._stored[work.tensor], decompress_seconds=seconds)


def work_text(work: HostCopy | Launch) -> str:
    """As an error says it."""
    if isinstance(work, Launch):
        return f"reducing {', '.join(map(str, work.call.updates[:3]))}, … (instruction of step {work.step})"
    return f"{work.op}ing {work.tensor} (instruction of step {work.step})"


def host_stream(program: Program) -> int | None:
    """The number of the host's stream, which is the last one; None for a program without."""
    return program.streams.index(HOST_STREAM) if HOST_STREAM in program.streams else None


def network_stream(program: Program) -> int | None:
    """The number of the stream of collective calls; None for a program without."""
    return program.streams.index(NETWORK_STREAM) if NETWORK_STREAM in program.streams else None


def work_to_await(program: Program, beside: int | None) -> dict[int, int]:
    """Position of a piece of work → that of the work on the stream `beside` that must be done before it.

    In the program's order.  A stream's work is done in order, so one position includes all before it, and is given
    only where it is a new one.
    """
    waits = awaited(program)
    after = [-1] * len(program.streams)  #: of each stream: the last work on `beside` that it is ordered after
    recorded: dict[int, int] = {}  #: position of a record → the same at that moment
    found: dict[int, int] = {}
    done = -1
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, Work) and instruction.stream == beside:
            after[instruction.stream] = position
        elif isinstance(instruction, Record):
            recorded[position] = after[instruction.stream]
        elif isinstance(instruction, Wait):
            after[instruction.stream] = max(after[instruction.stream], recorded[waits[position]])
        elif isinstance(instruction, Work) and after[instruction.stream] > done:
            found[position] = done = after[instruction.stream]
    return found


class Piece:
    """One piece of work: what it is, when it began and ended (`perf_counter`), and what went wrong in it.

    `first` is waited for before it begins; `ended` is called at its end, whatever has happened.
    """

    def __init__(
        self,
        what: str,
        work: Callable[[], None],
        first: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.what = what
        self.began = self.until = 0.0
        self.error: RunError | None = None
        self.before: Piece | None = None  #: of the same iteration
        self._work, self._first, self._ended = work, first, ended
        self.done = Event()

    def run(self) -> None:
        """Do it, unless what was to be done before has failed."""
        before, self.before = self.before, None
        try:
            if before is not None and before.error is not None:
                self.error = before.error
            else:
                self._first()
                self.began = perf_counter()
                self._work()
        except RunError as error:
            self.error = error
        except BaseException as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            self.error = DeviceFailed(f"the host's thread failed while {self.what}: {reason}")
            self.error.__cause__ = error
        finally:
            self.until = perf_counter()
            try:
                self._ended()
            finally:
                del self._work, self._first, self._ended  # a reference to the piece must not keep arenas alive
                self.done.set()


class NeverEnded(DeviceFailed):
    """A piece of the host's work has exceeded its time limit."""


class HostThread:
    """One thread, which works until its owner is gone; the end of the process does not wait for it."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Piece | None] = SimpleQueue()
        self._pieces: list[Piece] = []
        self._lost = ""  #: what never ended
        self._thread = Thread(target=_work, args=(self._queue,), name="host stream", daemon=True)
        weakref.finalize(self, self._queue.put, None)

    def start(self, piece: Piece) -> None:
        """Hand a piece over; this never waits."""
        if self._lost:
            raise NeverEnded(f"{self._lost}; this trainer cannot go on: make another one")
        if not self._thread.is_alive():
            self._thread.start()
        piece.before = self._pieces[-1] if self._pieces else None
        self._pieces.append(piece)
        self._queue.put(piece)

    def wait_for(self, piece: Piece) -> None:
        """Wait until a piece has ended; raises what went wrong in it."""
        self._wait(piece)
        if piece.error is not None:
            raise piece.error

    def finish(self) -> None:
        """Wait until every piece has ended; then raise what went wrong first.  What comes next is a new iteration."""
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            self._wait(piece)
        for piece in pieces:
            if piece.error is not None:
                raise piece.error

    def _wait(self, piece: Piece) -> None:
        if not self._lost and not piece.done.wait(PATIENCE):
            self._lost = f"the host's thread is still {piece.what} after {PATIENCE:g} seconds: given up"
            piece.error = NeverEnded(self._lost)  # those after it are skipped, should it end yet
        if self._lost:
            raise NeverEnded(self._lost)


def _work(queue: SimpleQueue[Piece | None]) -> None:
    """The thread's loop.  It refers to the queue alone, so that an unreferenced `HostThread` can be collected."""
    while (piece := queue.get()) is not None:
        piece.run()
