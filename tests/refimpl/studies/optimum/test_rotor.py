"""Rotor's dynamic programme: against a search through every schedule of its class, and against a plan of ours."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.names.presets import superneurons_liveness
from refimpl.planner import plan
from refimpl.studies.neighbours.rotor import Stage, chain_seconds, is_chain, rotor

TITAN_X = MACHINES["titan-x"]


class State(NamedTuple):
    """Which maps are kept, and what is next.  The map that stage 0 reads is number -1, and always there."""

    kept: frozenset[int] = frozenset()  #: maps that were computed to be kept for the backward of their stage
    checkpoints: frozenset[int] = frozenset({-1})  #: maps that are kept as the beginning of the next stage alone
    front: int | None = None  #: the last map that was computed, if it is not kept
    gradient: int = 0  #: the stage whose backward is next


def moves(state: State, chain: list[Stage], room: int) -> Iterator[tuple[float, State]]:
    """What can be done next, and its seconds.  What is kept stays until the backward that it was kept for."""
    kept, checkpoints, front, gradient = state
    sizes = [stage.map_bytes for stage in chain]
    there = {x for x in {*kept, *checkpoints, front} if x is not None and x >= 0}
    held = sum(sizes[x] for x in there) + (sizes[gradient] if gradient < len(chain) - 1 else 0)
    for x in (x for x in {*kept, *checkpoints, front} if x is not None):
        y = x + 1
        if y <= gradient and y not in kept and y not in checkpoints:
            stage = chain[y]
            if held + stage.map_bytes + stage.forward_workspace > room or (front is not None and front != x):
                continue
            if x == front:
                yield stage.forward, State(kept, checkpoints, y, gradient)  # x goes
                yield stage.forward, State(kept, checkpoints | {x}, y, gradient)  # x is a checkpoint
                yield stage.forward, State(kept | {y}, checkpoints | {x}, None, gradient)
            else:
                yield stage.forward, State(kept, checkpoints, y, gradient)
                yield stage.forward, State(kept | {y}, checkpoints, None, gradient)
    before = gradient - 1
    if gradient in kept and (before in kept or before in checkpoints) and front is None:
        others = sum(sizes[x] for x in there)
        if others + chain[gradient].backward_bytes <= room:
            left = checkpoints - {before} if before >= 0 else checkpoints
            yield chain[gradient].backward, State(kept - {gradient}, left, None, before)


def by_search(chain: list[Stage], room: int) -> float:
    """Dijkstra's algorithm over all states."""
    start = State(gradient=len(chain) - 1)
    seconds = {start: 0.0}
    waiting: list[tuple[float, int, State]] = [(0.0, 0, start)]
    number = 0
    while waiting:
        now, _, state = heapq.heappop(waiting)
        if state.gradient < 0:
            return now
        if now > seconds[state]:
            continue
        for takes, after in moves(state, chain, room):
            if now + takes < seconds.get(after, inf):
                seconds[after] = now + takes
                number += 1
                heapq.heappush(waiting, (now + takes, number, after))
    return inf


def drawn_stages() -> st.SearchStrategy[list[Stage]]:
    size, seconds = st.integers(1, 4), st.integers(1, 9).map(float)
    stage = st.builds(Stage, size, seconds, st.integers(0, 2), seconds, st.integers(0, 4))
    return st.lists(stage, min_size=1, max_size=5)


@given(drawn_stages(), st.integers(2, 20))
def test_the_programme_finds_the_best_schedule_of_its_class(chain: list[Stage], room: int) -> None:
    for stage in chain[:-1]:  # a backward needs at least the gradient of its stage's map
        stage.backward_bytes += stage.map_bytes
    assert rotor(chain, room, slots=room) == by_search(chain, room)


def test_dropping_one_map_and_keeping_the_next_is_not_in_its_class() -> None:
    """The backward of stage 3 has room if the map of stage 1 is away; that map costs 1 second, and its neighbours 9."""
    sizes, forward, beside = (2, 4, 1, 1), (9.0, 1.0, 9.0, 9.0), (2, 4, 2, 6)
    chain = [Stage(size, run, 0, 9.0, room) for size, run, room in zip(sizes, forward, beside, strict=True)]
    room, all_once = 10, sum(stage.forward + stage.backward for stage in chain)
    without_map_1 = [sizes[0] + sizes[2] + sizes[3] + beside[3], sum(sizes[:3]) + beside[2], sum(sizes[:2]) + beside[1]]
    assert max(without_map_1) == room, "a schedule of all_once + 1 seconds fits"
    assert rotor(chain, room, slots=room) == by_search(chain, room) >= all_once + forward[1] + forward[2]
    assert rotor(chain, 20, slots=20) == all_once


def test_with_memory_enough_nothing_is_recomputed() -> None:
    for name in ("alexnet", "lenet", "alexnet:superneurons", "tiny-vgg:vdnnpp"):
        network = build(name, 8)
        program = plan(network, superneurons_liveness(), TITAN_X, UNLIMITED)
        assert is_chain(network)
        assert chain_seconds(network, TITAN_X, UNLIMITED) == pytest.approx(program.planned_seconds)
    assert not is_chain(build("tiny-resnet", 8)) and not is_chain(build("tiny-inception", 8))
