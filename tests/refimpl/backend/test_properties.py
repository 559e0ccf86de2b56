"""Whatever network, set-up, budget and order: training gives the same bits as a plain run, without any planning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refimpl.backend import CopiesEarly, CopiesLate, Drawn, LegalOrder, ProgramOrder
from refimpl.machine import Machine
from refimpl.network import Network
from refimpl.planner import Setup
from tests.refimpl.backend.running import MACHINE, chosen, differing, plain_training, trained, trainer
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine, setups
from tests.refimpl.plainly import SETTINGS, draw_batch, new_state, run_plainly

orders: st.SearchStrategy[LegalOrder] = st.one_of(
    st.builds(ProgramOrder), st.builds(CopiesEarly), st.builds(CopiesLate), st.builds(Drawn, st.integers(0, 99))
)
SLOW_LINK = machine(1e8)  # a copy takes as long as many steps
ITERATIONS = 2


def holds(network: Network, wanted: Setup, tightness: float, order: LegalOrder, slow: bool) -> None:
    program = least_plan(network, wanted, SLOW_LINK if slow else MACHINE, tightness)
    expected = plain_training(program, ITERATIONS)
    assume(np.isfinite(expected["losses"]).all())  # else the network diverges, and the trainer stops
    with trainer(program, order=order, poison=True) as made:
        losses = [made.step(*draw_batch(network, i)) for i in range(ITERATIONS)]
        state = made.state()
        assert made.recounted_peak == program.peak_bytes <= program.budget
    assert differing(state, expected) == []
    assert losses[-1] == float(np.mean(expected["losses"], dtype=np.float64))


@pytest.mark.slow
@given(networks(layers=12), setups, st.sampled_from((0.0, 0.3)), orders, st.booleans())
@settings(max_examples=12)
def test_training_comes_to_the_same_bits(
    network: Network, wanted: Setup, tightness: float, order: LegalOrder, slow: bool
) -> None:
    holds(network, wanted, tightness, order, slow)


@given(networks(layers=8), setups, orders)
@settings(max_examples=10)
def test_training_agrees_with_pytorch(torch: Any, network: Network, wanted: Setup, order: LegalOrder) -> None:
    from tests.refimpl.by_torch import run_torch

    program = least_plan(network, wanted, MACHINE)
    theirs: dict[str, np.ndarray] = {}
    for i in range(ITERATIONS):
        theirs |= run_torch(network, new_state(network) | theirs, *draw_batch(network, i), {**SETTINGS, "iteration": i})
    _, ours = trained(program, ITERATIONS, order=order, poison=True)
    for name in theirs.keys() - {"losses"}:  # weights, momentum and running statistics
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-4, err_msg=name)


def evaluates(network: Network, wanted: Setup, tightness: float, order: LegalOrder, on: Machine = MACHINE) -> None:
    """After an iteration of training, in the same arena; and training goes on as if nothing had been."""
    program = least_plan(network, wanted, on, tightness)
    with trainer(program, order=order, poison=True) as made:
        if made.inference is None:
            return  # forward alone does not fit where rebuilding made room
        made.step(*draw_batch(network, 0))
        images, labels = draw_batch(network, 7)
        evaluation = made.evaluate(images, labels)
        state = plain_training(program, 1)
        forward = made.inference
        run_plainly(forward.network, state, images, labels, SETTINGS, chosen(forward))
        assert evaluation.predictions.tobytes() == state["predictions"].tobytes()
        assert evaluation.loss == float(np.mean(state["losses"], dtype=np.float64))
        assert evaluation.accuracy == np.mean(state["predictions"].argmax(1) == labels)
        made.step(*draw_batch(network, 1))
        assert differing(made.state(), plain_training(program, 2)) == []


@pytest.mark.slow
@given(networks(layers=10), setups, orders)
@settings(max_examples=10)
def test_evaluating_gives_what_the_plain_network_gives(network: Network, wanted: Setup, order: LegalOrder) -> None:
    evaluates(network, wanted, 0.5, order)
