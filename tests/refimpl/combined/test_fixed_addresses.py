"""Fixed addresses as an allocator: bytes are counted first, every block gets its address, and a second plan uses it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.combined.fixed import FixedAddresses, lives_of
from refimpl.combined.fixed_pool import CountingPool
from refimpl.machine import MACHINES
from refimpl.names import presets
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program, Setup, plan
from refimpl.planner.instructions import Allocate, Free
from refimpl.planner.loop import Planner
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
