"""The first output with a NaN: every launch is looked at, up to the given one, and what is found is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refimpl.backend.diagnosis import Finding, diagnose
from refimpl.backend.no_waits import Use
from refimpl.planner import Launch, Program
from tests.messages import lacks
from tests.refimpl.backend.running import dense_network, small_program


class Spoilt:
    """A device and a replay: after the launch at a position, one tensor holds the given numbers at its start."""

    def __init__(self, program: Program, position: int, address: int, numbers: list[float]) -> None:
        self.program, self.position, self.address, self.numbers = program, position, address, numbers
        self.now, self.finished = -1, 0

    def issue(self, pauses: Any) -> None:
        for position in range(len(self.program.instructions)):
            self.now = position
            if position in pauses:
                pauses[position]()

    def finish(self) -> None:
        self.finished += 1

    def read(self, address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        values = np.zeros(shape, dtype)
        if self.now >= self.position and address == self.address:
            values.flat[: len(self.numbers)] = self.numbers
        return values


@pytest.fixture(scope="module")
def program() -> Program:
    return small_program(dense_network())


def launched(program: Program) -> list[tuple[int, Launch]]:
    return [(position, one) for position, one in enumerate(program.instructions) if isinstance(one, Launch)]


@pytest.mark.parametrize(
    ("numbers", "count", "worst"),
    [([1.0, np.inf, 2.0], 1, np.inf), ([-np.inf, np.nan, np.inf], 3, np.nan), ([0.0, -np.inf], 1, -np.inf)],
)
def test_the_first_launch_that_shows_it_is_found(
    numbers: list[float], count: int, worst: float, program: Program
) -> None:
    position, launch = launched(program)[2]
    output = launch.call.writes[0]
    address = dict(zip(launch.call.operands, launch.addresses, strict=True))[output]
    spoilt: Any = Spoilt(program, position, address, numbers)
    last = launched(program)[-1][0]
    found = diagnose(spoilt, spoilt, program, last)
    assert isinstance(found, Finding) and found.tensor is output and found.count == count
    np.testing.assert_equal(found.worst, worst)
    assert launch.call in found.step.calls and found.weights == []
    assert not lacks(str(found), found.step.layer, output, found.step.direction)
    assert spoilt.now == position and spoilt.finished == 1


def test_nothing_is_found_where_all_is_finite_or_later(program: Program) -> None:
    (before, _), (position, launch) = launched(program)[1:3]
    spoilt: Any = Spoilt(program, position, launch.addresses[0], [1.0])
    assert diagnose(spoilt, spoilt, program, launched(program)[-1][0]) is None
    address = dict(zip(launch.call.operands, launch.addresses, strict=True))[launch.call.writes[0]]
    spoilt = Spoilt(program, position, address, [np.nan])
    assert diagnose(spoilt, spoilt, program, before) is None
    assert spoilt.now == before and spoilt.finished == 1


def test_weights_that_held_such_numbers_before_are_named(program: Program) -> None:
    weight = next(tensor for tensor in program.network.resident if tensor.name == "first.w")
    position, launch = next((p, one) for p, one in launched(program) if weight in one.call.reads)
    at = dict(zip(launch.call.operands, launch.addresses, strict=True))

    class Both(Spoilt):
        def read(self, address: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
            values = super().read(address, shape, dtype)
            values.flat[0] = np.nan if address == at[weight] else values.flat[0]
            return values

    spoilt: Any = Both(program, position, at[launch.call.writes[0]], [np.nan])
    found = diagnose(spoilt, spoilt, program, launched(program)[-1][0])
    assert found is not None and found.weights == ["first.w"] and not lacks(str(found), "first.w")


def test_two_uses_clash_where_they_share_a_byte_and_one_writes() -> None:
    first = Use("device", 10, 20, True)
    for start, end, clash in ((0, 10, False), (0, 11, True), (19, 30, True), (20, 30, False), (12, 13, True)):
        for writes in (True, False):
            other = Use("device", start, end, writes)
            assert first.clashes(other) == other.clashes(first) == clash
    assert not first.clashes(Use("pinned", 10, 20, True))
    assert not Use("device", 10, 20, False).clashes(Use("device", 10, 20, False))
