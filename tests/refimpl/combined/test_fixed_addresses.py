"""Fixed addresses as an allocator: bytes are counted first, every block gets its address, and a second plan uses it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.combined.fixed import FixedAddresses, fixed_addresses, lives_of
from refimpl.combined.fixed_memory import Answer, Noting
from refimpl.combined.fixed_pool import CountingPool
from refimpl.machine import MACHINES
from refimpl.names import presets
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program, Setup, plan
from refimpl.planner.instructions import Allocate, Free
from refimpl.planner.loop import Planner
from refimpl.slots.algorithms import FastestThatFits
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import OffloadSome, PrefetchAhead, instructions_of, machine, setup, setups

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
@given(networks(layers=10), setups, st.floats(0.5, 1.0), st.sampled_from((2e8, 12.8e9)))
def test_what_fits_while_bytes_are_counted_fits_at_addresses(
    network: Network, drawn: Setup, share: float, link: float
) -> None:
    """With any modules: evicting, rebuilding, prefetching ones too; unless no addresses are found."""
    wanted, on, answers = drawn.replace(allocator=FIXED), machine(link), list[Answer]()
    whole = Planner(network, wanted, on, 1 << 40).plan()
    try:
        budget = int(share * whole.peak_bytes)
        counted = Planner(network, wanted, on, budget, memory=partial(Noting, answers=answers)).plan()
        places = FIXED.with_places(counted)
    except DoesNotFit:
        return
    answering = wanted.replace(allocator=replace(places, answers=tuple(answers)))
    program, following = (plan(network, one, on, budget) for one in (wanted, answering))
    for one in (program, following):
        one.verify()
        assert one.peak_bytes <= one.arena_bytes <= budget
    assert allocated(following) == allocated(counted) and following.algorithms == counted.algorithms


def allocated(program: Program) -> list[str]:
    return [str(it.tensor) for it in program.instructions if isinstance(it, Allocate)]


@pytest.mark.parametrize(
    ("workspace", "budget"), [("workspace of conv3_1", 1_618_944), ("workspace of conv3_2", 2_266_521)]
)
def test_a_plan_at_addresses_goes_as_the_one_that_counted(workspace: str, budget: int) -> None:
    """Other copies are waited for, so other bytes drain when the algorithm of a convolution is chosen."""
    wanted = setup(
        offload=OffloadSome(early=True), prefetch=PrefetchAhead(), algorithms=FastestThatFits(), allocator=FIXED
    ).replace(copy_streams="shared")
    network = build("tiny-vgg", 4)
    counted, program = Planner(network, wanted, TITAN_X, budget).plan(), plan(network, wanted, TITAN_X, budget)
    program.verify()
    assert allocated(program) == allocated(counted) and workspace in allocated(program)
    assert program.algorithms == counted.algorithms and program.arena_bytes <= budget
    assert instructions_of(plan(network, program.setup, TITAN_X, budget)) == instructions_of(program)


def test_the_error_says_what_is_in_a_fixed_place() -> None:
    network, wanted = build("tiny-vgg", 4), setup()
    made = fixed_addresses(plan(network, wanted, TITAN_X, 1 << 40))
    places = [*made.places]
    number = len(network.resident)
    for said, place in (
        ("its fixed place has input in it", (places[number][0], places[number + 1][1])),
        ("the next fixed place has 1 MiB: the addresses are those of another program", (places[-1][0], MIB)),
        ("its fixed place ends at 1 GiB", ((1 << 30) - places[number + 1][1], places[number + 1][1])),
    ):
        places[number + 1] = place
        with pytest.raises(DoesNotFit, match=said):
            plan(network, wanted.replace(allocator=replace(made, places=tuple(places))), TITAN_X, 4 * MIB)


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
