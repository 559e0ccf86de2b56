"""The simulator beside a slow, obvious twin that steps through time and starts whatever may start."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import Clock, simulate
from refimpl.machine.ring import TEN_GIGABIT, Ring
from refimpl.machine.simulator import Span, Timeline, common, union
from tests.counted_lines import lines_run

STREAMS = ("compute", "out", "in", "network")


@dataclass(frozen=True)
class Work:
    """A call that is no more than its seconds."""

    seconds: float
    collective: bool = False


@dataclass(frozen=True)
class Plain:
    """A machine whose calls say how long they take."""

    name: str = "plain"
    allocate_seconds: float = 3.0
    free_seconds: float = 5.0
    ring: Ring = TEN_GIGABIT

    def seconds(self, call: Work, choice: None = None) -> float:
        return call.seconds

    def copy_seconds(self, nbytes: float, direction: str, tier: str) -> float:
        return nbytes if direction == "out" else 2 * nbytes


def instruction(op: str, **given_: Any) -> SimpleNamespace:
    return SimpleNamespace(op=op, choice=None, tier="host", **given_)


@st.composite
def programs(draw: st.DrawFn) -> list[SimpleNamespace]:
    """Instructions on three streams; an event is recorded before anything waits for it, perhaps never waited for."""
    made: list[SimpleNamespace] = []
    events = 0
    ops = ("launch", "launch", "copy out", "copy in", "record", "wait", "wait", "allocate", "free")
    for op in draw(st.lists(st.sampled_from(ops), max_size=40)):
        stream = draw(st.integers(0, 3))
        if op == "launch":
            call = Work(draw(st.integers(0, 9)), draw(st.booleans()))
            made.append(instruction(op, stream=stream, call=call, step=len(made)))
        elif op in ("copy out", "copy in"):
            made.append(instruction(op, stream=stream, nbytes=draw(st.integers(0, 9))))
        elif op == "record":
            made.append(instruction(op, stream=stream, event=events))
            events += 1
        elif op == "wait" and events:
            made.append(instruction(op, stream=stream, event=draw(st.integers(0, events - 1))))
        elif op in ("allocate", "free"):
            made.append(instruction(op))
    return made


def stepwise(program: list[Any], machine: Plain, driver_calls: bool, luck: random.Random) -> list[tuple[float, float]]:
    """Start and end of every instruction, found by walking through time; in which order things start is up to luck."""
    moments: dict[int, tuple[float, float]] = {}
    copies = {"copy out": "out", "copy in": "in"}
    engines = [
        ("network" if one.call.collective else "compute") if one.op == "launch" else copies.get(one.op)
        for one in program
    ]
    driver = [driver_calls and one.op in ("allocate", "free") for one in program]
    now = 0.0

    def done(number: int) -> bool:
        return number in moments and moments[number][1] <= now

    def may_start(number: int) -> bool:
        one = program[number]
        if number in moments:
            return False
        for before in range(number):
            other = program[before]
            same_stream = getattr(one, "stream", None) == getattr(other, "stream", 0.5)
            same_engine = engines[number] is not None and engines[before] == engines[number]
            awaited = one.op == "wait" and other.op == "record" and other.event == one.event
            if (same_stream or same_engine or awaited or driver[before] or driver[number]) and not done(before):
                return False
        return True

    def takes(one: Any) -> float:
        if one.op == "launch":
            return machine.seconds(one.call)
        if one.op in copies:
            return machine.copy_seconds(one.nbytes, copies[one.op], one.tier)
        if driver_calls and one.op in ("allocate", "free"):
            return machine.allocate_seconds if one.op == "allocate" else machine.free_seconds
        return 0.0

    while len(moments) < len(program):
        ready = [number for number in range(len(program)) if may_start(number)]
        if ready:
            number = luck.choice(ready)
            moments[number] = now, now + takes(program[number])
        else:
            now = min(end for _, end in moments.values() if end > now)
    return [moments[number] for number in range(len(program))]


@given(programs(), st.booleans(), st.randoms(use_true_random=False))
def test_the_twin_finds_the_same_times(program: list[Any], driver_calls: bool, luck: random.Random) -> None:
    machine = Plain()
    found = simulate(program, STREAMS, machine, driver_calls)  # type: ignore[arg-type]
    expected = stepwise(program, machine, driver_calls, luck)
    by_instruction = {id(span.instruction): (span.start, span.end) for span in found.spans}
    for one, moments in zip(program, expected, strict=True):
        if one.op in ("launch", "copy out", "copy in"):
            assert by_instruction[id(one)] == moments
    assert found.seconds == max((end for _, end in expected), default=0)


@given(programs())
def test_what_a_timeline_tells_is_what_its_spans_say(program: list[Any]) -> None:
    timeline = simulate(program, STREAMS, Plain(), False)  # type: ignore[arg-type]
    ticks = range(int(timeline.seconds))  # every span starts and ends at a whole second

    def runs(tick: int, *engines: str) -> bool:
        return any(span.start <= tick < span.end for span in timeline.spans if span.engine in engines)

    assert timeline.busy("compute") == sum(runs(tick, "compute") for tick in ticks)
    assert timeline.stall == sum(not runs(tick, "compute") for tick in ticks)
    assert timeline.copying() == sum(runs(tick, "out", "in") for tick in ticks)
    assert timeline.overlap() == sum(runs(tick, "compute") and runs(tick, "out", "in") for tick in ticks)
    assert timeline.busy("out") == sum(runs(tick, "out") for tick in ticks)
    assert timeline.hidden("in") == sum(runs(tick, "compute") and runs(tick, "in") for tick in ticks)
    for engine in ("compute", "out", "in"):
        spans = timeline.on(engine)
        assert all(one.end <= other.start for one, other in pairwise(spans))


def test_steps_run_from_their_first_launch_to_their_last() -> None:
    def span(step: int, start: float, end: float, engine: Any = "compute") -> Span:
        return Span(instruction("launch", step=step), 0, engine, start, end)

    timeline = Timeline([span(1, 0, 2), span(1, 2, 3), span(1, 1, 9, "out"), span(2, 4, 5)], STREAMS, 9, "plain")
    assert timeline.steps() == {1: (0, 3), 2: (4, 5)}


def test_the_links_rate_is_of_all_copies_or_of_those_for_one_reason() -> None:
    def copied(nbytes: int, why: str, engine: Any, end: float) -> Span:
        return Span(instruction("copy", step=1, nbytes=nbytes, why=why), 0, engine, 0, end)

    launch = Span(instruction("launch", step=1), 0, "compute", 0, 50)
    spans = [copied(300, "offload", "out", 10), copied(100, "prefetch", "in", 5), copied(40, "batch", "in", 5), launch]
    timeline = Timeline(spans, STREAMS, 50, "plain")
    assert timeline.link_rate() == 440 / 20
    assert [timeline.link_rate(why) for why in ("offload", "prefetch", "none such")] == [30, 20, 0.0]


intervals = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair))))


@given(intervals, intervals)
def test_union_and_common_count_whole_seconds(these: list[tuple[int, int]], those: list[tuple[int, int]]) -> None:
    def seconds(of: list[tuple[int, int]]) -> set[int]:
        return {tick for start, end in of for tick in range(start, end)}

    one, other = union(these), union(those)
    assert seconds(one) == seconds(these) and sum(end - start for start, end in one) == len(seconds(these))  # type: ignore[arg-type]
    assert common(one, other) == len(seconds(these) & seconds(those))


def test_a_network_behind_the_link_occupies_both_copy_engines() -> None:
    clock, apart = Clock(3, network_shares_link=True), Clock(3)
    for one in (clock, apart):
        assert one.run(0, "out", 4) == (0, 4)
    assert clock.run(1, "network", 5) == (4, 9) and clock.run(2, "in", 1) == (9, 10)
    assert apart.run(1, "network", 5) == (0, 5) and apart.run(2, "in", 1) == (0, 1)


@pytest.mark.slow
def test_work_grows_with_the_program_and_no_faster() -> None:
    def work(length: int) -> int:
        program = []
        for number in range(length // 4):
            program += [
                instruction("launch", stream=0, call=Work(1.0), step=number),
                instruction("record", stream=0, event=number),
                instruction("wait", stream=1, event=number),
                instruction("copy out", stream=1, nbytes=2),
            ]
        return lines_run(lambda: simulate(program, STREAMS, Plain(), False).overlap())  # type: ignore[arg-type]

    assert work(8_000) < 9 * work(1_000)
