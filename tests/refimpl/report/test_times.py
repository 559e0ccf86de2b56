"""A program over its timeline."""

from __future__ import annotations

from itertools import pairwise

import pytest

from refimpl.machine import HOST
from refimpl.planner.instructions import STORE
from refimpl.report.times import flows, host_stays, spans_by_instruction, step_times
from tests.refimpl.report.programs import ALL, SMALL, compressing, offloading, sharing, timeline


@pytest.mark.parametrize("make", ALL)
def test_steps_follow_one_another(make) -> None:
    program, line = make(), timeline(make)
    times = step_times(program, line)
    assert len(times) == len(program.network.steps)
    for (_, end), (start, _) in pairwise(times):
        assert end <= start + 1e-12
    assert all(start < end for start, end in times) and times[-1][1] <= line.seconds


@pytest.mark.parametrize("make", SMALL)
def test_a_flow_leads_from_a_copy_out_to_the_next_copies_in(make) -> None:
    program = make()
    for out, back in flows(program):
        first, second = program.instructions[out], program.instructions[back]
        assert (first.op, second.op) == ("copy out", "copy in") and first.tensor is second.tensor
        between = program.instructions[out + 1 : back]
        assert not any(i.op == "copy out" and i.tensor is first.tensor for i in between)
    brought = [i for i in program.instructions if i.op == "copy in" and i.tensor not in program.pinned]
    assert len(flows(program)) == len(brought)


@pytest.mark.parametrize("make", [offloading, sharing])
def test_the_host_holds_a_copy_until_nobody_wants_it(make) -> None:
    program, line = make(), timeline(make)
    spans = spans_by_instruction(line)
    stays = host_stays(program, line)
    assert len(stays) == len(program.pinned) - 1 + sum(i.op == "copy out" for i in program.instructions)  # the batch: 2
    for out, back in flows(program):
        start, end = spans[id(program.instructions[out])].start, spans[id(program.instructions[back])].end
        tensor = program.instructions[out].tensor
        assert any(s.tensor is tensor and s.begin == start and s.end >= end for s in stays)
    moments = sorted({stay.begin for stay in stays})
    held = [sum(stay.nbytes for stay in stays if stay.begin <= now < stay.end) for now in moments]
    assert 0 < max(held) <= program.pinned_bytes


def test_a_compressed_map_is_in_the_store_and_its_buffer_free() -> None:
    program, line = compressing(), timeline(compressing)
    spans = spans_by_instruction(line)
    stays = host_stays(program, line)
    decompressed = [i for i in program.instructions if i.op == "decompress"]
    assert decompressed
    for work in decompressed:
        packed = next(i for i in program.instructions if i.op == "compress" and i.tensor is work.tensor)
        first, stored, second = sorted(
            (stay for stay in stays if stay.tensor is work.tensor), key=lambda stay: stay.begin
        )
        assert [stay.place for stay in (first, stored, second)] == [HOST, STORE, HOST]
        assert first.end == spans[id(packed)].end and stored.begin == spans[id(packed)].start
        assert stored.end == spans[id(work)].end and second.begin == spans[id(work)].start
        assert stored.nbytes == work.planned < first.nbytes == work.tensor.nbytes
    for now in sorted({stay.begin for stay in stays}):
        held = sum(stay.nbytes for stay in stays if stay.begin <= now < stay.end and stay.place == HOST)
        assert held <= program.pinned_bytes
