"""AccUDNN's modules beside each other and beside any other paper's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names import presets
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import plan
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine

pytestmark = pytest.mark.accudnn

TITAN_X = MACHINES["titan-x"]
GIB = 1 << 30
GUIDED = "liveness=layer-wise offload=accudnn-model prefetch=accudnn-late algorithms=accudnn-capped"
RESERVED = "allocator=fixed-addresses"


def test_the_model_s_choice_is_bound_to_the_budget() -> None:
    network = build("vgg16", 128)
    sent = []
    for gib in (14, 10, 8, 7):
        program = plan(network, presets.setup(f"{GUIDED} {RESERVED}"), TITAN_X, gib * GIB)
        program.verify()
        sent.append(sum(fate.name == "offload" for fate in program.fates.values()))
        assert program.counts.on_demand_bytes == program.counts.skipped_prefetches == 0
    assert sent[0] == 0 < sent[1] and sent == sorted(sent)


SETUPS = st.fixed_dictionaries({
    "recompute": st.sampled_from(("none", "speed-centric", "memory-centric", "cost-aware")),
    "offload": st.sampled_from(("none", "vdnn-all", "superneurons-checkpoints", "accudnn-model", "accudnn-everything")),
    "cache": st.sampled_from(("none", "superneurons-lru")),
    "algorithms": st.sampled_from(("accudnn-capped", "fastest-that-fits")),
    "allocator": st.sampled_from(("best-fit", "both-ends", "block-heap")),
    "pinned": st.sampled_from(("buffer-a-map", "vdnnpp-on-demand")),
})  # fmt: skip


@pytest.mark.slow
@given(networks(layers=12), SETUPS, st.floats(0.5, 1.1))
@settings(max_examples=25)
def test_beside_any_other_module(network: Network, named: dict[str, str], share: float) -> None:
    prefetch = "none" if named["offload"] == "none" else "accudnn-late"
    setup = presets.setup("liveness=layer-wise", named | {"prefetch": prefetch})
    on = machine(1e9)
    whole = plan(network, setup, on, UNLIMITED)
    whole.verify()
    tight = attempt(network, setup, on, int(share * whole.peak_bytes))
    if tight:
        tight.verify()
