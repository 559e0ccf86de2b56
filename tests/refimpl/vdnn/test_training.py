"""Whatever the network, the policy, the budget and the order: training under vDNN gives the bits of plain training.

Plainly means run without any planning, with the algorithms that the program chose: what a policy decides (what leaves,
when it is fetched, where it is placed) must not show in a single bit.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.backend import CopiesEarly, CopiesLate, Drawn, LegalOrder, ProgramOrder
from refimpl.names import presets
from refimpl.network import Builder, Network, Tensor
from refimpl.planner import CopyIn, CopyOut, Program, Setup
from tests.refimpl.backend.running import MACHINE, differing, plain_training, trainer
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine
from tests.refimpl.plainly import draw_batch

pytestmark = pytest.mark.vdnn

ITERATIONS = 2
SLOW_LINK = machine(1e8)  # a copy takes as long as many steps
WINDOWS = st.sampled_from(("vdnn-window", "vdnn-window-literal"))

static_policies = st.builds(
    lambda preset, algorithms, window: presets.setup(preset, {"algorithms": algorithms, "prefetch": window}),
    st.sampled_from(("vdnn-all", "vdnn-conv")),
    st.sampled_from(("memory", "performance", "vdnn-greedy")),
    WINDOWS,
)
dynamic_policies = st.builds(lambda window: presets.setup("vdnn-dyn", {"prefetch": window}), WINDOWS)

#: Shares above the least budget: nothing to spare, a little, so much that a faster candidate of vdnn-dyn fits.
tightness = st.sampled_from((0.0, 0.1, 0.4, 1.5))
orders: st.SearchStrategy[LegalOrder] = st.one_of(
    st.builds(ProgramOrder), st.builds(CopiesEarly), st.builds(CopiesLate), st.builds(Drawn, st.integers(0, 99))
)


def holds(network: Network, policy: Setup, spare: float, order: LegalOrder, slow: bool) -> Program:
    """Everything that is promised of one program."""
    program = least_plan(network, policy, SLOW_LINK if slow else MACHINE, spare)  # type: ignore[arg-type]
    program.verify()
    what_left_came_back(program)
    with trainer(program, order=order, poison=True) as made:
        pinned = made.device.pinned
        where, nbytes = pinned.ctypes.data, pinned.nbytes
        losses = [made.step(*draw_batch(network, i)) for i in range(ITERATIONS)]
        assert made.device.pinned is pinned and (pinned.ctypes.data, pinned.nbytes) == (where, nbytes)
        assert made.recounted_peak == program.peak_bytes <= program.arena_bytes <= program.budget
        state = made.state()
    expected = plain_training(program, ITERATIONS)
    assert differing(state, expected) == []
    assert losses[-1] == float(np.mean(expected["losses"], dtype=np.float64))
    return program


def what_left_came_back(program: Program) -> None:
    """Counted from the instructions, map by map: out once, in once.  The input batch is never copied out."""
    batch = (program.network.input, program.network.labels)
    out: Counter[Tensor] = Counter()
    back: Counter[Tensor] = Counter()
    for i in program.instructions:
        if isinstance(i, CopyOut) and i.why != "result":
            out[i.tensor] += i.nbytes
        elif isinstance(i, CopyIn) and i.tensor not in batch:
            back[i.tensor] += i.nbytes
    assert out == back == {tensor: tensor.nbytes for tensor in out}
    assert not out.keys() & set(batch)
    assert set(out) == {t for t, fate in program.fates.items() if fate.name == "offload"} - set(batch)
    counts = program.counts
    assert out.total() == counts.offloaded_bytes == counts.prefetched_bytes + counts.on_demand_bytes
    assert counts.evicted_bytes == counts.recomputed_layers == 0


@pytest.mark.slow
@given(networks(layers=10), static_policies, tightness, orders, st.booleans())
@settings(max_examples=30)
def test_what_leaves_changes_no_bit(
    network: Network, policy: Setup, spare: float, order: LegalOrder, slow: bool
) -> None:
    holds(network, policy, spare, order, slow)


@pytest.mark.slow
@given(networks(layers=16), dynamic_policies, tightness, orders, st.booleans())
@settings(max_examples=20)
def test_whatever_the_dynamic_policy_adopts(
    network: Network, policy: Setup, spare: float, order: LegalOrder, slow: bool
) -> None:
    program = holds(network, policy, spare, order, slow)
    assert program.tried[0].fits  # all (m): else there were no program
    adopted = program.setup.name.partition(": ")[2]
    assert adopted in (trial.setup for trial in program.tried if trial.fits)


@pytest.mark.matrix  # `make test` draws deep networks for all papers' modules together: tests/refimpl/backend/
@given(networks(layers=30, side=8), st.one_of(static_policies, dynamic_policies), tightness, orders, st.booleans())
@settings(max_examples=15)
def test_deep_networks_too(network: Network, policy: Setup, spare: float, order: LegalOrder, slow: bool) -> None:
    holds(network, policy, spare, order, slow)


@pytest.mark.slow
def test_all_that_the_dynamic_policy_can_adopt_on_one_network() -> None:
    """From the least budget up: greedy choices first, then everything as fast as it goes; always the same promises."""
    b = Builder("chain", (2, 3, 16, 16))
    for channels in (4, 16, 8):
        b.conv(channels, 3, pad=1)
        b.relu()
    b.pool(2)
    b.conv(16, 3, pad=1)
    b.relu()
    b.fc(3)
    b.softmax()
    network, policy = b.build(), presets.setup("vdnn-dyn")
    programs = [holds(network, policy, spare, CopiesLate(), slow=True) for spare in (0.0, 0.02, 0.1, 0.3, 1.5)]
    adopted = {program.setup.name.partition(": ")[2] for program in programs}
    assert {"conv (greedy)", "none (p)"} <= adopted
    assert programs[-1].counts.offloaded_bytes == 0 < programs[0].counts.offloaded_bytes
