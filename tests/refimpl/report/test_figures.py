"""The data: each figure against a recount that is slow and obvious."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.planner import DoesNotFit, Program
from refimpl.planner.instructions import Allocate, Free, Launch
from refimpl.report.figures import (
    MemoryCurve,
    fragmentation,
    memory_curve,
)
from tests.refimpl.modules import least_plan, machine, networks, setups
from tests.refimpl.report.programs import ALL, SMALL


def before(curve: MemoryCurve, position: int) -> dict[str, int]:
    """Kind → bytes held just before an instruction."""
    index = bisect_left(curve.positions, position) - 1
    return {kind: int(held[index]) for kind, held in curve.by_kind.items()}


def held_slowly(program: Program, position: int) -> dict[str, int]:
    """Kind → bytes held just after an instruction: walk the program from its start."""
    rounded = program.setup.allocator.open(0).rounded
    held = {"resident": sum(rounded(tensor.nbytes) for tensor in program.resident)}
    alive: dict[int, Allocate] = {}
    for instruction in program.instructions[: position + 1]:
        if isinstance(instruction, Allocate):
            alive[instruction.address] = instruction
        elif isinstance(instruction, Free):
            del alive[instruction.address]
    later = program.instructions[position + 1 :]
    for address, block in alive.items():
        free = next(i for i in later if isinstance(i, Free) and i.address == address)
        at_once = free is later[0] and program.instructions[position].step <= free.released
        drains = free.released < later[0].step and not at_once  # let go in an earlier step, and not yet given back
        kind = "draining" if drains else block.tensor.kind
        held[kind] = held.get(kind, 0) + block.nbytes
    return {kind: nbytes for kind, nbytes in held.items() if nbytes}


@pytest.mark.parametrize("make", SMALL)
def test_the_memory_curve_is_a_recount_at_every_instruction(make) -> None:
    program = make()
    curve = memory_curve(program)
    for position in range(-1, len(program.instructions)):
        found = before(curve, position + 1)
        assert {kind: nbytes for kind, nbytes in found.items() if nbytes} == held_slowly(program, position)


def agrees_with_the_books(program: Program) -> None:
    """What the planner's own books say at every step, and at the peak."""
    curve = memory_curve(program)
    assert curve.total.max() == program.peak_bytes == curve.total[curve.peak]
    first: dict[Any, Any] = {}
    for position, i in enumerate(program.instructions):
        if isinstance(i, Launch) and not i.rebuild:
            first.setdefault(i.step, position)
    for row in program.rows:
        if row.step.number not in first:
            continue  # nothing to do: no gradient is wanted below
        held = before(curve, first[row.step.number])
        assert sum(held.values()) == row.pool_bytes
        assert held["workspace"] >= row.workspace_bytes
    assert set(before(curve, len(program.instructions)).values()) == {0, curve.total[0]}  # nothing managed is left


@pytest.mark.parametrize("make", ALL)
def test_the_memory_curve_is_what_the_planner_says(make) -> None:
    agrees_with_the_books(make())


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(networks(8), setups, st.sampled_from((1e6, 1e9)), st.sampled_from((0.0, 0.2, 3.0)))
def test_for_any_network_and_setup(network, wanted, link, tightness) -> None:
    try:
        program = least_plan(network, wanted, machine(link), tightness)
    except DoesNotFit:
        return
    agrees_with_the_books(program)
    holes_are_a_recount(program, every=7)


def holes_are_a_recount(program: Program, every: int = 1) -> None:
    pool = fragmentation(program)
    for index in range(0, len(pool.positions), every):
        layout = pool.layout(int(pool.positions[index]))
        assert layout.hole_bytes == pool.hole_bytes[index]
        assert layout.largest_hole == pool.largest_hole[index]
        assert len(layout.holes) == pool.holes[index]
        ends = [(life.address, life.address + life.nbytes) for life in layout.blocks]
        assert all(end <= start for (_, end), (start, _) in pairwise(ends)), "blocks overlap"


@pytest.mark.parametrize("make", SMALL)
def test_holes_are_a_recount_at_every_change(make) -> None:
    program = make()
    holes_are_a_recount(program)
    pool = fragmentation(program)
    assert pool.size - pool.hole_bytes.min() == program.peak_bytes
    assert pool.layout(pool.peak).hole_bytes == pool.hole_bytes.min() == program.arena_bytes - program.peak_bytes
