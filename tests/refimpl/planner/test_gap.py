"""The stretch that no block touches is cut out, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.memory import BothEnds
from refimpl.network import Network
from refimpl.planner import Allocate, Program, plan
from refimpl.planner.order import widest_gap
from tests.refimpl.modules import machine, networks, setup

pytestmark = pytest.mark.vdnnpp

blocks = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)).map(lambda b: (b[0], b[0] + b[1])), max_size=8)


@given(blocks)
def test_the_widest_gap_is_that_of_a_search_byte_by_byte(drawn: list[tuple[int, int]]) -> None:
    start, nbytes = widest_gap(drawn)
    covered = {byte for first, end in drawn for byte in range(first, end)}
    last = max(covered, default=0)
    runs, run = [0], 0
    for byte in range(last):
        run = 0 if byte in covered else run + 1
        runs.append(run)
    assert nbytes == max(runs)
    assert covered.isdisjoint(range(start, start + nbytes))


def shape(program: Program) -> list[tuple[object, ...]]:
    """All but addresses; a plan's workspaces are tensors of its own."""
    return [(i.op, i.step, str(getattr(i, "tensor", None)), getattr(i, "event", None)) for i in program.instructions]


@given(networks())
def test_an_arena_is_no_larger_than_what_is_used(network: Network) -> None:
    """A plan with a thousand times the memory has the same instructions, and an arena not much larger."""
    ends = setup(allocator=BothEnds())
    near, far = (plan(network, ends, machine(), 1 << bits) for bits in (30, 40))
    assert shape(near) == shape(far) and near.arena_bytes == far.arena_bytes < 1 << 28
    assert far.verify().peak_bytes == far.peak_bytes
    used = max(i.address + i.nbytes for i in far.instructions if isinstance(i, Allocate))
    assert used <= far.arena_bytes
