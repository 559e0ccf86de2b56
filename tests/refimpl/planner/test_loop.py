"""The loop on drawn networks: its plans are proved, its clock is the simulator's, and what does not fit says where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.machine import Tier
from refimpl.memory import UNLIMITED
from refimpl.memory.tiers import pinned_size
from refimpl.names.networks import build, lenet
from refimpl.network import Network
from refimpl.planner import Context, DoesNotFit, Setup, plan
from refimpl.slots.baseline import NetworkWide
from tests.messages import raises_naming
from tests.refimpl.modules import least_plan, machine, networks, setup, setups

# -- what must always hold ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(networks(), setups, st.sampled_from((1e6, 1e8, 1e12)), st.floats(0, 1))
@settings(max_examples=30)
def test_planning_and_simulating_keep_the_same_time(network: Network, wanted: Setup, link: float, room: float) -> None:
    program = least_plan(network, wanted, machine(link), room)
    assert program.simulate().seconds == pytest.approx(program.planned_seconds, abs=1e-12)
    assert program.verify().peak_bytes == program.peak_bytes <= program.budget


# -- when it does not fit ----------------------------------------------------------------------------------------------


def test_what_does_not_fit_says_where_and_what_is_in_the_way() -> None:
    network = build("vgg16", 256)
    with pytest.raises(DoesNotFit) as caught:
        plan(network, setup(liveness=NetworkWide()), machine(), 12 << 30)
    error, text = caught.value, str(caught.value)
    assert error.step is not None and str(error.step) in text
    assert "does not fit in 12 GiB" in text and "the largest hole is" in text
    assert "of maps" in text and "of resident tensors" in text and "\n" not in text
    assert error.asked > error.largest_hole and error.free >= error.largest_hole
    assert sum(error.alive.values()) + error.free == pytest.approx(12 << 30, abs=512)


def test_the_hosts_memory_holds_the_batch_and_the_results_first() -> None:
    network = lenet(4)
    fixed = sum(pinned_size(nbytes) for nbytes in (4 * 4 * 28 * 28, 4 * 4, 4 * 4))  # images, labels, losses
    left = Context(network, machine().with_tiers([Tier("host", fixed + 7)]))
    assert left.tiers == {"host": 7} and left.budget == machine().memory_bytes
    with raises_naming(DoesNotFit, "the batch and the results", "host"):
        Context(network, machine().with_tiers([Tier("host", fixed - 1)]))
    unlimited_tier = Context(network, machine(), 77)
    assert unlimited_tier.tiers["host"] == UNLIMITED and unlimited_tier.budget == 77
