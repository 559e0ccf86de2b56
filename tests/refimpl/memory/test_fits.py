"""Where each allocator puts a block: against a slow, obvious twin."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.memory import ALLOCATORS, Allocator, BlockHeap, FirstFit, free_list

Hole = tuple[int, int]  # first unit, units
Choice = tuple[Hole, bool] | None  # the hole, and whether its right end is taken


def best(holes: list[Hole], units: int, stays: bool) -> Choice:
    fitting = [hole for hole in holes if hole[1] >= units]
    return (min(fitting, key=lambda hole: (hole[1], hole[0])), False) if fitting else None


def first(holes: list[Hole], units: int, stays: bool) -> Choice:
    fitting = [hole for hole in holes if hole[1] >= units]
    return (fitting[0], False) if fitting else None


def worst(holes: list[Hole], units: int, stays: bool) -> Choice:
    fitting = [hole for hole in holes if hole[1] >= units]
    return (max(fitting, key=lambda hole: (hole[1], -hole[0])), False) if fitting else None


def both_ends(holes: list[Hole], units: int, stays: bool) -> Choice:
    if not stays:
        return best(holes, units, stays)
    return (holes[-1], True) if holes and holes[-1][1] >= units else None


POLICIES: dict[str, Callable[[list[Hole], int, bool], Choice]] = {
    "best-fit": best,
    "first-fit": first,
    "worst-fit": worst,
    "both-ends": both_ends,
    "block-heap": first,
    "driver-calls": best,
}


class Twin:
    """The slow twin: one mark for each unit of memory, and a look at all of them for every question."""

    def __init__(self, policy: Callable[[list[Hole], int, bool], Choice], units: int) -> None:
        self.policy = policy
        self.used = [False] * units

    def holes(self) -> list[Hole]:
        runs = [list(run) for _, run in groupby(range(len(self.used)), key=lambda unit: self.used[unit])]
        return [(run[0], len(run)) for run in runs if not self.used[run[0]]]

    def allocate(self, units: int, stays: bool) -> int | None:
        choice = self.policy(self.holes(), units, stays)
        if choice is None:
            return None
        (start, length), right = choice
        if right:
            start += length - units
        self.used[start : start + units] = [True] * units
        return start

    def free(self, start: int, units: int) -> None:
        assert all(self.used[start : start + units])
        self.used[start : start + units] = [False] * units


every = pytest.mark.parametrize("allocator", ALLOCATORS.values(), ids=ALLOCATORS.keys())


class Pair:
    """An allocator's pool and its twin, doing the same."""

    def __init__(self, allocator: Allocator, units: int) -> None:
        self.unit = allocator.granularity
        self.pool = allocator.open(units * self.unit)
        self.twin = Twin(POLICIES[allocator.name], units)
        self.live: list[tuple[int, int]] = []

    def allocate(self, units: int, stays: bool) -> None:
        place = self.twin.allocate(units, stays)
        address = self.pool.allocate(units * self.unit - self.unit // 2, stays)
        assert address == (None if place is None else place * self.unit)
        if place is not None:
            self.live.append((place, units))

    def free(self, number: int) -> None:
        place, units = self.live.pop(number % len(self.live))
        self.twin.free(place, units)
        assert self.pool.free(place * self.unit) == units * self.unit

    def compare(self) -> None:
        holes = self.twin.holes()
        assert self.pool.holes() == [(place * self.unit, units * self.unit) for place, units in holes]
        assert self.pool.largest_hole == max((units for _, units in holes), default=0) * self.unit


steps = st.one_of(
    st.tuples(st.just("allocate"), st.integers(1, 9), st.booleans()),
    st.tuples(st.just("free"), st.integers(0, 30), st.booleans()),
)


@every
@given(units=st.integers(1, 40), actions=st.lists(steps, max_size=60))
def test_every_block_lies_where_the_twin_puts_it(
    allocator: Allocator, units: int, actions: list[tuple[str, int, bool]]
) -> None:
    pair = Pair(allocator, units)
    for action, number, stays in actions:
        if action == "allocate":
            pair.allocate(number, stays)
        elif pair.live:
            pair.free(number)
        pair.compare()


@pytest.mark.parametrize("allocator", [FirstFit(), BlockHeap()], ids=["first-fit", "block-heap"])
@given(units=st.integers(1, 30), more=st.integers(1, 10), actions=st.lists(steps, max_size=60))
def test_for_first_fit_a_larger_pool_is_never_worse(
    allocator: Allocator, units: int, more: int, actions: list[tuple[str, int, bool]]
) -> None:
    small, large = (allocator.open(size * allocator.granularity) for size in (units, units + more))
    live: list[int] = []
    for action, number, _ in actions:
        if action == "allocate":
            address = small.allocate(number * allocator.granularity)
            if address is None:
                return
            assert large.allocate(number * allocator.granularity) == address
            live.append(address)
        elif live:
            address = live.pop(number % len(live))
            small.free(address)
            large.free(address)


def test_a_free_list_answers_none_where_no_hole_will_do() -> None:
    empty, small = free_list.FreeList(0), free_list.FreeList(5)
    for find in (empty.smallest, empty.first, empty.widest, empty.last):
        assert find(1) is None
    for find in (small.smallest, small.first, small.widest, small.last):
        assert (find(5), find(6)) == (0, None)
    assert (len(empty), len(small)) == (0, 1)


def test_a_block_that_overlaps_another_is_noticed() -> None:
    holes = free_list.FreeList(100)
    holes.cut(10, 20)
    with pytest.raises(AssertionError, match="overlaps"):
        holes.cut(25, 10)
