"""Fixed addresses as an allocator: bytes are counted first, every block gets its address, and a second plan uses it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.combined.fixed import ORDERS, FixedAddresses, lives_of
from refimpl.combined.fixed_pool import CountingPool, by_age, by_area, by_size, rounds
from refimpl.combined.placing import Life
from refimpl.machine import MACHINES
from refimpl.memory import PoolError
from refimpl.names import presets
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.names.presets import PRESETS
from refimpl.network import Builder, Network
from refimpl.planner import DoesNotFit, Program, Setup, plan
from refimpl.planner.instructions import Allocate, Free
from refimpl.planner.loop import Planner
from refimpl.slots.errors import AddressesDoNotFit
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine, setups

TITAN_X = MACHINES["titan-x"]
MIB = 1 << 20
UNIT = 512
FIXED = FixedAddresses()


def test_a_pool_that_counts_refuses_bytes_and_never_a_hole() -> None:
    pool = FIXED.open(4 * UNIT)
    assert isinstance(pool, CountingPool)
    first, second, third = (pool.allocate(UNIT) for _ in range(3))
    assert None not in (first, second, third) and pool.largest_hole == UNIT
    pool.free(first or 0)
    pool.free(third or 0)
    assert pool.largest_hole == pool.free_bytes == 3 * UNIT
    assert pool.allocate(3 * UNIT) is not None and pool.allocate(1) is None
    assert FixedAddresses(limit=2 * UNIT).open(4 * UNIT).allocate(3 * UNIT) is None


def test_it_fits_where_best_fit_has_only_holes() -> None:
    """AlexNet with its convolutions' inputs offloaded: 88 MiB less than best fit needs."""
    network, setup = build("alexnet", 256), presets.setup("vdnn-conv")
    budget = 1317 * MIB
    assert attempt(network, setup, TITAN_X, budget) is None
    program = plan(network, setup.replace(allocator=FIXED), TITAN_X, budget)
    program.verify()
    assert (
        program.setup.name == "vdnn-conv, allocator=fixed-addresses" and program.setup.slots["allocator"] == FIXED.name
    )
    assert program.arena_bytes <= budget and program.setup.allocator.places  # type: ignore[attr-defined]
    again = plan(network, program.setup, TITAN_X, budget)  # with the addresses that it has
    assert again.planned_seconds == program.planned_seconds and again.arena_bytes == program.arena_bytes


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_takes_it(name: str) -> None:
    setup = PRESETS[name].setup
    if setup.module("allocator") is None:
        pytest.skip("the policy chooses its allocator itself")
    program = plan(build("tiny-resnet", 8), setup.replace(allocator=FIXED), TITAN_X, 1 << 30)
    program.verify()
    assert program.setup.slots["allocator"] == FIXED.name


@pytest.mark.slow
@given(networks(layers=10), setups, st.floats(0.5, 1.0))
def test_whatever_fits_is_proved(network: Network, setup: Setup, share: float) -> None:
    """With any modules: evicting, rebuilding, prefetching ones too."""
    try:
        whole = plan(network, setup.replace(allocator=FIXED), TITAN_X, 1 << 40)
        whole.verify()
        program = plan(network, setup.replace(allocator=FIXED), TITAN_X, int(share * whole.peak_bytes))
    except DoesNotFit:
        return
    program.verify()
    assert program.peak_bytes <= program.arena_bytes <= program.budget


def counted(budget: int) -> Program:
    setup = presets.setup("vdnnpp-conv", {"pinned": "buffer-a-map"})
    return Planner(build("alexnet", 256), setup.replace(allocator=FIXED), machine(link=1e9), budget).plan()


def test_a_block_lives_until_its_release_and_drains_until_its_copy_is_done() -> None:
    program = counted(1500 * MIB)
    lives, draining = lives_of(program, program.lifetimes()), 0
    for life, block in zip(program.lifetimes(), lives.values(), strict=True):
        assert (block.begin, block.nbytes) == (life.begin, life.allocate.nbytes)
        assert block.begin < block.end <= block.drained <= life.end
        free = program.instructions[life.end]
        assert isinstance(program.instructions[block.begin], Allocate) and isinstance(free, Free)
        if free.released == free.step:
            assert block.end == life.end
        draining += block.drained > block.end
        assert block.until(1).end == block.drained and block.until(0).end == block.end
    assert draining  # the link is slow


def test_a_copy_in_that_begins_early_takes_bytes_that_are_free_early() -> None:
    """AccUDNN's program: the batch is prefetched into a workspace that is free before other blocks of its step."""
    network, budget = build("alexnet", 256), 1467 * MIB
    late = plan(network, presets.setup("accudnn"), TITAN_X, budget)
    assert isinstance(late.setup.allocator, FixedAddresses)
    early = plan(network, late.setup.replace(allocator=FixedAddresses(early=True)), TITAN_X, budget)
    early.verify()
    assert early.planned_seconds < late.planned_seconds


def test_blocks_that_are_large_for_long_are_placed_first() -> None:
    """Neither the largest block first nor the oldest first needs so few bytes; all three orders are tried."""
    spans = ((4, 8, 3), (0, 5, 2), (2, 9, 4), (1, 3, 4), (6, 7, 4))
    known = {block: Life(begin, end, nbytes * UNIT) for block, (begin, end, nbytes) in enumerate(spans)}
    needs = {order: rounds(known, order(known), 11 * UNIT, 4).pool_bytes for order in ORDERS}
    assert needs == {by_size: 13 * UNIT, by_area: 11 * UNIT, by_age: 13 * UNIT}


def test_the_error_names_the_bytes_of_the_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    from refimpl.combined import fixed

    network, setup = build("alexnet", 256), presets.setup("vdnn-conv")
    monkeypatch.setattr(fixed, "UNLIMITED", 2000 * MIB)
    monkeypatch.setattr(fixed, "SHARES", ())  # no addresses are found
    with pytest.raises(AddressesDoNotFit) as refused:
        plan(network, setup.replace(allocator=FIXED), TITAN_X, 1400 * MIB)
    assert str(refused.value) == "does not fit in 1.367 GiB: the addresses found for all blocks take 1.953 GiB"
    assert refused.value.where == "fixed addresses" and refused.value.missing == "600 MiB"


def test_blocks_are_whole_granules() -> None:
    with raises_naming(PoolError, "granularity", 1024, 512):
        FixedAddresses(1024)


def test_a_block_drains_through_a_step_without_instructions() -> None:
    """Nothing is learnt below the first POOL, so the backward of the second is empty: a block released just before."""
    b = Builder("two pools", (3, 1, 12, 12))
    b.pool(2)
    b.pool(2)
    b.fc(3)
    b.softmax()
    program = plan(b.build(), presets.setup("baseline"), TITAN_X, MIB)
    assert 7 not in {it.step for it in program.instructions}
    frees = ((n, it) for n, it in enumerate(program.instructions) if isinstance(it, Free) and it.step == 8)
    number, free = next(frees)
    program.instructions[number] = dataclasses.replace(free, released=6)
    after = next(n for n, it in enumerate(program.instructions) if it.step > 6)
    assert after in {life.end for life in lives_of(program, program.lifetimes()).values()}
