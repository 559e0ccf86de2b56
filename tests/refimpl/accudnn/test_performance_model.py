"""The model against the planner: what it holds, how long it takes, and a quick simulation against the real clock."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.accudnn import Candidate, Model, choose, scheduled, simulate, triggers
from refimpl.accudnn.carried_out import modules_of, offloaded_candidates
from refimpl.accudnn.choice import caps_within
from refimpl.accudnn.performance_model import rungs_of, space, within
from refimpl.accudnn.schedule import AS_FAST, ROUNDS
from refimpl.combined.fixed import FixedAddresses
from refimpl.combined.papers import ACCUDNN
from refimpl.machine import MACHINES, Choice
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, DoesNotFit, Setup, plan
from refimpl.planner.loop import Planner
from refimpl.slots.baseline import LayerWise
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine

pytestmark = pytest.mark.accudnn

TITAN_X = MACHINES["titan-x"]
LAYER_WISE = Setup("layer-wise", liveness=LayerWise())


def model_of(network: Network, on: object = TITAN_X) -> Model:
    return Model.of(Context(network, on, UNLIMITED))  # type: ignore[arg-type]


@given(networks(layers=14))
def test_with_every_map_kept_it_is_the_plan(network: Network) -> None:
    """Bytes at every step, and seconds.  The pool may hold less than the step's sum: not everything at one moment."""
    model, program = model_of(network), plan(network, LAYER_WISE, TITAN_X, UNLIMITED)
    held = np.array([row.pool_bytes for row in program.rows])
    assert (held == model.base[1:]).all()
    assert program.simulate().busy("compute") == pytest.approx(model.seconds.sum())
    assert program.planned_seconds == pytest.approx(model.without_stall, abs=3 * TITAN_X.copy_start_seconds)


def all_rounds(model: Model, away: Sequence[Candidate], budget: int) -> tuple[dict[Candidate, int], float] | None:
    """`scheduled`, with every round made."""
    starts, best = model.starts, None
    for _ in range(ROUNDS):
        coming = triggers(model, away, budget, starts)
        run = simulate(model, coming, budget)
        if run is None:
            break
        if best is None or run.seconds < AS_FAST * best[1]:
            best = coming, run.seconds
        starts = run.starts
    return best


@given(networks(layers=14), st.floats(0, 1), st.data())
def test_a_round_that_would_be_the_one_before_is_left_out(network: Network, share: float, data: st.DataObject) -> None:
    model = model_of(network)
    away = data.draw(st.lists(st.sampled_from(model.candidates), unique=True)) if model.candidates else []
    budget = int(model.least() + share * (max(model.base) - model.least()))
    found, expected = scheduled(model, away, budget), all_rounds(model, away, budget)
    assert (found and ([*found[0].items()], found[1].seconds)) == (expected and ([*expected[0].items()], expected[1]))


@pytest.mark.slow
@given(networks(layers=14))
def test_the_least_is_what_a_plan_that_counts_bytes_needs(network: Network) -> None:
    """Everything leaves, the least workspace everywhere, nothing is prefetched."""
    least = model_of(network).least()
    frugal = ACCUDNN.with_modules("least", allocator=FixedAddresses())
    assert Planner(network, frugal, TITAN_X, least).plan().peak_bytes <= least
    with pytest.raises(DoesNotFit):
        Planner(network, frugal, TITAN_X, least - 512).plan()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch", "within"), [("alexnet", 256, 0.025), ("vgg16", 128, 0.005), ("resnet50", 32, 0.04)]
)
def test_its_simulation_is_the_planner_s_clock(name: str, batch: int, within: float) -> None:
    """With fixed addresses no hole is too small, and the bytes of running copies are seldom taken over."""
    network = build(name, batch)
    model = model_of(network)
    off = []
    for share in np.linspace(0.35, 0.9, 8):
        budget = int(model.least() + share * (model.base.max() - model.least()))
        decision = choose(model, budget)
        assert decision is not None
        offload, prefetch, algorithms = modules_of(decision)
        if not decision.coming:
            break
        setup = ACCUDNN.with_modules(
            "this", offload=offload, prefetch=prefetch, algorithms=algorithms, allocator=FixedAddresses()
        )
        try:
            program = plan(network, setup, TITAN_X, budget)
        except DoesNotFit:
            continue
        off.append(abs(decision.seconds / program.planned_seconds - 1))
    assert len(off) >= 5 and max(off) < within and np.median(off) < 0.001


@given(networks(layers=14), st.floats(0, 1))
def test_it_trains_in_the_least_and_in_nothing_less(network: Network, share: float) -> None:
    model = model_of(network, machine(1e9))
    assert choose(model, model.least() - 1) is None
    budget = int(model.least() + share * (model.base.max() - model.least()))
    decision = choose(model, budget)
    assert decision is not None
    assert decision.model.held(list(decision.coming)).max() <= budget
    run = simulate(decision.model, decision.coming, budget)
    assert run is not None and run.seconds == decision.seconds >= 0.999 * model.without_stall
    assert all(one.last_use < step <= one.next_use for one, step in decision.coming.items())


def test_caps_hold_what_is_left_for_a_workspace() -> None:
    network = build("alexnet", 256)
    model = model_of(network)
    caps = caps_within(model, model.candidates, model.least())
    assert caps and model.capped(caps).held(model.candidates).max() <= model.least()
    assert caps_within(model, model.candidates, model.least() - 1) is None
    context = Context(network, TITAN_X, model.least())
    assert offloaded_candidates(context)[1] == []  # nothing is offloaded yet


def test_a_workspace_shrinks_no_further_than_it_has_to() -> None:
    """Step 1 is 5 bytes over: of its workspaces, 8 is too large, and 3 is faster than 1."""
    model = SimpleNamespace(
        held=lambda away: np.array([10, 25]), workspace=np.array([0, 8]), rungs=[[], [(8, 1.0), (3, 2.0), (1, 3.0)]]
    )
    assert caps_within(cast(Model, model), (), 20) == {1: 3}


def test_a_steps_rungs_are_the_fastest_algorithms_within_each_workspace() -> None:
    """Two calls with a choice, one of 2 s without, and 600 bytes of scratch memory; a block is a multiple of 512."""
    offered = {
        "a": [Choice("quick", 5000, 1.0), Choice("slow", 0, 4.0)],
        "b": [Choice("quick", 2000, 1.0), Choice("medium", 900, 2.0)],
    }
    calls = [SimpleNamespace(name=name, choosable=True, collective=False, scratch=0) for name in "ab"]
    calls += [SimpleNamespace(name="c", choosable=False, collective=False, scratch=600)]
    calls += [SimpleNamespace(name="sum", choosable=False, collective=True, scratch=0)]
    on: Any = SimpleNamespace(
        choices=lambda call: offered[call.name], seconds=lambda call: {"c": 2.0, "sum": 50.0}[call.name]
    )
    step: Any = SimpleNamespace(calls=calls)
    assert rungs_of(step, on) == [(5120, 2 + 1 + 1), (2048, 2 + 4 + 1), (1024, 2 + 4 + 2)]
    assert rungs_of(cast(Any, SimpleNamespace(calls=calls[2:])), on) == [(1024, 2.0)]


def test_a_choice_within_a_cap_is_the_fastest_that_is_no_larger() -> None:
    choices = [Choice("quick", 5000, 1.0), Choice("medium", 513, 2.0), Choice("slow", 0, 4.0)]
    assert [space(choice) for choice in choices] == [5120, 1024, 0]
    assert [within(choices, cap) for cap in (None, 5120, 5119, 1024, 1023, 0)] == [
        choices[0], choices[0], choices[1], choices[1], choices[2], choices[2],
    ]  # fmt: skip
    assert within(choices[:1], 0) is None
