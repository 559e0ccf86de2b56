"""A missing wait shows as a wrong number, and `verify` accepts no program in which one does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.backend import CopiesEarly, CopiesLate, Drawn, LegalOrder, NotFinite, ProgramOrder
from refimpl.backend.poison import ONES, Bytes, Poison
from refimpl.machine import HOST
from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, Program, Setup, Wait, Work, plan
from refimpl.planner.verify import Unsafe
from tests.refimpl.backend.running import Arrays, differing, plain_training, small_network, small_program, trained
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import LastUsed, OffloadSome, PooledPinned, PrefetchAhead, least_plan, machine, setup, setups

ITERATIONS = 2


# -- which bytes -------------------------------------------------------------------------------------------------------


def everything_leaves() -> Program:
    modules = setup(offload=OffloadSome(), prefetch=PrefetchAhead(1))
    return plan(small_network(), modules, machine(), 1 << 26)


def filled(program: Program, until: int | None = None) -> Callable[[Bytes], bool]:
    """Whether bytes that were zeros are all ones once the work before a position, or all work, has been executed."""
    arenas = {
        "device": np.zeros(program.arena_bytes + 512, np.uint8),  # beside the plan's, 512 bytes for a workspace
        HOST: np.zeros(program.pinned_bytes, np.uint8),
    }
    poison = Poison(program, arenas)
    poison.begin()
    for position, instruction in enumerate(program.instructions[:until]):
        if isinstance(instruction, Work):
            poison.executed(position)

    def are_ones(where: Bytes) -> bool:
        place, start, end = where
        found = np.unique(arenas[place][start:end])
        assert found.tolist() in ([0], [ONES]), f"{where} is filled in part"
        return bool(found[0])

    return are_ones


def of(program: Program, name: str) -> Bytes:
    """Where a resident tensor is on the device."""
    tensor, address = next((t, address) for t, address in program.resident.items() if t.name == name)
    return "device", address, address + tensor.nbytes


def test_a_map_s_bytes_are_filled_where_it_left_and_where_it_waited() -> None:
    program = everything_leaves()
    out = next(one for one in program.instructions if isinstance(one, CopyOut))
    back = next(one for one in program.instructions if isinstance(one, CopyIn) and one.tensor is out.tensor)
    on_device = "device", out.address, out.address + out.nbytes
    on_host = HOST, back.pinned_address, back.pinned_address + back.nbytes
    for instruction, where in ((out, on_device), (back, on_host)):
        at = program.instructions.index(instruction)
        assert not filled(program, at)(where) and filled(program, at + 1)(where)


def test_what_the_next_iteration_needs_stays_and_what_it_writes_first_does_not() -> None:
    """A gradient is overwritten in every iteration, and is filled when one begins."""
    program = everything_leaves()
    for name in ("first.w", "momentum of first.w"):
        assert not filled(program)(of(program, name))
    assert filled(program, 0)(of(program, "d(first.w)")) and filled(program)(of(program, "d(first.w)"))
    losses, address = next((t, address) for t, address in program.pinned.items() if t.kind == "loss")
    assert not filled(program)((HOST, address, address + losses.nbytes))


# -- a missing wait ----------------------------------------------------------------------------------------------------


def orders() -> list[LegalOrder]:
    return [CopiesLate(), CopiesEarly(), Drawn(1), Drawn(2)]


def without_one_wait(program: Program) -> Iterator[Program]:
    """The program, less each of its waits in turn."""
    for position, instruction in enumerate(program.instructions):
        if isinstance(instruction, Wait):
            rest = program.instructions[:position] + program.instructions[position + 1 :]
            yield dataclasses.replace(program, instructions=rest)


def runs_right(program: Program, order: LegalOrder, expected: Arrays, poison: bool = True) -> bool:
    try:
        with np.errstate(all="ignore"):
            _, state = trained(program, ITERATIONS, order=order, poison=poison)
    except NotFinite:
        return False
    return not differing(state, expected)


def is_safe(program: Program) -> bool:
    try:
        program.verify()
    except Unsafe:
        return False
    return True


def examine(program: Program, expected: Arrays) -> tuple[int, int, int]:
    """Removes each wait: how many `verify` refused, and how many showed as wrong numbers, out of how many."""
    refused = wrong = count = 0
    for less in without_one_wait(program):
        safe = is_safe(less)
        right = all(runs_right(less, order, expected) for order in orders())
        assert right or not safe, "verify accepts a program that some order runs wrong"
        count, refused, wrong = count + 1, refused + (not safe), wrong + (not right)
    return refused, wrong, count


@pytest.mark.slow
def test_a_missing_wait_is_a_wrong_number() -> None:
    program = small_program(pinned=PooledPinned(), cache=LastUsed())
    expected = plain_training(program, ITERATIONS)
    program.verify()
    assert all(runs_right(program, order, expected) for order in [ProgramOrder(), *orders()])
    refused, wrong, count = examine(program, expected)
    print(f"{count} waits: verify refuses to do without {refused}, of which {wrong} show as wrong numbers")
    assert wrong > 0.8 * refused  # some matter to iterations that overlap, and here the host waits in between


@pytest.mark.slow
@given(networks(layers=8), setups, st.sampled_from((1e8, 12.8e9)))
@settings(max_examples=8)
def test_verify_accepts_what_runs_right(network: Network, wanted: Setup, link: float) -> None:
    program = least_plan(network, wanted, machine(link))
    examine(program, plain_training(program, ITERATIONS))


@pytest.mark.slow
def test_without_poison_fewer_show() -> None:
    """What poison is for: bytes that happen to hold the right number still are caught."""
    program = small_program(pinned=PooledPinned(), cache=LastUsed())
    expected = plain_training(program, ITERATIONS)
    shown = {True: 0, False: 0}
    for less in without_one_wait(program):
        for poison in shown:
            shown[poison] += not all(runs_right(less, order, expected, poison) for order in orders())
    assert shown[True] > shown[False]
