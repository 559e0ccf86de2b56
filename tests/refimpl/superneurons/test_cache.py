"""SuperNeurons' tensor cache: its order, its locks, what it moves and what it does not, and plans that live by it.

Here are wrong caches and wrong planners beside the right ones: what a test says of the right one, it must be able to
deny of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.machine import MACHINES, Machine
from refimpl.names.networks import build
from refimpl.network import Builder, Conventions, Network, Tensor
from refimpl.planner import Context, CopyIn, CopyOut, DoesNotFit, Program, Setup, plan
from refimpl.planner.mover import Mover
from refimpl.planner.pinned_memory import PinnedMemory
from refimpl.planner.verify import Unsafe
from refimpl.report.tables import plan_table
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
from refimpl.superneurons import presets as stages
from refimpl.superneurons.cache import TensorCache
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import DropSome, least_plan, machine, planner, setup

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
TIGHT = 232 * KIB  #: a budget for `trunk()` in which a gradient map is pushed out twice
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


def test_a_hit_moves_the_entry_to_the_front() -> None:
    first, second = TENSORS[:2]
    for module, victim in ((LeastRecentlyUsed(), second), (FirstInFirstOut(), first)):
        cache = module.bind(Context(trunk(1), MACHINE))
        cache.enter(first)
        cache.enter(second)
        cache.touch(first)
        assert cache.victim((), 0) is victim


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


# -- locks -------------------------------------------------------------------------------------------------------------


class Watching(Mover):
    """Notes every eviction: the tensor, and whether the running step uses it."""

    evicted: list[Tensor]
    used: list[Tensor]

    def evict(self, tensor: Tensor) -> None:
        assert self.order.step is not None
        self.evicted.append(tensor)
        if tensor in self.order.step.uses or tensor in self._locked:
            self.used.append(tensor)
        super().evict(tensor)


class Watched:
    """A planner whose evictions are noted."""

    def __init__(self, network: Network, wanted: Setup, machine: Machine, budget: int) -> None:
        self.planner = planner(network, wanted, machine, budget, Watching)
        self.evicted: list[Tensor] = []
        self.used: list[Tensor] = []
        self.planner.mover.__dict__.update(evicted=self.evicted, used=self.used)
        self.plan = self.planner.plan


class IgnoresLocks(LeastRecentlyUsed):
    """Wrong: the last goes, even if it is in use."""

    def bind(self, context: Context) -> Any:
        return WithoutLocks()


class WithoutLocks(TensorCache):
    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        return super().victim((), now)


class IgnoresEverything(LeastRecentlyUsed):
    """Wrong twice: the one that came first goes, even if it is in use, and however often."""

    def bind(self, context: Context) -> Any:
        class Cache(WithoutLocks):
            def touch(self, tensor: Tensor) -> None:
                pass

        return Cache()


def test_a_cache_that_ignores_locks_is_noticed() -> None:
    """What has just been used goes last anyway.  But what the step will read as soon as something else is there may go,
    to be fetched back at once; and were the order wrong too, the step would be without what it had."""
    network, budget = trunk(2), 200 * KIB
    right, wrong = (
        Watched(network, cached(cache=one), MACHINE, budget) for one in (LeastRecentlyUsed(), IgnoresLocks())
    )
    moved = [moved_bytes(planner.plan()) for planner in (right, wrong)]
    assert right.evicted and not right.used
    assert [tensor.name for tensor in wrong.used] == ["d(join2)"]
    assert moved[1] == moved[0] + 2 * MAP
    both = Watched(trunk(3), cached(cache=IgnoresEverything()), MACHINE, 240 * KIB)
    with pytest.raises(KeyError):  # nothing to launch on
        both.plan()
    assert [tensor.name for tensor in both.used] == ["x"]


# -- only when the device is full --------------------------------------------------------------------------------------


@given(networks(), RECOMPUTES, st.integers(0, 4))
def test_nothing_moves_while_every_allocation_succeeds(network: Network, recompute: Any, distance: int) -> None:
    """A pool as large as what an unlimited one came to use: first fit puts everything where it was."""
    wanted = cached(recompute=recompute, prefetch=Ahead(distance))
    roomy = plan(network, wanted, MACHINE, PLENTY)
    watched = Watched(network, wanted, MACHINE, roomy.arena_bytes)
    program = watched.plan()
    assert watched.planner.memory.pool.statistics().failures == 0
    assert moved_bytes(program) == program.counts.evictions == 0
    copied = {i.tensor for i in program.instructions if isinstance(i, (CopyIn, CopyOut))}
    assert copied == {network.input, network.labels, network.losses} - {None}
    assert (program.counts.misses > 0) == (program.counts.recomputed_layers > 0)


# -- constant time -----------------------------------------------------------------------------------------------------


class Counted:
    """Stands for a tensor, and counts how often it is looked at: hashed or compared."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return id(self)

    def __eq__(self, other: object) -> bool:
        Counted.looks += 1
        return self is other


def looks(cache: Any, size: int) -> int:
    """The most looks that any one operation takes in a cache of `size` entries."""
    entries: list[Any] = [Counted() for _ in range(size)]
    for entry in entries:
        cache.enter(entry)

    def counted(operation: Callable[..., object], *given: object) -> int:
        Counted.looks = 0
        operation(*given)
        return Counted.looks

    middle, last, fresh = entries[size // 2], entries[-1], Counted()
    locked = set(entries[:3])  # the next to go
    return max(
        counted(cache.touch, middle),
        counted(cache.touch, last),
        counted(cache.leave, middle),
        counted(cache.enter, fresh),
        counted(cache.victim, locked, 0),
    )


def test_every_operation_takes_as_many_looks_in_a_large_cache_as_in_a_small_one() -> None:
    small, large = (looks(TensorCache(), size) for size in (10, 10_000))
    assert small == large < 12
    assert looks(Twin(), 500) > 250


# -- a hole, not bytes -------------------------------------------------------------------------------------------------


def tensors(*kibibytes: int) -> list[Tensor]:
    return [Tensor(f"t{i}", (n * KIB // 4,), "map", managed=True) for i, n in enumerate(kibibytes)]


class EnoughBytes(Mover):
    """Wrong: once as many bytes have been evicted as are requested, an allocation must succeed."""

    def allocate(self, tensor: Tensor, stays: bool = False) -> None:
        freed, memory = 0, self.memory
        while not memory.try_allocate(tensor, stays):
            memory.give_back_drained(everything=True)
            victim = self.cache.victim(self._locked, self.order.now) if freed < tensor.nbytes else None
            if victim is None:
                if not memory.try_allocate(tensor, stays):
                    raise memory.does_not_fit(tensor)
                return
            freed += victim.nbytes
            self.evict(victim)


@pytest.mark.parametrize("kind", (Watching, EnoughBytes))
def test_enough_bytes_are_no_hole(kind: type[Mover]) -> None:
    """Four blocks side by side; the two used longest ago do not touch, so a third has to go."""
    network = trunk(1)
    planning = planner(network, cached(), MACHINE, 4 * KIB, kind)
    planning.order.step = network.steps[0]
    mover, memory = planning.mover, planning.memory
    evicted: list[Any] = []
    mover.__dict__.update(evicted=evicted, used=[])
    a, b, c, d, wanted = tensors(1, 1, 1, 1, 2)
    for tensor in (a, b, c, d):
        mover.allocate(tensor)
    for tensor in (a, c, b, d):
        mover.cache.touch(tensor)
    if kind is EnoughBytes:
        with raises_naming(DoesNotFit, 2, "KiB", 1):
            mover.allocate(wanted)
        return
    mover.allocate(wanted)
    assert evicted == [a, c, b] and memory[wanted].address == 0
    assert set(memory.managed()) == {wanted, d} and memory.pool.free_bytes == KIB


# -- with a copy, or without -------------------------------------------------------------------------------------------


def test_a_host_copy_that_a_write_leaves_valid_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a copy on the host stays valid, whatever is written to the tensor."""
    monkeypatch.setattr(PinnedMemory, "outdate", lambda self, tensor: None)
    wrong = plan(trunk(), cached(), MACHINE, TIGHT)
    with raises_naming(Unsafe, "d(x)"):
        wrong.verify()


def writes(program: Program) -> Counter[str]:
    """Tensor → how many forward or backward steps, rebuilds left out, write it."""
    return Counter(tensor.name for step in program.network.steps for tensor in (*step.writes, *step.updates))


# -- what it reports ---------------------------------------------------------------------------------------------------


def test_the_counts_of_a_network_that_does_not_fit() -> None:
    """Sixteen evictions, six of them without a copy; a prefetch makes hits of misses."""
    on_demand = plan(trunk(), cached(), MACHINE, TIGHT).counts
    ahead = plan(trunk(), cached(prefetch=Ahead()), MACHINE, ROOMY).counts
    late = plan(trunk(), cached(), MACHINE, ROOMY).counts
    assert (on_demand.evictions, on_demand.evicted_bytes) == (16, 10 * MAP)
    assert on_demand.on_demand_bytes == on_demand.misses * MAP
    assert ahead.misses < late.misses and ahead.hits + ahead.misses == late.hits + late.misses


# -- where nothing else fits -------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=10)
@given(networks(layers=25))
def test_it_fits_where_nothing_else_does(network: Network) -> None:
    """One step's tensors at a time, and holes: less than the same techniques without the cache, never more."""
    without = setup(allocator=Heap(), liveness=Analysis())
    assert least_plan(network, cached(), MACHINE).budget <= least_plan(network, without, MACHINE).budget


def test_a_plan_says_which_prefetches_found_no_hole() -> None:
    program = plan(build("googlenet", 32), stages.everything(), MACHINES["k40c"], 400 << 20)
    skipped = program.counts.skipped_prefetches
    rows = {row[0]: row[1:] for row in plan_table(program, program.simulate()).rows}
    assert skipped and rows["prefetches skipped"] == [str(skipped), "for want of a hole"]
    assert "no hole for a prefetch" in " ".join(
        program.listing().split("    traffic ")[1].split("    cache ")[0].split()
    )
