"""In which order the CPU executes a program: any that its streams and events allow.

A GPU runs each stream's work in order, and starts whatever is ready; which of several streams is faster depends on
the day.  Here an *order* decides: of the instructions that are ready, one a stream, it picks the next.  The extremes
(copies as early as possible, as late as possible) and orders drawn from a seed bring out what one GPU would show once a
year.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from refimpl.backend.run_errors import RunError
from refimpl.planner import Allocate, Free, Launch, Program, Record, Wait
from refimpl.planner.instructions import Transfer


class LegalOrder(Protocol):
    """`repeats`: whether every iteration runs in the same order."""

    repeats: bool

    def begin(self, streams: int) -> None:
        """A new iteration of a program with this number of streams."""

    def pick(self, ready: Mapping[int, int], copies: Sequence[bool]) -> int:
        """A stream out of `ready`: stream → position of its next work; `copies[position]`: it is no kernel."""


class ProgramOrder:
    """As the program lists them."""

    repeats = True

    def begin(self, streams: int) -> None:
        pass

    def pick(self, ready: Mapping[int, int], copies: Sequence[bool]) -> int:
        return min(ready, key=lambda stream: ready[stream])


class CopiesEarly(ProgramOrder):
    """Every copy as early as possible."""

    def pick(self, ready: Mapping[int, int], copies: Sequence[bool]) -> int:
        return min(ready, key=lambda stream: (not copies[ready[stream]], ready[stream]))


class CopiesLate(ProgramOrder):
    """Every copy as late as possible."""

    def pick(self, ready: Mapping[int, int], copies: Sequence[bool]) -> int:
        return min(ready, key=lambda stream: (copies[ready[stream]], ready[stream]))


class Drawn:
    """Drawn from a seed in every iteration: first how fast each stream is, then who comes next."""

    repeats = False

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._speeds: list[float] = []

    def begin(self, streams: int) -> None:
        self._speeds = [self._random.random() ** 3 for _ in range(streams)]

    def pick(self, ready: Mapping[int, int], copies: Sequence[bool]) -> int:
        streams = list(ready)
        return self._random.choices(streams, [self._speeds[stream] + 1e-9 for stream in streams])[0]


def awaited(program: Program) -> dict[int, int]:
    """Position of a wait → that of the record that it waits for: the last one of its event before it."""
    recorded: dict[int, int] = {}
    found: dict[int, int] = {}
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, Record):
            recorded[instruction.event] = position
        elif isinstance(instruction, Wait):
            if instruction.event not in recorded:
                raise RunError(
                    f"instruction {position} waits for event {instruction.event}, which is not recorded before"
                )
            found[position] = recorded[instruction.event]
    return found


class Arranger:
    """Puts the launches and copies of a program into an order."""

    def __init__(self, program: Program) -> None:
        self._streams = range(len(program.streams))
        self._queues: list[list[int]] = [[] for _ in self._streams]
        self._instructions = program.instructions
        self._copies = [  # what is not computing: the host's work and collective calls, too
            isinstance(i, Transfer) or (isinstance(i, Launch) and i.call.collective) for i in program.instructions
        ]
        self._awaited = awaited(program)
        for position, instruction in enumerate(program.instructions):
            if not isinstance(instruction, (Allocate, Free)):  # those are in the books alone
                self._queues[instruction.stream].append(position)

    def arrange(self, order: LegalOrder) -> list[int]:
        """Positions of all launches and copies, each after what it has to wait for."""
        order.begin(len(self._streams))
        queues = [deque(queue) for queue in self._queues]
        happened: set[int] = set()
        arranged: list[int] = []
        while True:
            while True in [self._advance(queue, happened) for queue in queues]:
                pass  # what one stream records may be what another waits for
            ready = {stream: queue[0] for stream, queue in enumerate(queues) if self._is_work(queue)}
            if not ready:
                break
            arranged.append(queues[order.pick(ready, self._copies)].popleft())
        stuck = [queue[0] for queue in queues if queue]
        if stuck:
            raise RunError(f"instruction {stuck[0]} waits for what never happens: {self._instructions[stuck[0]]}")
        return arranged

    def _is_work(self, queue: deque[int]) -> bool:
        return bool(queue) and (self._copies[queue[0]] or isinstance(self._instructions[queue[0]], Launch))

    def _advance(self, queue: deque[int], happened: set[int]) -> bool:
        """Take records, and waits for what has happened, off the front; whether there were any."""
        before = len(queue)
        while queue and not self._is_work(queue):
            awaited = self._awaited.get(queue[0])
            if awaited is not None and awaited not in happened:
                break
            happened.add(queue.popleft())
        return len(queue) < before
