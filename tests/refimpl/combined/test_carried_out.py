"""Drawn fates are carried out safely, whatever they are."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.combined import FarthestNextUse, Fates, InTime, OnceDrained, setup_with
from refimpl.combined.carried_out import must_hold
from refimpl.combined.fates import WORDS, Word
from refimpl.memory import BestFit, BothEnds
from refimpl.names.largest_batch import least_conceivable
from refimpl.names.networks import build
from refimpl.network import VDNN, Builder, Network, Tensor
from refimpl.planner import Context, CopyIn, DoesNotFit, Program, Setup, plan
from refimpl.slots.algorithms import FastestThatFits, MemoryOptimal
from refimpl.slots.baseline import LayerWise, NoCache
from tests.refimpl.backend.running import MACHINE
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine

pytestmark = pytest.mark.combined

UNLIMITED = 1 << 50


def drawn_setup(network: Network, lot: random.Random) -> Setup:
    """Any fates, and any of the modules that may be beside them."""
    words: dict[str, Word] = {}
    for tensor in Context(network, MACHINE).maps_across():
        words[tensor.name] = lot.choice(WORDS[:2] if tensor is network.input else WORDS)
    return setup_with(
        Fates.of(words),
        prefetch=InTime(lot.choice((1.0, 4.0)), lot.random() < 0.5, lot.choice((0.0, 0.1))),
        cache=lot.choice((FarthestNextUse(), NoCache())),
        algorithms=lot.choice((OnceDrained(), FastestThatFits(), MemoryOptimal())),
        allocator=lot.choice((BestFit(), BothEnds())),
        copy_streams=lot.choice(("shared", "separate")),
        join=lot.random() < 0.2,
    )


def drawn_program(network: Network, seed: int, share: float) -> Program | None:
    """A program with drawn fates, in a budget between what one step needs and what all maps need; None: no fit."""
    lot = random.Random(seed)
    on = machine(lot.choice((1e8, 12.8e9)))
    most = plan(network, Setup("all", algorithms=MemoryOptimal(), liveness=LayerWise()), on, UNLIMITED).peak_bytes
    least = least_conceivable(network)
    try:
        program = plan(network, drawn_setup(network, lot), on, int(least + share * (1.2 * most - least)))
    except DoesNotFit:
        return None
    program.verify()
    return program


@pytest.mark.slow
@given(networks(layers=12), st.integers(0, 999), st.floats(0, 1))
@settings(max_examples=25)
def test_drawn_fates_are_safe(network: Network, seed: int, share: float) -> None:
    drawn_program(network, seed, share)


# -- rebuilding --------------------------------------------------------------------------------------------------------


def chained(words: Mapping[str, Word]) -> tuple[Network, Program]:
    """A chain of six normalisations after a convolution, with these fates."""
    b = Builder("chain", (2, 4, 8, 8), VDNN)
    b.conv(4, 3, pad=1, name="conv")
    for number in range(1, 7):
        b.batchnorm(name=f"n{number}")
    b.fc(2)
    b.softmax()
    network = b.build()
    program = plan(network, setup_with(Fates.of(words)), MACHINE, UNLIMITED)
    program.verify()
    return network, program


def test_what_is_dropped_once_is_rebuilt_once_and_again_means_every_time() -> None:
    """Each of n maps in a row, dropped: n layers run again; again: n (n + 1) / 2, less the last's own step."""
    names = [f"n{number}" for number in range(1, 6)]
    once = chained(dict.fromkeys(names, "drop"))[1].counts.recomputed_layers
    every_time = chained(dict.fromkeys(names, "again"))[1].counts.recomputed_layers
    assert once == len(names) < every_time == len(names) * (len(names) + 1) // 2


# -- prefetching -------------------------------------------------------------------------------------------------------


def begins(network: Network, module: InTime, budget: int = UNLIMITED, link: float = 12.8e9) -> dict[str, int]:
    """Map → the step at which its copy in begins, where every map is offloaded."""
    fates = Fates.of({t.name: "offload" for t in Context(network, MACHINE).maps_across()})
    setup = setup_with(fates, prefetch=module, algorithms=MemoryOptimal())
    program = plan(network, setup, machine(link), budget)
    return {it.tensor.name: it.step for it in program.instructions if isinstance(it, CopyIn) and it.why == "prefetch"}


def test_a_longer_lead_and_a_slower_link_copy_in_earlier() -> None:
    network = build("vgg16", 8)
    late, early, slow = begins(network, InTime()), begins(network, InTime(3.0)), begins(network, InTime(), link=6e9)
    for other in (early, slow):
        both = late.keys() & other.keys()  # a map that is wanted before it has drained is not copied
        assert len(both) > 5 and all(other[name] <= late[name] for name in both) and other != late


def test_must_hold_counts_a_map_that_is_away_only_where_it_is_used() -> None:
    network, _ = chained({})
    context = Context(network, MACHINE)
    named: dict[str, Tensor] = {tensor.name: tensor for tensor in network.managed}
    before = must_hold(context)
    context.decide("offload", "test", {named["n1"]: "test"})
    after = must_hold(context)
    last, first = context.last_forward_use(named["n1"]), context.first_backward_use(named["n1"])
    away = [number for number in range(len(before)) if after[number] != before[number]]
    assert away == list(range(last + 1, first))
    assert all(before[number] - after[number] == named["n1"].nbytes for number in away)
