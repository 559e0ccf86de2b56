"""The contract: what every allocator keeps, whatever its policy.  All of it runs over every member of ALLOCATORS."""

from __future__ import annotations

import copy
import dataclasses
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from refimpl.memory import ALLOCATORS, Allocator, Pool, PoolError
from tests.messages import raises_naming

every = pytest.mark.parametrize("allocator", ALLOCATORS.values(), ids=ALLOCATORS.keys())


def state(pool: Pool) -> tuple[Any, ...]:
    """All that can be seen of a pool, but the count of failures."""
    return pool.blocks(), pool.holes(), pool.top, dataclasses.replace(pool.statistics(), failures=0)


def take(pool: Pool, nbytes: int, stays: bool = False) -> int:
    """Allocate what is known to fit."""
    address = pool.allocate(nbytes, stays)
    assert address is not None
    return address


def check(pool: Pool) -> None:
    """What must be true of a pool at any moment, recounted from its blocks."""
    blocks, holes = pool.blocks(), pool.holes()
    parts = sorted(blocks + holes)
    assert [address for address, _ in parts] + [pool.size] == [0] + [address + size for address, size in parts], (
        "blocks and holes do not tile the pool"
    )
    assert all(number % pool.granularity == 0 for part in parts for number in part), "a part is not whole granules"
    assert all(size > 0 for _, size in parts)
    assert blocks == sorted(blocks) and holes == sorted(holes)
    assert all(size + address != after for (address, size), (after, _) in pairwise(holes)), "two holes touch"
    assert all(pool.block_bytes(address) == size for address, size in blocks)
    statistics = pool.statistics()
    assert statistics.size == pool.size
    assert statistics.held == pool.held == sum(size for _, size in blocks)
    assert statistics.free_bytes == pool.free_bytes == sum(size for _, size in holes)
    assert statistics.largest_hole == pool.largest_hole == max((size for _, size in holes), default=0)
    assert (statistics.blocks, statistics.holes) == (len(blocks), len(holes))
    assert statistics.peak == pool.peak >= pool.held
    assert pool.size >= pool.top >= max((address + size for address, size in blocks), default=0)
    assert statistics.allocations - statistics.frees == len(blocks)
    assert 0 <= statistics.fragmentation < 1


def check_largest_hole(pool: Pool) -> None:
    """The largest hole can be had in one piece, and not a byte more."""
    trial = copy.deepcopy(pool)
    assert trial.allocate(trial.largest_hole + 1) is None
    if trial.largest_hole:
        size, held = trial.largest_hole, trial.held
        assert trial.block_bytes(take(trial, size)) == size and trial.held == held + size


@every
def test_a_pool_is_rounded_down_and_begins_empty(allocator: Allocator) -> None:
    unit = allocator.granularity
    pool = allocator.open(10 * unit + unit - 1)
    assert (pool.size, pool.granularity) == (10 * unit, unit)
    assert (pool.blocks(), pool.holes()) == ([], [(0, 10 * unit)])
    assert (pool.held, pool.peak, pool.top, pool.free_bytes, pool.largest_hole) == (0, 0, 0, 10 * unit, 10 * unit)
    check(pool)


@every
def test_sizes_are_rounded_up_and_no_bytes_count_as_one(allocator: Allocator) -> None:
    unit = allocator.granularity
    pool = allocator.open(100 * unit)
    wanted = {0: unit, 1: unit, unit - 1: unit, unit: unit, unit + 1: 2 * unit, 5 * unit: 5 * unit}
    for nbytes, held in wanted.items():
        assert pool.rounded(nbytes) == held
        assert pool.block_bytes(take(pool, nbytes)) == held
    assert pool.held == sum(wanted.values())


@every
def test_what_no_pool_can_do_is_refused(allocator: Allocator) -> None:
    with raises_naming(PoolError, -1):
        allocator.open(-1)
    with raises_naming(PoolError, -3):
        allocator.open(1 << 20).allocate(-3)
    with raises_naming(PoolError, allocator.name, "granularity", 0):
        dataclasses.replace(allocator, granularity=0)


@every
def test_a_block_that_is_there_to_the_end_leaves_one_hole(allocator: Allocator) -> None:
    unit = allocator.granularity
    pool = allocator.open(8 * unit)
    before = take(pool, 2 * unit)
    ends = [pool.allocate(unit, to_the_end=True), pool.allocate(unit, to_the_end=True)]
    after = take(pool, 3 * unit)
    assert ends == [7 * unit, 6 * unit]
    assert pool.allocate(2 * unit, to_the_end=True) is None
    check(pool)
    pool.free(before)
    pool.free(after)
    assert pool.holes() == [(0, 6 * unit)]


class PoolMachine(RuleBasedStateMachine):
    """Anything a planner might do to a pool, in any order."""

    def __init__(self, allocator: Allocator) -> None:
        super().__init__()
        self.allocator = allocator
        self.asked: dict[int, int] = {}  # live address → bytes as held
        self.highest = self.highest_end = 0

    @initialize(granules=st.integers(0, 40), rest=st.integers(0, 511))
    def open(self, granules: int, rest: int) -> None:
        self.pool = self.allocator.open(granules * self.allocator.granularity + rest)

    def allocated(self, address: int, nbytes: int) -> None:
        assert address not in self.asked
        self.asked[address] = self.pool.rounded(nbytes)
        self.highest = max(self.highest, sum(self.asked.values()))
        self.highest_end = max(self.highest_end, address + self.asked[address])

    @rule(granules=st.integers(0, 12), less=st.integers(0, 3), stays=st.booleans())
    def allocate(self, granules: int, less: int, stays: bool) -> None:
        nbytes = max(granules * self.allocator.granularity - less, 0)
        before = state(self.pool)
        address = self.pool.allocate(nbytes, stays)
        if address is not None:
            self.allocated(address, nbytes)
        else:
            assert state(self.pool) == before
            assert stays or self.pool.largest_hole < nbytes or self.pool.largest_hole == 0

    @precondition(lambda self: self.pool.largest_hole > 0)
    @rule()
    def allocate_the_largest_hole(self) -> None:
        nbytes = self.pool.largest_hole
        self.allocated(take(self.pool, nbytes), nbytes)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        address = data.draw(st.sampled_from(sorted(self.asked)))
        assert self.pool.free(address) == self.asked.pop(address)

    @precondition(lambda self: self.asked)
    @rule()
    def free_every_second(self) -> None:
        for address in sorted(self.asked)[::2]:
            self.pool.free(address)
            del self.asked[address]

    @precondition(lambda self: self.asked)
    @rule()
    def free_everything(self) -> None:
        while self.asked:
            address, nbytes = self.asked.popitem()
            assert self.pool.free(address) == nbytes
        assert self.pool.holes() == [(0, self.pool.size)] and self.pool.held == 0

    @rule(address=st.integers(-1, 20000))
    def free_what_is_not_alive(self, address: int) -> None:
        if address not in self.asked:
            before = state(self.pool)
            for look in (self.pool.free, self.pool.block_bytes):
                with raises_naming(PoolError, "address", address):
                    look(address)
            assert state(self.pool) == before

    @invariant()
    def the_contract_holds(self) -> None:
        check(self.pool)
        check_largest_hole(self.pool)
        assert dict(self.pool.blocks()) == self.asked
        assert (self.pool.peak, self.pool.top) == (self.highest, self.highest_end)


@pytest.mark.slow
@every
def test_any_use_keeps_the_contract(allocator: Allocator) -> None:
    run_state_machine_as_test(
        lambda: PoolMachine(allocator),  # type: ignore[arg-type]  # what makes one does
        settings=settings(max_examples=20, stateful_step_count=30, deadline=None),
    )
