"""The speed that the tensor cache saves, and that a larger pool buys."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings

from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, Program, Setup, plan
from refimpl.slots.baseline import NoRecompute
from refimpl.studies.reproduce.evaluation import moved_bytes, out_bytes
from refimpl.studies.reproduce.published import Published
from refimpl.studies.reproduce.superneurons import speed
from refimpl.studies.reproduce.superneurons.memory import FIGURES, K40C, library_calls
from refimpl.superneurons import presets as stages
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import LastUsed, OffloadSome, PrefetchAhead, least_plan, machine, setup

pytestmark = pytest.mark.superneurons

PLENTY = 1 << 50  #: bytes


def test_the_cache_moves_less_and_a_synchronous_eager_offload_waits_for_all_copies() -> None:
    slow, fast = (speed.cache_row("tiny-resnet", 64, machine) for machine in speed.GPUS)
    assert slow.with_moved_bytes == fast.with_moved_bytes == 0 < slow.without_moved_bytes
    assert 1 <= slow.ratio < slow.ratio_eager and slow.ratio <= fast.ratio < fast.ratio_eager


def test_a_synchronous_eager_offload_moves_what_table_3_has() -> None:
    """Of a CONV the output goes out once, and comes in for the next layer and for backward.

    With the weights once and the batch twice that is the published figure, to its last digit.
    """
    network = build("alexnet:superneurons", 256)
    program = plan(network, speed.EAGER, K40C, PLENTY)
    program.verify()
    outputs = sum(layer.y.nbytes for layer in network.layers if layer.kind == "conv")
    assert out_bytes(program) == outputs and moved_bytes(program) == 3 * outputs
    weights = sum(parameter.weight.nbytes for _, _, parameter in network.parameters())
    whole = (3 * outputs + weights + 2 * network.input.nbytes) / speed.GB
    assert round(whole, 2) == FIGURES.by("moved without the cache")["alexnet(256)"].value
    timeline = program.simulate()
    kernels, copies = timeline.busy("compute"), timeline.busy("out") + timeline.busy("in")
    assert kernels + 0.99 * copies < timeline.seconds, "hardly a kernel runs beside a copy"


def recounted(program: Program, kind: type[CopyOut | CopyIn]) -> int:
    """The slow way: every copy, but of the batch and the results."""
    ours = (program.network.input, program.network.labels, *program.pinned)
    return sum(i.nbytes for i in program.instructions if isinstance(i, kind) and i.tensor not in ours)


@settings(max_examples=10)
@given(networks())
def test_what_moved_is_what_the_instructions_copy(network: Network) -> None:
    wanted = setup(cache=LastUsed(), offload=OffloadSome(0.5), prefetch=PrefetchAhead(2))
    program = least_plan(network, wanted, machine())
    assert out_bytes(program) == recounted(program, CopyOut)
    assert moved_bytes(program) == recounted(program, CopyOut) + recounted(program, CopyIn)


# -- the pool grows ----------------------------------------------------------------------------------------------------


def shares(network: Network, low: float, count: int, wanted: Setup = speed.EVERYTHING) -> list[Program]:
    """From a share of what an unlimited plan comes to use, to all of it."""
    top = plan(network, wanted, K40C, PLENTY).arena_bytes
    budgets = [round(top * (low + (1 - low) * i / (count - 1))) for i in range(count)]
    return [made for budget in budgets if (made := attempt(network, wanted, K40C, budget))]


def test_traffic_falls_as_the_pool_grows() -> None:
    """From the least that fits, of seven budgets, to plenty."""
    points = shares(build("resnet50:superneurons", 4), 0.4, 7)
    moved = [moved_bytes(point) for point in points]
    assert len(points) >= 4 and moved == sorted(moved, reverse=True) and moved[0] > 0 == moved[-1]
    first, last = points[0], points[-1]
    assert first.counts.evictions > last.counts.evictions == 0 and first.counts.misses >= last.counts.misses
    assert first.budget < last.budget and first.planned_seconds > last.planned_seconds


@pytest.mark.slow
def test_on_drawn_networks_more_room_seldom_moves_more_bytes() -> None:
    """They need not fall, because of holes and prefetches: counted is how often the next larger budget moves more."""
    found: Counter[str] = Counter()
    everything_moves = speed.EVERYTHING.replace(recompute=NoRecompute())  # else most of what is evicted needs no copy

    @settings(max_examples=12, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(networks())
    def draw(network: Network) -> None:
        for smaller, larger in itertools.pairwise(shares(network, 0.4, 9, everything_moves)):
            found["pairs"] += moved_bytes(smaller) > 0
            found["more"] += moved_bytes(larger) > moved_bytes(smaller)

    draw()
    assert found["pairs"] > 10
    assert found["more"] < 0.1 * found["pairs"], found


# -- the heap against driver calls -------------------------------------------------------------------------------------


def test_an_iteration_takes_longer_by_the_seconds_of_its_calls() -> None:
    network = build("tiny-resnet:superneurons", 32)
    machine = replace(K40C, allocate_seconds=3e-4, free_seconds=3e-4)
    study = speed.against_driver_calls(network, machine, stages.liveness())
    assert study.calls == 2 * len(network.managed), "once each: the least workspace has no bytes"
    assert study.seconds_driver - study.seconds_heap == pytest.approx(study.calls * 3e-4, rel=0.01)
    call = study.call_seconds_published
    again = replace(K40C, allocate_seconds=call, free_seconds=call)
    share = speed.against_driver_calls(network, again, stages.liveness()).share_of_driver_calls
    assert share == pytest.approx(FIGURES.one("driver share").value / 100, abs=0.005)


def test_every_kernel_takes_longer_by_the_cost_of_its_calls() -> None:
    machine = speed.FixedCost.of(K40C, 1e-3)
    assert machine.name == K40C.name and machine.sources == K40C.sources
    network = build("tiny-resnet:superneurons", 4)
    more = [machine.seconds(call) - K40C.seconds(call) for step in network.steps for call in step.calls]
    assert sum(more) == pytest.approx(1e-3 * library_calls(network))


# -- speed by batch ----------------------------------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_has_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Published("fallen", 0.5, "×", "D", "x")
    few = SimpleNamespace(
        data={"speed by batch": {"alexnet": {"128": 100, "16384": 50}}},
        by=lambda name: {"alexnet": one}, by_two=lambda name: {"alexnet": {"16384": one}},
    )  # fmt: skip
    monkeypatch.setattr(speed, "FIGURES", few)
    found = speed.speeds(lambda name: None)
    little, much = found.rows
    assert little.rate and little.share == 1 and much.rate is None and much.share is None
    assert [figure.ours for figure in found.figures] == [128, little.rate, 0.0]
