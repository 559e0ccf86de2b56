"""A program laid over a timeline: when its steps run, when blocks come and go, how long the host holds a copy."""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.machine import Span, Timeline
from refimpl.network import Tensor
from refimpl.planner import CopyIn, CopyOut, Launch, Program


def spans_by_instruction(timeline: Timeline) -> dict[int, Span]:
    """id of a launch or copy → its span."""
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
    """A map's content in pinned memory, from the start of its copy out to the end of the last copy in that reads it."""

    tensor: Tensor
    nbytes: int
    begin: float  #: seconds
    end: float


def host_stays(program: Program, timeline: Timeline) -> list[HostStay]:
    """What pinned memory holds, and how long it is wanted.

    The batch is there all along; what nothing copies back in (the losses) stays until the end.
    """
    spans = spans_by_instruction(timeline)
    batch = {i.tensor: i.nbytes for i in program.instructions if isinstance(i, CopyIn) and i.why == "batch"}
    stays = [HostStay(tensor, nbytes, 0.0, timeline.seconds) for tensor, nbytes in batch.items()]
    written: dict[Tensor, float] = {}  # map → start of its last copy out
    wanted: dict[Tensor, float] = {}  # map → end of the last copy in since

    def close(tensor: Tensor) -> None:
        begin = written.pop(tensor)
        stays.append(HostStay(tensor, tensor.nbytes, begin, wanted.pop(tensor, timeline.seconds)))

    for instruction in program.instructions:
        if isinstance(instruction, CopyOut):
            if instruction.tensor in written:
                close(instruction.tensor)
            written[instruction.tensor] = spans[id(instruction)].start
        elif isinstance(instruction, CopyIn) and instruction.tensor in written:
            wanted[instruction.tensor] = spans[id(instruction)].end
    for tensor in list(written):
        close(tensor)
    return stays


def flows(program: Program) -> list[tuple[int, int]]:
    """Positions of each copy out and of each copy in that brings back what it took away."""
    pairs, last = [], dict[Tensor, int]()
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, CopyOut):
            last[instruction.tensor] = position
        elif isinstance(instruction, CopyIn) and instruction.tensor in last:
            pairs.append((last[instruction.tensor], position))
    return pairs
