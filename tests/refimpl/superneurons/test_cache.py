"""SuperNeurons' tensor cache: its order beside the paper's list, what it moves and what it does not."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.network import Builder, Conventions, Network, Tensor
from refimpl.planner import Context, CopyIn, CopyOut, Setup, plan
from refimpl.slots.baseline import NoRecompute
from refimpl.studies.reproduce.evaluation import moved_bytes
from refimpl.superneurons import (
    COST_AWARE,
    MEMORY_CENTRIC,
    SPEED_CENTRIC,
    Ahead,
    Analysis,
    Heap,
    LeastRecentlyUsed,
)
from refimpl.superneurons.cache import TensorCache
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import DropSome, least_plan, machine, setup

pytestmark = pytest.mark.superneurons

MACHINE = machine(1e9)
KIB = 1 << 10
PLENTY = 1 << 30  #: bytes

RECOMPUTES = st.sampled_from((NoRecompute(), SPEED_CENTRIC, MEMORY_CENTRIC, COST_AWARE, DropSome(0.7)))


def cached(**modules: Any) -> Setup:
    """The cache and SuperNeurons' heap and liveness, nothing else unless it is named."""
    return setup(**{"cache": LeastRecentlyUsed(), "allocator": Heap(), "liveness": Analysis()} | modules)


def trunk(branches: int = 4) -> Network:
    """A map x that every branch reads: a tensor that is hit again and again.  Every map has 16 KiB."""
    conventions = Conventions(relu_in_place=False, input_managed=False, holds_inputs=True)
    b = Builder("trunk", (2, 8, 16, 16), conventions)
    x = b.conv(8, 3, pad=1, name="x")
    total = None
    for i in range(1, branches + 1):
        b.conv(8, 3, pad=1, after=x, name=f"conv{i}")
        y = b.relu(name=f"relu{i}")
        total = y if total is None else b.join(total, y, name=f"join{i}")
    b.fc(3)
    b.softmax()
    return b.build()


MAP = 16 * KIB  #: bytes of each of its maps
ROOMY = 288 * KIB  #: one in which two maps or three are too many


# -- the order ---------------------------------------------------------------------------------------------------------


class Twin:
    """The paper's list as it is told, its front at index 0; every question looks through all of it."""

    def __init__(self) -> None:
        self.list: list[Tensor] = []

    def enter(self, tensor: Tensor) -> None:
        assert tensor not in self.list
        self.list.insert(0, tensor)

    def leave(self, tensor: Tensor) -> None:
        self.list.remove(tensor)

    def touch(self, tensor: Tensor) -> None:
        self.list.remove(tensor)
        self.list.insert(0, tensor)

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        for tensor in reversed(self.list):
            if tensor not in locked:
                return tensor
        return None


class ByList(LeastRecentlyUsed):
    def bind(self, context: Context) -> Any:
        return Twin()


TENSORS = [Tensor(f"t{i}", (1,), "map", managed=True) for i in range(8)]
ACTIONS = st.tuples(
    st.sampled_from(("come or use", "come or use", "leave", "evict")),
    st.sampled_from(TENSORS),
    st.sets(st.sampled_from(TENSORS)),
)


@given(st.lists(ACTIONS, max_size=60))
def test_the_victim_is_always_the_twins(drawn: list[tuple[str, Tensor, set[Tensor]]]) -> None:
    cache, twin = LeastRecentlyUsed().bind(Context(trunk(1), MACHINE)), Twin()
    for action, tensor, locked in drawn:
        there = tensor in twin.list
        if action == "come or use":
            for one in (cache, twin):
                (one.touch if there else one.enter)(tensor)
        elif action == "leave" and there:
            cache.leave(tensor)
            twin.leave(tensor)
        elif action == "evict":
            victim = cache.victim(locked, 0)
            assert victim is twin.victim(locked, 0) and victim not in locked
            if victim is not None:
                cache.leave(victim)
                twin.leave(victim)
    while twin.list:
        victim = twin.list[-1]
        assert cache.victim((), 0) is victim
        cache.leave(victim)
        twin.leave(victim)
    assert cache.victim((), 0) is None


@settings(max_examples=15)
@given(networks(), RECOMPUTES, st.integers(0, 4))
def test_whole_plans_are_the_twins(network: Network, recompute: Any, distance: int) -> None:
    wanted = cached(recompute=recompute, prefetch=Ahead(distance))
    program = least_plan(network, wanted, MACHINE)
    twin = plan(network, wanted.replace(name=wanted.name, cache=ByList()), MACHINE, program.budget)
    assert program.listing(instructions=True) == twin.listing(instructions=True)


# -- a hit moves to the front ------------------------------------------------------------------------------------------


class FirstInFirstOut(LeastRecentlyUsed):
    """Wrong: what came first goes first, however often it has been used since."""

    def bind(self, context: Context) -> Any:
        class Cache(TensorCache):
            def touch(self, tensor: Tensor) -> None:
                pass

        return Cache()


def test_first_in_first_out_moves_what_every_branch_reads() -> None:
    """Two maps too many: first in first out evicts x, too, though the very next branch reads it."""
    right, wrong = (
        plan(trunk(), cached(cache=cache), MACHINE, ROOMY) for cache in (LeastRecentlyUsed(), FirstInFirstOut())
    )
    forward = right.network.depth
    assert "x" in {i.tensor.name for i in wrong.instructions if isinstance(i, CopyIn) and i.step <= forward}
    assert "x" not in {i.tensor.name for i in right.instructions if isinstance(i, CopyIn) and i.step <= forward}
    assert (right.counts.evictions, wrong.counts.evictions) == (4, 5)
    assert (moved_bytes(right), moved_bytes(wrong)) == (8 * MAP, 10 * MAP)


# -- only when the device is full --------------------------------------------------------------------------------------


@given(networks(), RECOMPUTES, st.integers(0, 4))
def test_nothing_moves_while_every_allocation_succeeds(network: Network, recompute: Any, distance: int) -> None:
    """A pool as large as what an unlimited one came to use: first fit puts everything where it was."""
    wanted = cached(recompute=recompute, prefetch=Ahead(distance))
    roomy = plan(network, wanted, MACHINE, PLENTY)
    program = plan(network, wanted, MACHINE, roomy.arena_bytes)
    assert moved_bytes(program) == program.counts.evictions == 0
    copied = {i.tensor for i in program.instructions if isinstance(i, (CopyIn, CopyOut))}
    assert copied == {network.input, network.labels, network.losses} - {None}
    assert (program.counts.misses > 0) == (program.counts.recomputed_layers > 0)
