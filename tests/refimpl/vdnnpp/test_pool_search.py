"""The search for a pool: byte for byte as the authors', and against slow twins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refimpl.accudnn import Capped, Late, ModelGuided
from refimpl.combined.fixed_pool import lives
from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED, Allocator, BestFit, BothEnds, FirstFit
from refimpl.memory.allocation_trace import TraceEvent, ideal, replay, rounded
from refimpl.names import presets
from refimpl.names.largest_batch import least_conceivable
from refimpl.names.modules import MODULES
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.network.conventions import VDNNPP
from refimpl.planner import Context, DoesNotFit, Program, Setup, SetupError, plan
from refimpl.planner.device_memory import DeviceMemory
from refimpl.planner.loop import Planner
from refimpl.slots.algorithms import MemoryOptimal
from refimpl.slots.baseline import NoCache, NoPrefetch
from refimpl.slots.errors import PoolDoesNotFit
from refimpl.studies.fragmentation.study import (
    HEURISTICS,
    PoolRow,
    study,
)
from refimpl.vdnnpp import OnDemand, static
from refimpl.vdnnpp.pool_search import LAGS, FoundPool, PlacementError, TracesOfLags, find_pool, trace_of
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine

pytestmark = pytest.mark.vdnnpp

GTX_970, TITAN_X = MACHINES["gtx-970"], MACHINES["titan-x"]
UNIT = 512
ALEXNET, VGG = ("alexnet:vdnnpp", 128), ("vgg16:vdnnpp", 16)


@cache
def network(name: str, batch: int) -> Network:
    return build(name, batch)


def studied(of: tuple[str, int], policy: str, join: bool = True) -> dict[str, PoolRow]:
    """Heuristic → its row, where what is prefetched is allocated early."""
    rows = study(network(*of), GTX_970, (policy,), join=join)
    return {row.heuristic: row for row in rows if row.order in (None, "early")}


# -- to the byte -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "policy", "ideal_bytes", "left", "right"),
    [
        (ALEXNET, "none", 634_615_296, (635_098_624, 2), (637_208_064, 2)),
        (ALEXNET, "conv", 493_058_560, (575_613_952, 31), (540_102_656, 2)),
        (VGG, "all", 831_865_344, (847_773_696, 2), (847_773_696, 2)),
    ],
)
def test_the_authors_search_to_the_byte(
    of: tuple[str, int], policy: str, ideal_bytes: int, left: tuple[int, int], right: tuple[int, int]
) -> None:
    rows = studied(of, policy)
    for row, expected in ((rows["best left"], left), (rows["best right"], right)):
        assert (row.found.ideal_bytes, row.found.pool_bytes, row.found.tries) == (ideal_bytes, *expected)
        assert row.mark == "S"


# -- the search --------------------------------------------------------------------------------------------------------


def events_of(*lines: tuple[str, int]) -> list[TraceEvent]:
    """`("a", 5)` allocates five units for a (`"A"`: a stays), `("a", 0)` frees them."""
    events, numbers = list[TraceEvent](), dict[str, int]()
    for name, units in lines:
        if units:
            numbers[name] = len(events)
        events.append(TraceEvent(numbers[name], UNIT * units, name.isupper(), name))
    return events


NOT_MONOTONE = events_of(("a", 5), ("b", 2), ("c", 1), ("b", 0), ("e", 1), ("a", 0), ("c", 0), ("h", 8))


def fits(events: Sequence[TraceEvent], allocator: Allocator, units: int) -> bool:
    return replay(events, allocator.open(UNIT * units)) is None


def test_a_larger_pool_can_fail() -> None:
    assert [units for units in range(8, 16) if fits(NOT_MONOTONE, BestFit(), units)] == [9, 14, 15]
    found = find_pool(NOT_MONOTONE, BestFit())
    assert (found.pool_bytes, found.ideal_bytes, found.tries) == (9 * UNIT, 9 * UNIT, 1)


def test_the_pool_grows_by_what_was_missing_from_the_hole() -> None:
    """Three blocks, the outer two freed: one of two units lacks one of them."""
    events = events_of(("a", 1), ("b", 1), ("c", 1), ("a", 0), ("c", 0), ("d", 2))
    found = find_pool(events, FirstFit())
    assert (found.ideal_bytes, found.pool_bytes, found.tries) == (3 * UNIT, 4 * UNIT, 2)


def test_a_trace_that_no_pool_serves_is_an_error_and_no_endless_search() -> None:
    events = events_of(("A", 1), ("B", 2), ("A", 0), ("C", 2))
    with raises_naming(PlacementError, "C", "1,024", 512):
        find_pool(events, BothEnds())
    assert find_pool(events, BestFit()).pool_bytes == 5 * UNIT


@st.composite
def traces(draw: Any, blocks: int = 14) -> list[TraceEvent]:
    """Blocks come and go in any order; some stay to the end."""
    events, live = list[TraceEvent](), list[int]()
    for _ in range(draw(st.integers(1, blocks))):
        while live and draw(st.booleans()):
            events.append(TraceEvent(live.pop(draw(st.integers(0, len(live) - 1))), 0))
        events.append(TraceEvent(len(events), draw(st.integers(1, 6 * UNIT)), draw(st.booleans())))
        live.append(events[-1].block)
    return events


@given(traces(), st.sampled_from([*HEURISTICS.values()]))
@settings(max_examples=60)
def test_what_is_found_fits(events: list[TraceEvent], allocator: Allocator) -> None:
    try:
        found = find_pool(events, allocator)
    except PlacementError:
        assert isinstance(allocator, BothEnds)
        every = sum(rounded(event.nbytes) for event in events if event.nbytes)
        assert all(replay(events, allocator.open(size)) is not None for size in (2 * every, 9 * every, 99 * every))
        return
    assert found.pool_bytes >= found.ideal_bytes == most_alive(events)
    assert replay(events, allocator.open(found.pool_bytes)) is None
    if found.tries == 1:
        assert found.pool_bytes == found.ideal_bytes
    else:
        assert replay(events, allocator.open(found.ideal_bytes)) is not None


def most_alive(events: Sequence[TraceEvent]) -> int:
    """The ideal, slowly: every moment summed by itself."""
    known = lives(events)
    moments = range(len(events))
    return max(sum(life.nbytes for life in known.values() if life.begin <= at < life.end) for at in moments)


# -- training ----------------------------------------------------------------------------------------------------------


def test_a_pool_for_one_order_of_frees_is_none_for_another() -> None:
    """AlexNet, all, best fit: found in vDNN's order, the pool does not serve vDNN++'s own; found in that, it does."""
    synchronous = studied(ALEXNET, "all")["best left"]
    own = studied(ALEXNET, "all", join=False)["best left"]
    assert synchronous.found.ideal_bytes == own.found.ideal_bytes
    assert synchronous.found.pool_bytes != own.found.pool_bytes
    with pytest.raises(DoesNotFit):
        Planner(network(*ALEXNET), own.setup, GTX_970, synchronous.budget_bytes).plan()
    Planner(network(*ALEXNET), own.setup, GTX_970, own.budget_bytes).plan()


# -- the presets train in the pool that was found ----------------------------------------------------------------------

#: Setups that are planned in a found pool: none reacts to the size of its pool.
FOUND = [
    name
    for name, preset in presets.PRESETS.items()
    if isinstance(preset.setup.allocator, FoundPool) and preset.setup.frugal.fixed_order
]


def planned(drawn: Network, wanted: Setup, on: Machine, budget: int, lag: int | None) -> Program:
    return Planner(drawn, wanted, on, budget, partial(DeviceMemory, lag=lag)).plan()


def found(drawn: Network, name: str, on: Machine = GTX_970) -> list[tuple[int, str]]:
    """The pool that a preset's search finds for each lag and placement, and the placement, in the search's order."""
    made = presets.setup(name).frugal
    programs = [Planner(drawn, made, on, UNLIMITED, partial(DeviceMemory, lag=lag)).plan() for lag in LAGS]
    return [(placed.pool_bytes(program), placed.placement) for program in programs for placed in FoundPool().placements]


def misfits(drawn: Network, name: str, on: Machine, budgets: Sequence[int]) -> list[int]:
    """Budgets, ascending, that do not fit though one before was enough for a pool that was found.

    What is planned depends on the network, the setup, the pool and the lag: each is planned once for all budgets.
    """
    wanted = presets.setup(name).frugal  # what decides for a search, too
    within = cache(
        lambda nbytes, lag=None, placed=wanted.allocator:
            planned(drawn, wanted.replace(allocator=placed), on, nbytes, lag)
    )  # fmt: skip
    fit, wrong = False, []
    for budget in budgets:
        try:
            pool = FoundPool().search(within, budget, wanted.fixed_order).pool_bytes
            assert pool <= budget
            fit |= pool < budget  # else no pool was found, and the budget itself is one
        except DoesNotFit:
            wrong += [budget] if fit else []
    return wrong


def between(drawn: Network, count: int) -> list[int]:
    """Budgets from what one step asks to a little more than everything."""
    low = least_conceivable(drawn)
    high = plan(drawn, presets.setup("vdnnpp-all"), machine(), UNLIMITED).pool_bytes * 11 // 10
    return [low + (high - low) * number // (count - 1) for number in range(count)]


@pytest.mark.slow
@given(st.one_of(networks(layers=10), networks(layers=10, conventions=VDNNPP)), st.sampled_from(FOUND))
@settings(max_examples=8)
def test_more_budget_never_fails_on_drawn_networks(drawn: Network, name: str) -> None:
    assert misfits(drawn, name, machine(), between(drawn, 12)) == []


# -- beside vDNN -------------------------------------------------------------------------------------------------------


def as_vdnns(theirs: Setup) -> Setup:
    """vDNN++ with a setup of vDNN's: its maps, its search for what to prefetch, its algorithms."""
    return static("vDNN++", theirs.offload, theirs.algorithms, OnDemand()).replace(prefetch=theirs.prefetch)


@pytest.mark.slow
@given(
    st.one_of(networks(layers=10), networks(layers=10, conventions=VDNNPP)),
    st.sampled_from([presets.setup(f"vdnn-{maps} algorithms={one}") for maps in ("all", "conv") for one in
                     ("memory", "performance", "vdnn-greedy")]),
)  # fmt: skip
@settings(max_examples=20)
def test_it_fits_wherever_vdnn_fits(drawn: Network, theirs: Setup) -> None:
    fits = least_plan(drawn, theirs, machine())
    assert plan(drawn, as_vdnns(theirs), machine(), fits.budget).pool_bytes <= fits.budget


# -- modules whose answers depend on the pool --------------------------------------------------------------------------


@st.composite
def beside(draw: Any) -> Setup:
    """The found pool, and any modules in the other slots that can work together; of most, some follow the pool."""
    modules = {slot: draw(st.sampled_from([*known.values()])) for slot, known in MODULES.items()} | {
        "allocator": FoundPool()
    }
    modules |= {"cache": NoCache(), "algorithms": MemoryOptimal()}
    if slot := draw(st.sampled_from(("", "", "offload", "prefetch", "prefetch", "algorithms", "cache"))):
        modules[slot] = draw(st.sampled_from([module for module in MODULES[slot].values() if module.follows_pool]))
    switches = {"copy_streams": draw(st.sampled_from(("shared", "separate"))), "join": draw(st.booleans())}
    try:
        return Setup(name="drawn", **modules, **switches)
    except SetupError:
        assume(False)
        raise


@pytest.mark.slow
@given(networks(layers=14, side=12, batch=16), beside(), st.sampled_from(LAGS), st.sampled_from((1e8, 1e9, 12.8e9)))
@settings(max_examples=20)
def test_with_any_modules_plenty_fits_and_a_fixed_order_is_the_same_in_the_pool_that_is_found(
    drawn: Network, wanted: Setup, lag: int | None, link: float
) -> None:
    """And one plan has the traces of all lags."""
    on = machine(link)
    plan(drawn, wanted, on, 1 << 40).verify()
    if wanted.fixed_order:
        roomy = planned(drawn, wanted, on, UNLIMITED, lag)
        tight = planned(drawn, wanted, on, FoundPool().pool_bytes(roomy), lag)
        assert tight.allocation_trace() == roomy.allocation_trace()
        traces = TracesOfLags(planned(drawn, wanted, on, UNLIMITED, None))
        assert not traces.known or traces[lag] == trace_of(roomy)


class Watched(Context):
    """A context that knows whether a module has read the pool's bytes."""

    was_read = False

    def __getattribute__(self, name: str) -> Any:
        if name == "budget":
            self.was_read = True
        return super().__getattribute__(name)


def test_every_module_that_reads_the_pools_bytes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refimpl.planner.loop.Context", Watched)
    base = presets.setup("vdnnpp-all", {"liveness": "layer-wise", "offload": "accudnn-everything"})
    keeping, reading = presets.setup("baseline"), []
    for slot, known in MODULES.items():
        for module in known.values() if slot != "allocator" else ():
            wanted = {"liveness": keeping, "offload": base.replace(prefetch=NoPrefetch())}.get(slot, base)
            planner = Planner(network(*ALEXNET), wanted.replace(**{slot: module}), GTX_970, UNLIMITED)
            if cast(Watched, planner.context).was_read:
                reading.append(module.name)
                assert module.follows_pool and not planner.setup.fixed_order
    assert reading == ["accudnn-model", "accudnn-late", "in-time", "accudnn-capped"]
    given = base.replace(offload=ModelGuided(leaving=()), prefetch=Late(coming=()), algorithms=Capped(caps=()))
    assert given.fixed_order  # the decision is data


@pytest.mark.parametrize("name", ["vdnnpp-all", "vdnnpp-conv"])
def test_a_small_network_takes_the_longest_lag_within_its_budget(name: str) -> None:
    """And of its placements best fit, the authors' default, where both fit."""
    drawn, wanted = build("tiny-vgg:vdnnpp", 16), presets.setup(name)
    pools = found(drawn, name)
    sizes = {nbytes for nbytes, _ in pools}
    for budget in {*sizes, max(sizes) + 1, max(sizes) - 1} - {min(sizes) - 1}:
        program = plan(drawn, wanted, GTX_970, budget)
        first = next(pool for pool in pools if pool[0] <= budget)
        assert (program.pool_bytes, cast(FoundPool, program.setup.allocator).placement) == first
        assert program.budget == budget and program.arena_bytes <= program.pool_bytes
    with pytest.raises(PoolDoesNotFit) as caught:
        plan(drawn, wanted, GTX_970, min(sizes) // 2)
    assert caught.value.asked == min(sizes)


def test_a_hint_of_the_least_bytes_is_given_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are free at once: what is in use at the peak, without a hole."""
    drawn, wanted = build("tiny-vgg:vdnnpp", 16), presets.setup("vdnnpp-all")
    quick = wanted.replace(allocator=cast(Any, wanted.allocator).quick)
    assert cast(Any, quick.allocator).hint and not cast(Any, wanted.allocator).hint
    at_once = ideal(
        trace_of(Planner(drawn, wanted.frugal, GTX_970, UNLIMITED, partial(DeviceMemory, lag=LAGS[-1])).plan())
    )
    monkeypatch.setattr("refimpl.vdnnpp.pool_search.find_pool", lambda *given: pytest.fail("a pool is searched for"))
    with pytest.raises(PoolDoesNotFit) as caught:
        plan(drawn, quick, GTX_970, at_once - 1)
    assert caught.value.asked == at_once
