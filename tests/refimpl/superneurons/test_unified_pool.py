"""The unified tensor pool: the first tier with room, its capacity, its rate; and no bit depends on where a map was."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refimpl.backend import Drawn, NotFinite, RunError
from refimpl.backend.cpu import CpuDevice
from refimpl.backend.device import Sizes
from refimpl.machine import HOST, Machine, MachineError, Tier
from refimpl.memory.tiers import pinned_size
from refimpl.names import presets
from refimpl.names.largest_batch import largest
from refimpl.names.least_budget import least_budget, remedies
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, DoesNotFit, Program, Setup, SetupError, plan
from refimpl.report.exports import chrome_trace
from refimpl.slots.baseline import BufferAMap
from refimpl.slots.errors import PinnedDoesNotFit
from refimpl.superneurons import UnifiedTensorPool
from refimpl.superneurons import presets as stages
from refimpl.vdnnpp import Compressed, OnDemand
from tests.messages import raises_naming
from tests.refimpl.backend.running import differing, plain_training, small_network, trainer
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import OffloadSome, PrefetchAhead, least_plan, machine, setup, setups
from tests.refimpl.plainly import draw_batch
from tests.refimpl.planner.mutations import changed, refused

pytestmark = pytest.mark.superneurons

PLENTY = 1 << 40  #: bytes
MOVING = {"offload": OffloadSome(), "prefetch": PrefetchAhead(2), "pinned": UnifiedTensorPool()}
NAMES = ("host", "peer", "remote")


def fixed(network: Network) -> int:
    """Bytes of the host that the batch and the results take."""
    wanted = setup()
    return plan(network, wanted, machine(), PLENTY).pinned_bytes


def tiered(network: Network, *capacities: tuple[str, int | None]) -> Machine:
    """A machine with tiers; the host's capacity is that for maps."""
    most = [(name, n if n is None or name != HOST else n + fixed(network)) for name, n in capacities]
    return machine().with_tiers([Tier(name, nbytes) for name, nbytes in most])


def copies(program: Program, kind: type[CopyOut | CopyIn] = CopyOut, why: str = "offload") -> list[CopyOut | CopyIn]:
    return [it for it in program.instructions if isinstance(it, kind) and it.why == why]


def placed(program: Program) -> list[tuple[object, ...]]:
    """Every instruction with its addresses."""
    fields = ("op", "step", "stream", "address", "addresses", "pinned_address", "tier", "event")
    return [tuple(getattr(it, field, None) for field in fields) for it in program.instructions]


def spread() -> Program:
    """A program whose maps are in three tiers, some at the same address of two."""
    network = small_network()
    sizes = [pinned_size(it.nbytes) for it in copies(plan(network, setup(**MOVING), machine(), PLENTY))]
    on = tiered(network, ("peer", sum(sizes[:2])), ("host", max(sizes[2:])), ("remote", None))
    return plan(network, setup(**MOVING), on, PLENTY)


# -- where maps go -----------------------------------------------------------------------------------------------------


def test_a_map_goes_to_the_first_tier_with_room() -> None:
    program = spread()
    program.verify()
    left = {tier.name: inf if tier.nbytes is None else tier.nbytes for tier in program.machine.tiers}
    left[HOST] -= fixed(program.network)
    found = copies(program)
    for it in found:
        nbytes = pinned_size(it.nbytes)
        first = next(name for name, room in left.items() if room >= nbytes)
        assert it.tier == first
        left[first] -= nbytes
    assert {it.tier for it in found} == set(NAMES)
    came_back = {it.tensor: it for it in program.instructions if isinstance(it, CopyIn)}
    fetched = [it for it in found if it.tensor in came_back]  # the others are revived: their bytes still drained
    assert 2 * len(fetched) > len(found)
    assert all(
        (came_back[it.tensor].tier, came_back[it.tensor].pinned_address) == (it.tier, it.pinned_address)
        for it in fetched
    )


def test_the_batch_and_the_results_stay_on_the_host() -> None:
    program = spread()
    for why in ("batch", "result"):
        moved = [it for it in program.instructions if isinstance(it, (CopyIn, CopyOut)) and it.why == why]
        assert moved and {it.tier for it in moved} == {HOST}


@pytest.mark.parametrize("policy", ["vdnn-all", "superneurons-offload", "superneurons"])
def test_with_the_host_alone_it_is_one_buffer_a_map(policy: str) -> None:
    network, wanted = build("alexnet:superneurons", 20), presets.setup(policy)
    one, other = (
        plan(network, wanted.replace(pinned=module), machine(), PLENTY)
        for module in (BufferAMap(), UnifiedTensorPool())
    )
    assert placed(one) == placed(other)
    assert one.simulate().seconds == other.simulate().seconds and one.pinned_bytes == other.pinned_bytes


def test_a_copy_takes_its_tiers_time_on_the_engine_of_its_direction() -> None:
    program = spread()
    on = program.machine
    timeline = program.simulate()
    assert timeline.seconds == pytest.approx(program.planned_seconds)
    for way in ("out", "in"):
        spans = timeline.on(way)
        assert {span.instruction.tier for span in spans} == set(NAMES)
        assert all(one.end <= other.start + 1e-15 for one, other in pairwise(spans)), "one engine a direction"
        for span in spans:
            assert span.end - span.start == pytest.approx(
                on.copy_seconds(span.instruction.nbytes, way, span.instruction.tier)
            )
    with raises_naming(MachineError, "titan-x", "peer"):
        program.simulate(machine())


def test_listings_and_traces_name_the_tier() -> None:
    program = spread()
    listing = program.listing(instructions=True)
    assert "→ peer 0x0 " in listing and "→ remote 0x0 " in listing and "→ pinned 0x" in listing
    assert "peer tier" in program.listing()
    document = json.loads(json.dumps(chrome_trace(program, program.simulate())))
    counters = {event["name"] for event in document["traceEvents"] if event["ph"] == "C"}
    assert {"pinned bytes", "peer bytes", "remote bytes"} <= counters
    assert {event["args"].get("tier") for event in document["traceEvents"] if event["ph"] == "X"} == {None, *NAMES}


# -- capacity ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    networks(layers=10),
    st.permutations(NAMES),
    st.tuples(*[st.one_of(st.none(), st.integers(0, 1 << 13))] * 3),
    st.booleans(),
)
@settings(max_examples=60)
def test_capacity_is_a_hard_limit(
    network: Network, order: list[str], capacities: tuple[int | None, ...], early: bool
) -> None:
    """A plan keeps to every tier's capacity, or it fails where no tier has room for one map more."""
    on = tiered(network, *zip(order, capacities, strict=True))
    limits = {tier.name: tier.nbytes for tier in on.tiers}
    wanted = setup(**MOVING | {"offload": OffloadSome(early=early)})
    try:
        program = plan(network, wanted, on, PLENTY)
    except PinnedDoesNotFit as misfit:
        assert all(limit is not None for limit in limits.values())
        assert all(room.largest_hole < pinned_size(misfit.asked) for room in misfit.rooms)
        assert [room.tier for room in misfit.rooms] == order
        return
    program.verify()
    ends: dict[str, int] = {HOST: fixed(network)}
    for it in program.instructions:
        if isinstance(it, (CopyIn, CopyOut)):
            ends[it.tier] = max(ends.get(it.tier, 0), it.pinned_address + pinned_size(it.nbytes))
    assert ends == {HOST: program.pinned_bytes, **program.tier_bytes}
    assert all((limit := limits[name]) is None or end <= limit for name, end in ends.items())


def test_pinned_memory_that_runs_out_says_so_by_tier() -> None:
    network = build("alexnet:superneurons", 20)
    on = machine().with_tiers([Tier("host", 40 << 20), Tier("peer", 20 << 20)])
    with pytest.raises(PinnedDoesNotFit) as caught:
        plan(network, stages.offload(), on, 1 << 33)
    says = str(caught.value)
    assert (
        "host tier: " in says and " free of " in says and "peer tier: " in says and "raise the limit of a tier" in says
    )
    assert f"for {caught.value.tensor}" in says and "\n" not in says
    found = remedies(network, stages.offload(), on, 1 << 33)
    assert found.least_bytes is None and str(found).startswith("No budget is enough.")
    assert found.cheapest is not None, "a setup that offloads less fits"
    assert least_budget(network, stages.offload(), on) is None


@pytest.mark.parametrize("most", [0, 1, 2, 7])
def test_the_largest_batch_is_the_one_that_the_tiers_hold(most: int) -> None:
    def network(batch: int) -> Network:
        return build("tiny-vgg", batch)

    wanted = stages.offload()
    room = plan(network(most), wanted, machine(), PLENTY).pinned_bytes if most else 512
    on = machine().with_tiers([Tier("host", room)])
    assert largest(network, wanted, on, 1 << 30).size == most


def test_a_host_too_small_for_the_batch_is_refused() -> None:
    with raises_naming(PinnedDoesNotFit, "host", "2 KiB"):
        plan(small_network(), setup(), machine().with_tiers([Tier("host", 64)]), PLENTY)


@pytest.mark.parametrize("module", [BufferAMap(), OnDemand(), Compressed(), OnDemand(1 << 20)])
def test_modules_of_one_tier_keep_to_the_hosts_capacity(module: object) -> None:
    network = build("alexnet:superneurons", 20)
    wanted = setup(**MOVING | {"pinned": module})
    needed = plan(network, setup(**MOVING | {"pinned": BufferAMap()}), machine(), PLENTY).pinned_bytes
    on = machine().with_tiers([Tier("host", needed // 2)])
    try:
        assert plan(network, wanted, on, PLENTY).pinned_bytes <= needed // 2
    except PinnedDoesNotFit as misfit:
        assert misfit.budget <= needed // 2


@pytest.mark.parametrize("module", [BufferAMap(), OnDemand(), Compressed()])
def test_other_tiers_need_a_module_that_uses_them(module: object) -> None:
    on = machine().with_tiers([Tier("host"), Tier("peer", 1 << 20)])
    wanted = setup(**MOVING | {"pinned": module})
    with raises_naming(SetupError, "titan-x", "peer"):
        plan(small_network(), wanted, on, PLENTY)
    plan(small_network(), setup(pinned=module), on, PLENTY)  # nothing moves


# -- verify ------------------------------------------------------------------------------------------------------------


def test_a_copy_with_another_tiers_bytes_is_refused() -> None:
    program = spread()
    for index, it in enumerate(program.instructions):
        if isinstance(it, (CopyIn, CopyOut)):
            for tier in (*NAMES, "attic"):
                if tier != it.tier:
                    refused(changed(program, index, tier=tier))


def test_a_map_moved_over_another_tiers_map_is_refused() -> None:
    """Both its copies, with the other's address: consistent, and the other map is lost."""
    program = spread()
    first, *_ = (it for it in copies(program) if it.tier == "peer")
    other, *_ = (it for it in copies(program) if (it.tier == "remote" and it.nbytes == first.nbytes) or it.tier == HOST)
    spoilt = program
    for index, it in enumerate(program.instructions):
        if isinstance(it, (CopyIn, CopyOut)) and it.tensor is first.tensor:
            spoilt = changed(spoilt, index, tier=other.tier, pinned_address=other.pinned_address)
    found = refused(spoilt)
    assert found.rule == 2


def test_a_tier_ends_where_the_program_says_and_within_the_machines() -> None:
    program = spread()
    index = next(i for i, it in enumerate(program.instructions) if isinstance(it, CopyOut) and it.tier == "peer")
    assert refused(changed(program, index, pinned_address=program.tier_bytes["peer"])).rule == 2
    fewer = dataclasses.replace(program, tier_bytes={**program.tier_bytes, "peer": 512})
    assert refused(fewer).rule == 2
    more = dataclasses.replace(program, tier_bytes={**program.tier_bytes, "peer": 1 << 40})
    assert refused(more).rule == 5
    elsewhere = dataclasses.replace(program, machine=machine())
    assert refused(elsewhere).rule == 5


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(networks(layers=10), setups, st.tuples(st.integers(0, 1 << 12), st.integers(0, 1 << 12)), st.integers(0, 99))
@settings(max_examples=10)
def test_no_bit_depends_on_the_tier(network: Network, wanted: Setup, room: tuple[int, int], seed: int) -> None:
    """Drawn orders of the streams, and bytes that must not be read are poisoned, in every tier."""
    on = tiered(network, ("remote", room[0]), ("peer", room[1]), (HOST, None))
    program = least_plan(network, wanted.replace(pinned=UnifiedTensorPool()), on)
    expected = plain_training(program, 2)
    assume(np.isfinite(expected["losses"]).all())
    with trainer(program, order=Drawn(seed), poison=True) as made:
        for i in range(2):
            made.step(*draw_batch(network, i))
        assert differing(made.state(), expected) == []
        assert isinstance(made.device, CpuDevice)
        assert {name: arena.nbytes for name, arena in made.device.tiers.items()} == program.tier_bytes


def test_a_copy_to_the_wrong_tier_is_a_wrong_number_on_the_cpu() -> None:
    program = spread()
    size = program.tier_bytes["remote"]
    copies_in = ((i, it) for i, it in enumerate(program.instructions) if isinstance(it, CopyIn) and it.tier == "peer")
    index = next(i for i, it in copies_in if it.pinned_address + it.nbytes <= size)
    with trainer(changed(program, index, tier="remote"), poison=True) as made:
        with suppress(NotFinite):
            made.step(*draw_batch(program.network, 0))
        assert differing(made.state(), plain_training(program, 1)) != []


def test_a_device_has_the_most_of_each_tier_that_any_program_needs() -> None:
    program, plain = spread(), plan(small_network(), setup(), machine(), PLENTY)
    sizes = Sizes.of([plain, program])
    assert sizes.tiers == program.tier_bytes
    sizes.require(program)
    with raises_naming(RunError, "peer", 5632, 0):
        dataclasses.replace(sizes, tiers={}).require(program)


def test_beside_the_other_papers_modules() -> None:
    network = build("tiny-vgg", 4)
    on = machine().with_tiers([Tier("peer", 64 << 10), Tier("host")])
    for policy in ("vdnn-all", "vdnn-conv", "vdnn-dyn", "vdnnpp-all", "superneurons-offload"):
        wanted = presets.setup(policy, {"pinned": "superneurons-unified-pool"})
        try:
            program = plan(network, wanted, on, 1 << 33)
        except DoesNotFit as misfit:
            raise AssertionError(policy) from misfit
        program.verify()
        assert program.tier_bytes.get("peer", 0) <= 64 << 10
