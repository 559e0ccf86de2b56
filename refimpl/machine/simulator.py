"""When would each instruction of a program run on a machine?  Deterministic, and linear in the program's length.

An instruction is anything with an `op` and what goes with it: a "launch" has a stream, a call and the choice made for
it, a "copy out" or "copy in" a stream, bytes and a tier, a "record" and a "wait" a stream and an event; "allocate" and
"free" take time only where each is a call of the driver.  Any other word is work of the host's threads, with a stream
and bytes.  A launch, a copy out, a copy in and a collective call can run side by side, never two of
one kind; streams keep their order.  A copy uses the GPU's engine of its direction whatever its tier, and takes the time
that the tier's rate gives.  The planner carries the same clock and asks the same machine, and gets the same times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernels.targets.collector import collector_paused
from refimpl.machine.clock import Clock, Engine
from refimpl.machine.model import Machine

Interval = tuple[float, float]


#: What an instruction does → the engine that does it; a collective call's engine is the network.
ENGINES: dict[str, Engine] = {"launch": "compute", "copy out": "out", "copy in": "in"}


def engine_of(instruction: Any) -> Engine:
    """The engine of a launch, a copy, or work of the host's threads."""
    collective = instruction.op == "launch" and instruction.call.collective
    return "network" if collective else ENGINES.get(instruction.op, "host")


@dataclass(frozen=True, slots=True)
class Span:
    """One launch or copy, or work of the host's threads, on the timeline.  Seconds since the iteration began."""

    instruction: Any
    stream: int
    engine: Engine
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """The spans of an iteration: simulated on `machine`, or measured."""

    spans: list[Span]  #: in the order of the program
    streams: tuple[str, ...]
    seconds: float  #: of the whole iteration
    machine: str
    simulated: bool = True

    def on(self, engine: Engine) -> list[Span]:
        """An engine's spans, in the order they ran."""
        return sorted((span for span in self.spans if span.engine == engine), key=lambda span: (span.start, span.end))

    def busy(self, engine: Engine) -> float:
        """Seconds in which an engine had work."""
        return sum(span.end - span.start for span in self.spans if span.engine == engine)

    @property
    def stall(self) -> float:
        """Seconds in which the compute engine had nothing to do."""
        return self.seconds - self.busy("compute")

    def overlap(self) -> float:
        """Seconds in which something was copied, in either direction or both, while a kernel ran."""
        return common(self._intervals("compute"), union([*self._intervals("out"), *self._intervals("in")]))

    def hidden(self, engine: Engine) -> float:
        """Seconds in which an engine worked while a kernel ran."""
        return common(self._intervals("compute"), self._intervals(engine))

    def copying(self) -> float:
        """Seconds in which something was copied, in either direction or both."""
        return sum(end - start for start, end in union([*self._intervals("out"), *self._intervals("in")]))

    def link_rate(self, why: str | None = None) -> float:
        """Bytes a second of all copies, both ways, or of those made for one reason; 0 without any."""
        spans = [s for s in self.spans if s.engine in ("out", "in") and why in (None, s.instruction.why)]
        seconds = sum(span.end - span.start for span in spans)
        return sum(span.instruction.nbytes for span in spans) / seconds if seconds else 0.0

    def steps(self) -> dict[int, Interval]:
        """Step number → start of its first launch and end of its last; its copies are not counted."""
        found: dict[int, Interval] = {}
        for span in self.spans:
            if span.engine == "compute":
                step = span.instruction.step
                start, end = found.get(step, (span.start, span.end))
                found[step] = min(start, span.start), max(end, span.end)
        return found

    def _intervals(self, engine: Engine) -> list[Interval]:
        return union((span.start, span.end) for span in self.spans if span.engine == engine)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments in as few intervals as possible, ascending."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def common(these: Sequence[Interval], those: Sequence[Interval]) -> float:
    """Seconds that are in both; each is ascending and without overlaps, as `union` makes them."""
    ends = [end for _, end in those]
    seconds = 0.0
    for start, end in these:
        at = bisect_left(ends, start)
        while at < len(those) and those[at][0] < end:
            seconds += min(end, those[at][1]) - max(start, those[at][0])
            at += 1
    return seconds


def simulate(instructions: Iterable[Any], streams: tuple[str, ...], machine: Machine, driver_calls: bool) -> Timeline:
    """The instructions' timeline; `driver_calls`: every allocation and every release is a call of the driver."""
    clock = Clock(len(streams), machine.ring.shares_link)
    with collector_paused():
        spans = [*timed(instructions, clock, machine, driver_calls)]
    return Timeline(spans, streams, clock.end, machine.name)


def timed(instructions: Iterable[Any], clock: Clock, machine: Any, driver_calls: bool) -> Iterator[Span]:
    """The spans of what takes time, in the order of the program, while the clock goes on.

    Args:
        instructions: of an iteration.
        clock: one, or one for each of several machines (`refimpl.machine.possible`).
        machine: says how long a call and a copy take, on that one or on each.
        driver_calls: whether every allocation and every release is a call of the driver.
    """
    events: dict[int, float] = {}
    for instruction in instructions:
        op = instruction.op
        if op == "launch":
            seconds = machine.seconds(instruction.call, instruction.choice)
            stream = instruction.stream
            engine: Engine = "network" if instruction.call.collective else "compute"
            yield Span(instruction, stream, engine, *clock.run(stream, engine, seconds))
        elif op == "copy out" or op == "copy in":
            way: Literal["out", "in"] = "out" if op == "copy out" else "in"
            stream, seconds = instruction.stream, machine.copy_seconds(instruction.nbytes, way, instruction.tier)
            yield Span(instruction, stream, way, *clock.run(stream, way, seconds))
        elif op == "record":
            events[instruction.event] = clock.now[instruction.stream]
        elif op == "wait":
            clock.wait(instruction.stream, events[instruction.event])
        elif op == "allocate" or op == "free":
            if driver_calls:
                clock.hold(machine.allocate_seconds if op == "allocate" else machine.free_seconds)
        else:
            stream, seconds = instruction.stream, machine.host_seconds(instruction.nbytes)
            yield Span(instruction, stream, "host", *clock.run(stream, "host", seconds))
