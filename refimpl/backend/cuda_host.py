"""The host's own stream on a GPU: its threads copy maps while kernels and copies run, and no thread waits idly.

It is no CUDA stream, but a thread of this process (`host_thread`) that does its pieces in order.  Between it and the
CUDA streams there are two kinds of wait:

- The thread waits for a stream: it sleeps until the event that the program records there has happened.
- A stream waits for the thread: the driver holds the stream until a number in pinned memory has reached a value
  (cuStreamWaitValue32).  The thread writes there how many of the iteration's records it has reached.

The thread that issues an iteration waits for neither.  A record is counted after a failure too: otherwise the GPU would
wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from cuda.bindings import driver

from refimpl.backend.host_thread import HostThread, HostWork, Piece, StoredMap, host_stream, work_text
from refimpl.backend.orders import awaited
from refimpl.backend.run_errors import DeviceFailed, RunError
from refimpl.planner import HostCopy, Program, Record, Wait

Action = tuple[Callable[[Any], Any], Any]  #: a function and its one argument

AT_LEAST = int(driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ)
ALL_REACHED = (1 << 31) - 1  #: more records than any iteration has


def checked(result: tuple[Any, ...], doing: str) -> None:
    """The status that every call of `cuda.bindings` returns first."""
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise DeviceFailed(f"the GPU refused {doing}: {result[0].name}")


class ThreadSide:
    """A thread of the host beside the CUDA streams, and how it and they wait for each other.

    Args:
        program: whose work it does.
        counter: one number of pinned memory: how many things that a stream can wait for have happened in the thread.
    """

    waits_for = "the host's threads"  #: what a stream waits for, for errors

    def __init__(self, program: Program, counter: np.ndarray) -> None:
        self._program = program
        self._counter, self._address = counter, counter.ctypes.data
        status, self._context = driver.cuCtxGetCurrent()
        checked((status,), "to say its context")
        self._thread = HostThread()

    def begin(self) -> None:
        """A new iteration: nothing of it has happened.  The streams are empty."""
        self._counter[0] = 0

    def finish(self) -> None:
        """Wait until all pieces have ended; raises what went wrong in one."""
        try:
            self._thread.finish()
        except RunError:
            self._counter[0] = ALL_REACHED  # the streams go on; their results are not used
            raise

    def _start(self, position: int, piece: Piece) -> None:
        """Give the thread the piece of the instruction at a position."""
        self._thread.start(piece)

    def _hold(self, number: int, handle: Any) -> None:
        """A stream waits until the thread has counted to this number."""
        checked(driver.cuStreamWaitValue32(handle, self._address, number, AT_LEAST), f"to wait for {self.waits_for}")

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _await(self, position: int, events: list[Any]) -> None:
        """Sleep until all that the piece at this position needs has happened on the streams."""
        checked(driver.cuCtxSetCurrent(self._context), "its context to another thread")
        for event in events:
            checked(driver.cuEventSynchronize(event), "to say when a copy was done")

    def _count(self, number: int) -> None:
        self._counter[0] = max(int(self._counter[0]), number)


class HostSide(ThreadSide):
    """The host's work of one program.

    `counter` is one number of pinned memory, `event` gives the event of the record at a position, `handles` are the
    streams'.  The events are kept as long as a piece may wait for them, which can be longer than the device is open.
    """

    def __init__(
        self,
        program: Program,
        pinned: np.ndarray,
        store: np.ndarray,
        counter: np.ndarray,
        event: Callable[[int], Any],
        handles: list[Any],
    ) -> None:
        super().__init__(program, counter)
        self._handles = handles
        self._work = HostWork(program, pinned, store)
        self._pinned_base = pinned.ctypes.data
        self._host = host_stream(program)
        records = [p for p, i in enumerate(program.instructions) if isinstance(i, Record) and i.stream == self._host]
        self._number = {position: number for number, position in enumerate(records, 1)}
        self._awaited = awaited(program)
        self._first = self._events_before(event)
        self._pieces: dict[int, Piece] = {}  #: of this iteration, by position

    def _events_before(self, event: Callable[[int], Any]) -> dict[int, list[Any]]:
        """Position of a piece → the events of other streams that must have happened before it."""
        found: dict[int, list[Any]] = {}
        waiting: list[Any] = []
        for position, instruction in enumerate(self._program.instructions):
            if getattr(instruction, "stream", None) != self._host:
                continue
            if not isinstance(instruction, Wait):
                found[position], waiting = waiting, []
            elif self._awaited[position] not in self._number:  # the thread's own order implies the others
                waiting.append(event(self._awaited[position]))
        return found

    @property
    def stored(self) -> list[StoredMap]:
        return self._work.stored

    @property
    def given(self) -> list[tuple[int, HostCopy]]:
        """The maps that the last iteration gave to the thread, in order, with their positions."""
        given = [(position, self._program.instructions[position]) for position in self._pieces]
        return [(position, work) for position, work in given if isinstance(work, HostCopy)]

    def spans(self, origin: Any, began: float) -> list[tuple[HostCopy, float, float]]:
        """When each map was begun and done, in seconds since `origin`, which was `began` on the host's clock."""
        pieces = [(work, self._pieces[position]) for position, work in self.given]
        return [(work, piece.began - began, piece.until - began) for work, piece in pieces]

    def actions(self, position: int) -> list[Action] | None:
        """The calls for an instruction; None if it does not concern the host's work."""
        instruction: Any = self._program.instructions[position]
        if getattr(instruction, "stream", None) == self._host:
            return [] if isinstance(instruction, Wait) else [(self._hand_over, position)]
        number = self._number.get(self._awaited.get(position, -1))
        return None if number is None else [(partial(self._hold, number), self._handles[instruction.stream])]

    def begin(self) -> None:
        super().begin()
        self._pieces = {}

    def _hand_over(self, position: int) -> None:
        first = partial(self._await, position, [event.handle for event in self._first[position]])
        instruction = self._program.instructions[position]
        if isinstance(instruction, HostCopy):
            piece = Piece(work_text(instruction), partial(self._run, instruction), first)
        else:
            count = partial(self._count, self._number[position])
            piece = Piece(f"on its way to record {position}", lambda: None, first, count)
        self._pieces[position] = piece
        self._start(position, piece)

    def _run(self, work: HostCopy) -> None:
        self._work.run(work)

    def wait_before(self, position: int) -> None:
        """Wait for what a stream has to wait for before this position: then the GPU gets there.

        Call this before a wait for the GPU itself: that wait cannot have a time limit.
        """
        before = [record for wait, record in self._awaited.items() if wait < position and record in self._number]
        reached = max(before, default=-1)
        for given, piece in list(self._pieces.items()):
            if given <= reached:
                try:
                    self._thread.wait_for(piece)
                except DeviceFailed:
                    self.finish()  # of an iteration that ends here; it raises the same
