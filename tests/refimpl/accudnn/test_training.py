"""Whatever the network, the budget and the order: training under AccUDNN gives the bits of plain training."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refimpl.accudnn import Model
from refimpl.backend import CopiesEarly, CopiesLate, Drawn, LegalOrder, ProgramOrder
from refimpl.combined.papers import ACCUDNN
from refimpl.memory import UNLIMITED
from refimpl.network import Network
from refimpl.planner import Context, DoesNotFit, plan
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trainer
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.accudnn

ITERATIONS = 2
SLOW_LINK = machine(1e8)  # a copy takes as long as many steps

orders: st.SearchStrategy[LegalOrder] = st.one_of(
    st.builds(ProgramOrder), st.builds(CopiesEarly), st.builds(CopiesLate), st.builds(Drawn, st.integers(0, 99))
)
shares = st.floats(0, 1)


def trains_to_the_bit(network: Network, share: float, order: LegalOrder, slow: bool) -> bool:
    """A budget between the model's least and what everything holds; whether a program was found."""
    on = SLOW_LINK if slow else MACHINE
    model = Model.of(Context(network, on, UNLIMITED))
    budget = int(model.least() + share * (model.base.max() - model.least()))
    try:
        program = plan(network, ACCUDNN, on, budget)
    except DoesNotFit:
        return False
    program.verify()
    with trainer(program, order=order, poison=True) as made:
        losses = [made.step(*draw_batch(network, i)) for i in range(ITERATIONS)]
        assert made.recounted_peak == program.peak_bytes <= program.arena_bytes <= budget
        state = made.state()
    expected = plain_training(program, ITERATIONS)
    assert differing(state, expected) == []
    assert losses[-1] == float(np.mean(expected["losses"], dtype=np.float64))
    return True


@pytest.mark.slow
@given(networks(layers=12), shares, orders, st.booleans())
@settings(max_examples=20)
def test_what_the_model_chooses_changes_no_bit(network: Network, share: float, order: LegalOrder, slow: bool) -> None:
    trains_to_the_bit(network, share, order, slow)


@pytest.mark.campaign
@given(networks(layers=24, side=8), shares, orders, st.booleans())
@settings(max_examples=300)
def test_three_hundred_networks_and_budgets(network: Network, share: float, order: LegalOrder, slow: bool) -> None:
    """A network that does not fit is not counted."""
    assume(trains_to_the_bit(network, share, order, slow))
