"""Exhaustive search: the same optimum as a plain loop over everything, and never below the bound."""

from __future__ import annotations

import itertools

import pytest

from refimpl.combined import Fates
from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.names.presets import baseline
from refimpl.network import Network
from refimpl.planner import DoesNotFit, plan
from refimpl.slots.baseline import NoCache
from refimpl.studies.optimum.bound import lower_bound, single_step_bytes
from refimpl.studies.optimum.exhaustive import KNOBS, RECOMPUTE_ALONE, WORDS, candidate, crossing_maps, exhaustive
from tests.matrix import some
from tests.refimpl.drawn_networks import CONVENTIONS, SMALLEST, smallest

TITAN_X = MACHINES["titan-x"]
EXACT = 1 - 1e-6  #: the solver's tolerance
FEW_KNOBS = {**KNOBS, "prefetch": KNOBS["prefetch"][:1], "allocator": KNOBS["allocator"][:2]}
MIB = 1 << 20


@pytest.fixture(scope="module")
def alexnet() -> Network:
    return build("alexnet", 256)


def by_plain_loop(network: Network, budget: int, names: list[str]) -> float | None:
    """Every fate of these maps with all knobs, with eviction or without, each planned to its end."""
    best = None
    knobs = {**FEW_KNOBS, "cache": (NoCache(), *FEW_KNOBS["cache"])}
    for words in itertools.product(WORDS, repeat=len(names)):
        fates = dict(zip(names, words, strict=True))
        if fates[network.input.name] == "drop":
            continue
        for modules in itertools.product(*knobs.values()):
            setup = candidate(Fates.of(fates), dict(zip(knobs, modules, strict=True)))
            try:
                seconds = plan(network, setup, TITAN_X, budget).planned_seconds
            except DoesNotFit:
                continue
            best = min(best or seconds, seconds)
    return best


@pytest.mark.slow
def test_it_finds_what_a_plain_loop_finds(alexnet: Network) -> None:
    found = exhaustive(alexnet, TITAN_X, 1340 * MIB, knobs=FEW_KNOBS, most=3)
    names = [tensor.name for tensor in found.enumerated]
    assert {*names} == {"input", "conv1", "conv2"} and found.candidates == 2 * 3 * 3 * 6
    assert found.seconds == by_plain_loop(alexnet, 1340 * MIB, names)


@pytest.mark.slow
def test_recomputation_alone_neither_offloads_nor_evicts_and_progress_is_told(alexnet: Network) -> None:
    seen: list[tuple[int, int]] = []
    found = exhaustive(
        alexnet, TITAN_X, 1402 * MIB, ("keep", "drop"), RECOMPUTE_ALONE, watch=lambda *at: seen.append(at)
    )
    assert found.program is not None
    assert found.program.counts.offloaded_bytes == found.program.counts.evictions == 0
    assert str(found.fates) == "pool1 drop, pool2 drop", "which is not in Rotor's class"
    assert seen == [(done, 2**7) for done in range(len(seen))] and seen


@pytest.mark.slow
@pytest.mark.parametrize("kinds", some(SMALLEST, SMALLEST[-1]), ids="-".join)
def test_the_smallest_networks_have_a_bound_and_an_optimum(kinds: tuple[str, ...]) -> None:
    """Their maps may be none at all, or one that no step reads: a softmax's backward updates it in place."""
    for conventions in CONVENTIONS:
        network = smallest(kinds, conventions)
        roomy = plan(network, baseline(), TITAN_X, UNLIMITED)
        assert exhaustive(network, TITAN_X, UNLIMITED, most=2).seconds == pytest.approx(roomy.planned_seconds)
        for within in (roomy.peak_bytes, single_step_bytes(network, TITAN_X)):
            bound, found = lower_bound(network, TITAN_X, within), exhaustive(network, TITAN_X, within, most=2)
            assert bound is not None and (found.seconds is None or found.seconds >= bound.seconds * EXACT)
        for word in ("offload", "drop"):
            fates = Fates.of(
                {x.name: word for x in crossing_maps(network, TITAN_X) if (word, x.kind) != ("drop", "input")}
            )
            plan(network, candidate(fates, {}), TITAN_X, UNLIMITED).verify()
