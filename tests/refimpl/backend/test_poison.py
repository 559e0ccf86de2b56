"""A missing wait shows as a wrong number, and `verify` accepts no program in which one does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from refimpl.backend import CopiesEarly, CopiesLate, Drawn, LegalOrder, NotFinite, ProgramOrder
from refimpl.backend.poison import ONES
from refimpl.planner import Allocate, Program, Wait
from refimpl.planner.verify import Unsafe
from tests.refimpl.backend.running import Arrays, differing, plain_training, small_program, trained, trainer
from tests.refimpl.modules import LastUsed, PooledPinned
from tests.refimpl.plainly import draw_batch

ITERATIONS = 2


# -- which bytes -------------------------------------------------------------------------------------------------------


def test_no_block_can_be_read_after_its_last_access() -> None:
    program = small_program()
    with trainer(program, poison=True) as made:
        made.step(*draw_batch(program.network))
        device: Any = made.device
        for i in program.instructions:
            if isinstance(i, Allocate):
                assert (device.arena[i.address : i.address + i.tensor.nbytes] == ONES).all(), i


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
