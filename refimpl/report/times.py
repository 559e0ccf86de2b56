"""A program laid over a timeline: when its steps run, when blocks come and go, how long the host holds a copy."""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.machine import Span, Timeline
from refimpl.network import Tensor
from refimpl.planner import CopyIn, CopyOut, Launch, Program
from refimpl.planner.instructions import Compress, Decompress


def spans_by_instruction(timeline: Timeline) -> dict[int, Span]:
    """id of a launch, a copy or a piece of the host's work → its span."""
    return {id(span.instruction): span for span in timeline.spans}


def compute_clock(program: Program, timeline: Timeline) -> list[float]:
    """Position → seconds at which all launches in front of it are done; one more entry for the end of the program.

    Allocations and frees are no work: they happen at the moment that this clock shows.
    """
    spans, now, clock = spans_by_instruction(timeline), 0.0, []
    for instruction in program.instructions:
        clock.append(now)
        if isinstance(instruction, Launch):
            now = max(now, spans[id(instruction)].end)
    return [*clock, now]


def step_times(program: Program, timeline: Timeline) -> list[tuple[float, float]]:
    """Start and end of every step, in seconds: from its first launch, rebuilds included, to the end of its last."""
    launches: list[list[Span]] = [[] for _ in program.network.steps]
    for span in timeline.spans:
        if span.engine == "compute":
            launches[span.instruction.step - 1].append(span)
    times, now = [], 0.0
    for spans in launches:
        start = min((span.start for span in spans), default=now)
        now = max((span.end for span in spans), default=now)
        times.append((start, now))
    return times


@dataclass(frozen=True, slots=True)
class HostStay:
    """A map's content on the host, in one place, from the start of what brings it there to the end of what reads it."""

    tensor: Tensor
    nbytes: int
    begin: float  #: seconds
    end: float
    compressed: bool = False  #: in the store, with the bytes that it is planned to take; otherwise in pinned memory


def host_stays(program: Program, timeline: Timeline) -> list[HostStay]:
    """What the host holds, and how long it is wanted.

    The batch is there all along; what nothing copies back in (the losses) stays until the end.  A map that is
    compressed leaves pinned memory for the store, and is in both while the host's threads work.
    """
    spans = spans_by_instruction(timeline)
    batch = {i.tensor: i.nbytes for i in program.instructions if isinstance(i, CopyIn) and i.why == "batch"}
    stays = [HostStay(tensor, nbytes, 0.0, timeline.seconds) for tensor, nbytes in batch.items()]
    raw, stored = _Stays(timeline.seconds), _Stays(timeline.seconds, compressed=True)
    for i in program.instructions:
        if isinstance(i, CopyOut):
            raw.begin(i.tensor, i.nbytes, spans[id(i)].start)
        elif isinstance(i, CopyIn):
            raw.read(i.tensor, spans[id(i)].end)
        elif isinstance(i, Compress):
            raw.read(i.tensor, spans[id(i)].end)
            stored.begin(i.tensor, i.planned, spans[id(i)].start)
        elif isinstance(i, Decompress):
            stored.read(i.tensor, spans[id(i)].end)
            raw.begin(i.tensor, i.nbytes, spans[id(i)].start)
    return [*stays, *raw.close(), *stored.close()]


class _Stays:
    """One place of the host: a stay ends with the last read of it, without any at the end of the iteration."""

    def __init__(self, last: float, compressed: bool = False) -> None:
        self._last, self._compressed = last, compressed
        self._open: dict[Tensor, tuple[int, float]] = {}
        self._read: dict[Tensor, float] = {}
        self._found: list[HostStay] = []

    def begin(self, tensor: Tensor, nbytes: int, moment: float) -> None:
        if tensor in self._open:
            self._close(tensor)
        self._open[tensor] = nbytes, moment

    def read(self, tensor: Tensor, moment: float) -> None:
        if tensor in self._open:
            self._read[tensor] = moment

    def close(self) -> list[HostStay]:
        """All stays, when the program is over."""
        for tensor in list(self._open):
            self._close(tensor)
        return self._found

    def _close(self, tensor: Tensor) -> None:
        nbytes, begin = self._open.pop(tensor)
        end = self._read.pop(tensor, self._last)
        self._found.append(HostStay(tensor, nbytes, begin, end, self._compressed))


def flows(program: Program) -> list[tuple[int, int]]:
    """Positions of each copy out and of each copy in that brings back what it took away."""
    pairs, last = [], dict[Tensor, int]()
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, CopyOut):
            last[instruction.tensor] = position
        elif isinstance(instruction, CopyIn) and instruction.tensor in last:
            pairs.append((last[instruction.tensor], position))
    return pairs
