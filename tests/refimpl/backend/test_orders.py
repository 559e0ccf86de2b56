"""The orders that the CPU executes a program in: all that streams and events allow, and no other."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.backend import CopiesEarly, CopiesLate, Drawn, LegalOrder, ProgramOrder, RunError
from refimpl.backend.orders import Arranger
from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, Launch, Program, Record, Setup, Wait
from refimpl.planner.instructions import Instruction
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, small_program
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, setups

ORDERS: list[LegalOrder] = [ProgramOrder(), CopiesEarly(), CopiesLate(), Drawn(0), Drawn(1)]
WORK = ("launch", "copy out", "copy in")


def allowed(program: Program, arranged: list[int]) -> bool:
    """The slow obvious way: run through the order, stream by stream, and look at every event."""
    place = {position: i for i, position in enumerate(arranged)}
    past: dict[int, set[int]] = {stream: set() for stream in range(len(program.streams))}
    recorded: dict[int, set[int]] = {}
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, Record):
            recorded[instruction.event] = set(past[instruction.stream])
        elif isinstance(instruction, Wait):
            past[instruction.stream] |= recorded[instruction.event]
        elif isinstance(instruction, (Launch, CopyIn, CopyOut)):
            if any(place[earlier] > place[position] for earlier in past[instruction.stream]):
                return False
            past[instruction.stream].add(position)
    return len(place) == sum(i.op in WORK for i in program.instructions)


@pytest.mark.slow
@given(networks(layers=8), setups, st.integers(0, 99))
@settings(max_examples=15)
def test_every_order_is_one_that_streams_and_events_allow(network: Network, wanted: Setup, seed: int) -> None:
    program = least_plan(network, wanted, MACHINE)
    arranger = Arranger(program)
    for order in (ProgramOrder(), CopiesEarly(), CopiesLate(), Drawn(seed)):
        assert allowed(program, arranger.arrange(order))


def test_a_program_that_cannot_go_on_says_where() -> None:
    """Two streams, each waiting for a record that follows the other's own wait."""
    program = small_program()
    knot: list[Instruction] = [Record(0, 0, 0), Record(0, 1, 1), Wait(0, 0, 1), Wait(0, 1, 0)]
    assert Arranger(dataclasses.replace(program, instructions=knot)).arrange(ProgramOrder()) == []
    arranger = Arranger(dataclasses.replace(program, instructions=knot))
    arranger._awaited = {2: 3, 3: 2}
    with raises_naming(RunError, 2):
        arranger.arrange(ProgramOrder())
