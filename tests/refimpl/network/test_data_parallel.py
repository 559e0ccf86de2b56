"""Data-parallel networks: what each rank computes, in which order, and that plans of it are right."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refimpl
from refimpl.machine import Ring, wire_bytes
from refimpl.network import Call, Network
from refimpl.planner import Launch, plan
from tests.refimpl.drawn_networks import CONVENTIONS
from tests.refimpl.modules import machine, networks, setup, setups
from tests.refimpl.planner.brute_force import fault
from tests.refimpl.planner.mutations import MOVING, changed, find, moved, refused, removals, small_network

BUCKETS = st.one_of(st.none(), st.integers(1, 2000))
RESIDENT = st.sampled_from([one for one in CONVENTIONS if not one.weight_gradients_managed])
drawn = RESIDENT.flatmap(lambda conventions: networks(conventions=conventions))


def calls_of(network: Network) -> list[Call]:
    return [call for step in network.steps for call in step.calls]


@given(drawn, st.integers(2, 5), BUCKETS)
def test_every_gradient_is_reduced_once_when_it_is_finished_and_applied_at_the_end(
    network: Network, ranks: int, bucket: int | None
) -> None:
    parallel = network.data_parallel(ranks, bucket)
    calls, plain = calls_of(parallel), calls_of(network)
    means = [call for call in calls if call.collective]
    updates = [call for call in plain if call.function == "sgd.update"]
    assert [call for call in calls if not call.collective and call not in updates] == [
        call for call in plain if call not in updates
    ]
    assert calls[len(calls) - len(updates) :] == updates, "in their order, after all others"
    assert len({step.number for step in parallel.steps for call in step.calls if call in updates}) == 1
    reduced = [gradient for mean in means for gradient in mean.updates]
    assert reduced == [update.arguments["dw"] for update in updates]
    for mean in means:
        written = [calls.index(call) for call in calls if set(call.writes) & set(mean.updates)]
        assert max(written) < calls.index(mean)
    sizes = parallel.reduced
    assert sizes == [sum(gradient.nbytes for gradient in mean.updates) for mean in means]
    if bucket is None:
        assert len(sizes) == 1
    else:
        last = [mean.updates[-1].nbytes for mean in means]
        assert all(size - one < bucket <= size for size, one in zip(sizes[:-1], last, strict=False))
    assert parallel.resident == network.resident and parallel.managed == network.managed


@pytest.mark.slow
@given(drawn, setups, BUCKETS)
@settings(max_examples=12)
def test_its_programs_are_right_and_warn_of_nothing_new(network: Network, setup: object, bucket: int | None) -> None:
    alone = plan(network, setup, machine(), 1 << 26)  # type: ignore[arg-type]
    program = plan(network.data_parallel(3, bucket), setup, machine(), 1 << 26)  # type: ignore[arg-type]
    assert len(program.verify().warnings) <= len(alone.verify().warnings)
    timeline = program.simulate()
    assert timeline.seconds == program.planned_seconds and program.peak_bytes == alone.peak_bytes
    ring = machine().ring
    assert timeline.busy("network") == pytest.approx(sum(ring.reduce_seconds(n, 3) for n in program.network.reduced))


def test_whatever_is_taken_out_of_a_program_is_missed_or_was_not_needed() -> None:
    program = plan(small_network().data_parallel(2, 500), setup(**MOVING), machine(), 1 << 26)
    tally: Counter[tuple[str, bool]] = Counter()
    for what, mutant in removals(program, None):  # type: ignore[arg-type]
        theirs = fault(mutant)
        try:
            mutant.verify()
            assert theirs is None, f"{what}: brute force says {theirs}"
            tally[what, False] += 1
        except refimpl.Unsafe as ours:
            assert theirs is not None, f"{what}: verify says {ours}"
            tally[what, True] += 1
    assert tally["launch removed", False] == 0 and tally["wait removed", True] > tally["wait removed", False]


def test_collective_calls_run_on_the_network_alone_and_before_the_updates() -> None:
    program = plan(small_network().data_parallel(2, 500), setup(), machine(), 1 << 26)
    mean, kernel = find(program, "launch", "comm.mean"), find(program, "launch", "fc.backward_filter")
    assert program.streams == ("compute", "out", "in", "network")
    assert program.instructions[mean].stream == 3  # type: ignore[union-attr]
    assert refused(changed(program, mean, stream=0), "network", "compute").rule == 1
    assert refused(changed(program, kernel, stream=3), "compute", "network").rule == 1
    copy = find(program, "copy out", last=True)
    assert refused(changed(program, copy, stream=3), "network").rule == 1
    first = find(program, "launch", "sgd.update")
    early = next(i for i, it in enumerate(program.instructions) if isinstance(it, Launch) and it.call.collective)
    assert refused(moved(program, first, early)).rule == 3


def test_one_rank_trains_alone() -> None:
    network = small_network()
    assert network.data_parallel(1) is network and network.ranks == 1 and network.reduced == []
    assert network.data_parallel(2).inference().ranks == 1, "each rank evaluates by itself"


def test_the_ring_by_hand() -> None:
    """2·7/8 · 240 MB / 1 GB/s + 14 · 20 µs."""
    assert Ring(1e9, 20e-6).reduce_seconds(240_000_000, 8) == pytest.approx(0.42028, abs=1e-9)
    assert wire_bytes(1000, 1) == 0 and wire_bytes(1000, 4) == 6000


def test_a_network_that_shares_the_link_holds_up_copies() -> None:
    on = machine().with_ring(Ring(1e7, 0))
    shared = dataclasses.replace(on, ring=dataclasses.replace(on.ring, shares_link=True))
    network = refimpl.networks.build("tiny-resnet", 8).data_parallel(2, 20_000)
    offloading = refimpl.presets.setup("vdnn-all")
    apart, together = (plan(network, offloading, one, 1 << 30).planned_seconds for one in (on, shared))
    assert together > apart
