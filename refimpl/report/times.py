"""A program laid over a timeline: when its steps run, when blocks come and go, how long the host holds a copy."""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.machine import HOST, Span, Timeline
from refimpl.network import Tensor
from refimpl.planner import CopyIn, CopyOut, Launch, Program
from refimpl.planner.instructions import DEVICE, Transfer


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


@dataclass(slots=True)
class HostStay:
    """A map's content in one place outside the device, from the start of the copy that writes it to its last read."""

    tensor: Tensor
    nbytes: int
    begin: float  #: seconds
    end: float
    place: str = HOST  #: the tier, or STORE, with the bytes that the map is planned to take there


def host_stays(program: Program, timeline: Timeline) -> list[HostStay]:
    """The contents of the memories outside the device, and how long they are wanted.

    The batch is there all along; a tensor that is not copied back in (the losses) stays until the end.  A map that is
    stored leaves pinned memory for the store, and is in both while the host's threads work.
    """
    spans = spans_by_instruction(timeline)
    batch = {i.tensor: i.nbytes for i in program.instructions if isinstance(i, CopyIn) and i.why == "batch"}
    stays = [HostStay(tensor, nbytes, 0.0, timeline.seconds) for tensor, nbytes in batch.items()]
    latest: dict[tuple[Tensor, str], HostStay] = {}  # tensor and place → its content there

    for i in program.instructions:
        if isinstance(i, Transfer):
            span, target = spans[id(i)], i.target
            if stay := latest.get((i.tensor, i.source.memory)):
                stay.end = span.end
            if target.memory != DEVICE:
                stay = HostStay(i.tensor, target.nbytes, span.start, timeline.seconds, target.memory)
                latest[i.tensor, target.memory] = stay
                stays.append(stay)
    return stays


def flows(program: Program) -> list[tuple[int, int]]:
    """Positions of each copy out, and of each copy in of the same content."""
    pairs, last = [], dict[Tensor, int]()
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, CopyOut):
            last[instruction.tensor] = position
        elif isinstance(instruction, CopyIn) and instruction.tensor in last:
            pairs.append((last[instruction.tensor], position))
    return pairs
