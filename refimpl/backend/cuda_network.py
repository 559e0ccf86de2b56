"""Collective calls beside a GPU: through pinned memory, by a thread of the host, on a stream of their own.

One such call is, on the stream `network`: copies of its gradients to pinned memory; a wait until the thread has taken
their mean over all ranks; copies back.  The thread sleeps until the copies out are done, and then writes into a number
of pinned memory how many of the iteration's calls it has made, for which the driver holds the stream
(cuStreamWaitValue32).  So nothing but this stream waits, and what the program orders around the call is ordered around
all of it.  The next call's copies follow on the same stream, so one buffer serves all calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from cuda.bindings import driver

from refimpl.backend.alone import Communicator
from refimpl.backend.cuda_host import Action, ThreadSide, checked
from refimpl.backend.host_thread import Piece, work_text
from refimpl.planner import Launch, Program

#: Whether out or back, device address, host address, bytes → a copy on a handle
Copying = Callable[[bool, int, int, int], Callable[[Any], None]]


class NetworkSide(ThreadSide):
    """The collective calls of one program.

    Args:
        program: that makes them.
        communicator: of the ranks.
        staging: pinned memory for the largest call's gradients, as bytes.
        counter: one number of pinned memory.
        copying: how to copy out and in.
        event: a new event of the driver, and how to record it.
        handle: the stream's.
    """

    waits_for = "the other ranks"

    def __init__(
        self,
        program: Program,
        communicator: Communicator,
        staging: np.ndarray,
        counter: np.ndarray,
        copying: Copying,
        event: Callable[[int], Any],
        handle: Any,
    ) -> None:
        super().__init__(program, counter)
        self._staging, self._handle, self._event, self._copying = staging, handle, event, copying
        self._number: dict[int, int] = {}  #: position of a call → how many there are up to it
        self._reduce: dict[int, Callable[[], None]] = {}
        for position, instruction in enumerate(program.instructions):
            if isinstance(instruction, Launch) and instruction.call.collective:
                self._number[position] = len(self._number) + 1
                numbers = staging[: self._nbytes(instruction)].view(np.float32)
                self._reduce[position] = communicator.mean([numbers])

    @staticmethod
    def _nbytes(launch: Launch) -> int:
        return sum(tensor.nbytes for tensor in launch.call.updates)

    def actions(self, position: int) -> list[Action]:
        """The launches for a call."""
        launch = self._program.instructions[position]
        assert isinstance(launch, Launch)
        out, back, host = [], [], self._staging.ctypes.data
        for tensor, address in zip(launch.call.operands, launch.addresses, strict=True):
            out.append((self._copying(True, address, host, tensor.nbytes), self._handle))
            back.append((self._copying(False, address, host, tensor.nbytes), self._handle))
            host += tensor.nbytes
        hold = partial(self._hold, self._number[position])
        return [*out, (self._hand_over, position), (hold, self._handle), *back]

    def _hand_over(self, position: int) -> None:
        event = self._event(position)
        checked(driver.cuEventRecord(event, self._handle), "to record an event")
        launch: Any = self._program.instructions[position]
        run, first = partial(self._run, position), partial(self._await, position, [event])
        self._start(position, Piece(work_text(launch), run, first, partial(self._count, self._number[position])))

    def _run(self, position: int) -> None:
        self._reduce[position]()
