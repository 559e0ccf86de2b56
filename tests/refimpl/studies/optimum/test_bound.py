"""The lower bound: no plan is faster, whatever its policy; and where memory is no object, the baseline is at it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refimpl.combined import COMBINED, Dropped, Fates, InTime, Offloaded
from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.names.presets import PRESETS, baseline
from refimpl.network import Call, Network, Step, Tensor
from refimpl.planner import Context, DoesNotFit, Setup, plan
from refimpl.slots.algorithms import FastestThatFits
from refimpl.slots.baseline import LayerWise
from refimpl.studies.optimum import bound as bound_module
from refimpl.studies.optimum.bound import (
    crossings,
    floor_seconds,
    held_by,
    looked_at,
    lower_bound,
    rebuild_seconds,
    single_step_bytes,
)
from tests.refimpl.drawn_networks import networks

TITAN_X = MACHINES["titan-x"]
EXACT = 1 - 1e-6  #: the solver's tolerance


def seconds_of(network: Network, setups: list[Setup], budget: int) -> dict[str, float]:
    """The seconds of those that fit, by name."""
    found = {}
    for setup in setups:
        try:
            found[setup.name] = plan(network, setup, TITAN_X, budget).planned_seconds
        except DoesNotFit:
            continue
    return found


def drawn_fates(network: Network, words: list[str]) -> Setup:
    """Fates in the order of the maps."""
    names = [one.tensor.name for one in crossings(network, TITAN_X, UNLIMITED)]
    pairs = dict(zip(names, words, strict=False))
    if network.input.name in pairs:
        pairs[network.input.name] = "offload"
    fates = Fates.of(pairs)  # type: ignore[arg-type]
    return Setup(
        f"{fates}", recompute=Dropped(fates), offload=Offloaded(fates=fates), prefetch=InTime(), liveness=LayerWise(),
        algorithms=FastestThatFits(),
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 6)  # an example is a search
@given(st.data())
def test_no_plan_is_faster_than_the_bound(data: st.DataObject) -> None:
    network = data.draw(networks(layers=7, side=16, batch=16))
    least, most = single_step_bytes(network, TITAN_X), plan(network, baseline(), TITAN_X, UNLIMITED).peak_bytes
    budget = least + round((most - least) * data.draw(st.sampled_from([0.02, 0.1, 0.3, 0.6, 1.0])))
    words = st.lists(st.sampled_from(["keep", "offload", "drop"]), min_size=20, max_size=20)
    forks = network.conventions.fork_layers
    setups = [drawn_fates(network, one) for one in data.draw(st.lists(words, min_size=3, max_size=3)) if not forks]
    presets = [preset.setup for name, preset in PRESETS.items() if name != "combined"]
    found = seconds_of(network, [*presets, dataclasses.replace(COMBINED, effort=10), *setups], budget)
    assume(found)
    bound = lower_bound(COMBINED.cut(network), TITAN_X, budget)
    assert bound is not None and bound.proved
    name, seconds = min(found.items(), key=lambda pair: pair[1])
    assert bound.seconds * EXACT <= seconds, f"{name} within {budget} bytes"


@pytest.mark.slow
@pytest.mark.matrix
def test_where_steps_may_be_cut_the_bound_is_one_for_plans_of_whole_steps_too() -> None:
    """A whole step may have another order of calls, and an algorithm that has no room in the order of the parts."""
    network = build("alexnet", 256)
    bounds = [lower_bound(steps, TITAN_X, 1549311741) for steps in (COMBINED.cut(network), network)]
    assert bounds[0] and bounds[1] and bounds[0].seconds <= bounds[1].seconds / EXACT


@pytest.mark.slow
def test_a_bound_with_fewer_steps_is_a_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    network, budget = build("alexnet", 256), 1282 << 20
    exact = lower_bound(network, TITAN_X, budget)
    monkeypatch.setattr(bound_module, "SHARES", 220)
    coarse = lower_bound(network, TITAN_X, budget)
    assert exact is not None and coarse is not None and coarse.calls < exact.calls
    floor = floor_seconds(network, TITAN_X)
    assert floor * 1.001 < coarse.seconds <= exact.seconds * (1 + bound_module.GAP)


def test_calls_of_a_deep_network_are_the_fullest() -> None:
    network = build("resnet50", 2)
    crossing = crossings(network, TITAN_X, UNLIMITED)
    found = looked_at(network, crossing)
    assert found[0] == 0 and len(found) * len(crossing) <= bound_module.SHARES + len(crossing)
    demands = [
        held_by(network, step, call) + sum(c.tensor.nbytes for c in crossing if c.last < step.number < c.back)
        for step in network.steps
        for call in step.calls
    ]
    assert max(demands) == max(demands[position] for position in found)


def test_a_call_holds_its_operands_and_what_is_used_before_and_after_it() -> None:
    network = build("lenet", 2)
    a, b, c, d, e = (Tensor(name, (1 << place,), "map", managed=True) for place, name in enumerate("abcde"))
    weights = Tensor("w", (1 << 20,), "weight")
    first = Call("first", {}, [a, b, weights], [c])
    second = Call("second", {}, [b, weights], [d])
    third = Call("third", {}, [a], [e])
    last = Call("last", {}, [d], [e])
    step = cast(Step, SimpleNamespace(calls=[first, second, third, last]))
    held = [held_by(network, step, call) - network.resident_bytes for call in step.calls]
    assert held == [4 * (1 + 2 + 4), 4 * (2 + 8 + 1), 4 * (1 + 16 + 8), 4 * (8 + 16)]


def test_with_memory_enough_the_bound_is_the_floor_and_the_baseline_is_at_it() -> None:
    for network in (build("alexnet", 8), build("tiny-inception")):
        free = plan(network, baseline(), TITAN_X, UNLIMITED)
        for budget in (free.peak_bytes, 1 << 60):
            bound = lower_bound(network, TITAN_X, budget)
            assert bound is not None
            assert bound.seconds == pytest.approx(floor_seconds(network, TITAN_X), rel=1e-9)
            assert bound.seconds == pytest.approx(free.planned_seconds, rel=1e-9)


def test_where_one_step_needs_more_than_the_budget_there_is_no_bound() -> None:
    network = build("lenet")
    least = single_step_bytes(network, TITAN_X)
    assert lower_bound(network, TITAN_X, least - 1) is None
    assert lower_bound(network, TITAN_X, least) is not None


def test_a_step_needs_its_least_workspace_beside_what_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    network = build("lenet")
    without = single_step_bytes(network, TITAN_X)
    monkeypatch.setattr("refimpl.studies.optimum.bound.least_workspace", lambda machine, step: 1 << 20)
    assert single_step_bytes(network, TITAN_X) == without + (1 << 20)


def test_a_step_that_makes_several_maps_is_paid_for_once() -> None:
    network = build("tiny-resnet:superneurons", 2)
    fork = next(layer for layer in network.layers if layer.kind == "fork")
    found = {one.tensor: one for one in crossings(network, TITAN_X, UNLIMITED)}
    paid = sum(rebuild_seconds(copy, Context(network, TITAN_X)) for copy in fork.outputs)
    assert paid == pytest.approx(sum(map(TITAN_X.seconds, fork.forward.calls)))
    early = [one for one in found.values() if one.made < one.last]
    assert early, "a map can leave before its last forward use"


def test_a_rebuild_takes_an_algorithm_whose_workspace_fits_beside_its_operands() -> None:
    network, budget = build("alexnet", 256), 1170 << 20
    conv2 = next(tensor for tensor in network.managed if tensor.name == "conv2")
    call = next(call for step in network.steps for call in step.calls if call.choosable and conv2 in call.writes)
    fastest, _, slower, *_ = TITAN_X.choices(call)
    found = [rebuild_seconds(conv2, Context(network, TITAN_X, room)) for room in (UNLIMITED, budget)]
    assert fastest.workspace_bytes > budget // 4 and slower.workspace_bytes < 1 << 20
    assert found[1] - found[0] == pytest.approx(slower.seconds - fastest.seconds)
    assert rebuild_seconds(conv2, Context(network, TITAN_X, network.resident_bytes)) == float("inf")
