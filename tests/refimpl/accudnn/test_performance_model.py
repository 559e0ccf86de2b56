"""The model against the planner: what it holds, how long it takes, and a quick simulation against the real clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.accudnn import Model, choose, simulate
from refimpl.accudnn.carried_out import modules_of
from refimpl.accudnn.choice import caps_within
from refimpl.accudnn.performance_model import space, within
from refimpl.combined.fixed import FixedAddresses
from refimpl.combined.papers import ACCUDNN
from refimpl.machine import MACHINES, Choice
from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, DoesNotFit, Setup, plan
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


@pytest.mark.slow
def test_its_simulation_is_the_planner_s_clock() -> None:
    """With fixed addresses no hole is too small, and the bytes of running copies are seldom taken over."""
    network = build("alexnet", 256)
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
    assert len(off) >= 5 and max(off) < 0.025 and np.median(off) < 0.001


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


def test_a_workspace_shrinks_no_further_than_it_has_to() -> None:
    """Step 1 is 5 bytes over: of its workspaces, 8 is too large, and 3 is faster than 1."""
    model = SimpleNamespace(
        held=lambda away: np.array([10, 25]), workspace=np.array([0, 8]), rungs=[[], [(8, 1.0), (3, 2.0), (1, 3.0)]]
    )
    assert caps_within(cast(Model, model), (), 20) == {1: 3}


def test_a_choice_within_a_cap_is_the_fastest_that_is_no_larger() -> None:
    choices = [Choice("quick", 5000, 1.0), Choice("medium", 513, 2.0), Choice("slow", 0, 4.0)]
    assert [space(choice) for choice in choices] == [5120, 1024, 0]
    assert [within(choices, cap) for cap in (None, 5120, 5119, 1024, 1023, 0)] == [
        choices[0], choices[0], choices[1], choices[1], choices[2], choices[2],
    ]  # fmt: skip
    assert within(choices[:1], 0) is None
