"""The unified tensor pool: the first tier with room, its capacity; and no bit depends on where a map was."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refimpl.backend import Drawn
from refimpl.backend.cpu import CpuDevice
from refimpl.machine import HOST, Machine, Tier
from refimpl.memory.tiers import pinned_size
from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, Setup, SetupError, plan
from refimpl.slots.baseline import BufferAMap
from refimpl.slots.errors import PinnedDoesNotFit
from refimpl.superneurons import UnifiedTensorPool
from refimpl.vdnnpp import Compressed, OnDemand
from tests.messages import raises_naming
from tests.refimpl.backend.running import differing, plain_training, small_network, trainer
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import OffloadSome, PrefetchAhead, least_plan, machine, setup, setups
from tests.refimpl.plainly import draw_batch

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


# -- where maps go ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    networks(layers=10),
    st.permutations(NAMES),
    st.tuples(*[st.one_of(st.none(), st.integers(0, 1 << 13))] * 3),
    st.booleans(),
)
@settings(max_examples=25)
def test_a_map_goes_to_the_first_tier_with_room(
    network: Network, order: list[str], capacities: tuple[int | None, ...], early: bool
) -> None:
    """A map goes to the first tier with room, or the plan fails where no tier has any for one map more."""
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
    left = {name: (inf if limit is None else limit) - ends.get(name, 0) for name, limit in limits.items()}
    for it in program.instructions:
        if isinstance(it, CopyOut) and it.why == "offload":  # each map once, to the first tier with room
            assert it.tier == next(name for name, room in left.items() if room >= pinned_size(it.nbytes))
            left[it.tier] -= pinned_size(it.nbytes)
        if isinstance(it, (CopyIn, CopyOut)):
            ends[it.tier] = max(ends.get(it.tier, 0), it.pinned_address + pinned_size(it.nbytes))
    assert ends == {HOST: program.pinned_bytes, **program.tier_bytes}
    assert all((limit := limits[name]) is None or end <= limit for name, end in ends.items())


@pytest.mark.parametrize("module", [BufferAMap(), OnDemand(), Compressed()])
def test_other_tiers_need_a_module_that_uses_them(module: object) -> None:
    on = machine().with_tiers([Tier("host"), Tier("peer", 1 << 20)])
    wanted = setup(**MOVING | {"pinned": module})
    with raises_naming(SetupError, "titan-x", "peer"):
        plan(small_network(), wanted, on, PLENTY)
    plan(small_network(), setup(pinned=module), on, PLENTY)  # nothing moves


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(networks(layers=10), setups, st.tuples(st.integers(0, 1 << 12), st.integers(0, 1 << 12)), st.integers(0, 99))
@settings(max_examples=6)
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
