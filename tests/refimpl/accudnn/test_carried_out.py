"""AccUDNN's modules beside each other and beside any other paper's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.accudnn.carried_out import offloaded_candidates
from refimpl.accudnn.performance_model import Model
from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.names import presets
from refimpl.names.largest_batch import attempt, unlimited
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import Context, DoesNotFit, Program, plan
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_bytes, machine

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


def test_the_reason_is_in_the_listing() -> None:
    program = plan(build("vgg16", 128), presets.setup(f"{GUIDED} {RESERVED}"), TITAN_X, 8 * GIB)
    reasons = {fate.reason for fate in program.fates.values() if fate.module == "accudnn-model"}
    assert reasons and all(reason.startswith("idle ") for reason in reasons)
    assert any(reason.endswith("its copies hide") for reason in reasons)
    listed = " ".join(program.listing().split())
    assert all(reason in listed for reason in reasons)


def seconds(network: Network, text: str, budget: int) -> float:
    program = plan(network, presets.setup(text), TITAN_X, budget)
    program.verify()
    return program.planned_seconds


@pytest.mark.slow
def test_late_beats_the_other_prefetches_on_the_same_maps() -> None:
    network, budget = build("resnet50", 64), 3 * GIB
    same = f"{GUIDED.replace('accudnn-late', '{}')}".format
    late = seconds(network, same("accudnn-late"), budget)
    for other in ("superneurons-ahead", "vdnn-window", "none"):
        assert late <= seconds(network, same(other), budget) * 1.001, other


@pytest.mark.parametrize("preset", ["vdnn-conv", "vdnn-all", "vdnnpp-conv", "superneurons-offload"])
def test_late_beside_another_paper_s_offload(preset: str) -> None:
    """The same maps leave at the same steps; they are fetched before their steps need them, or are waited for."""
    network = build("vgg16", 64)
    theirs = presets.setup(preset)
    budget = int(1.5 * unlimited(network, theirs, TITAN_X).peak_bytes)
    ours = plan(network, theirs.replace(prefetch=presets.setup(GUIDED).prefetch), TITAN_X, budget)
    ours.verify()
    on_demand = plan(network, theirs.replace(prefetch=presets.setup("baseline").prefetch), TITAN_X, budget)
    assert ours.counts.offloaded_bytes == on_demand.counts.offloaded_bytes
    assert ours.counts.prefetched_bytes > 0
    assert ours.planned_seconds < on_demand.planned_seconds


def test_only_maps_that_leave_have_deadlines() -> None:
    context = Context(build("alexnet", 16), TITAN_X)
    everything = Model.of(context).candidates
    named = {tensor.name: tensor for tensor in context.uses}
    left, kept = everything[1::2], everything[::2]
    context.decide("offload", "another module", {named[one.name]: "drawn" for one in left})
    context.decide("drop", "another module", {named[kept[0].name]: "drawn"})
    _, found = offloaded_candidates(context)
    assert [one.name for one in found] == [one.name for one in left] and len(left) > 2


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
@settings(max_examples=60)
def test_beside_any_other_module(network: Network, named: dict[str, str], share: float) -> None:
    prefetch = "none" if named["offload"] == "none" else "accudnn-late"
    setup = presets.setup("liveness=layer-wise", named | {"prefetch": prefetch})
    on = machine(1e9)
    whole = plan(network, setup, on, UNLIMITED)
    whole.verify()
    tight = attempt(network, setup, on, int(share * whole.peak_bytes))
    if tight:
        tight.verify()


@pytest.mark.slow
def test_a_decision_is_data_and_planned_again_it_is_the_same_program() -> None:
    network = build("resnet50", 32)
    first = plan(network, presets.setup("accudnn"), TITAN_X, 1200 << 20)
    assert isinstance(hash(first.setup), int)
    again = plan(network, first.setup, TITAN_X, 1200 << 20)
    assert [repr(i) for i in first.instructions] == [repr(i) for i in again.instructions]
    assert first.setup.slots == {
        "recompute": "none", "offload": "accudnn-model", "liveness": "layer-wise", "prefetch": "accudnn-late",
        "cache": "none", "algorithms": "accudnn-capped", "allocator": first.setup.slots["allocator"],
        "pinned": "buffer-a-map",
    }  # fmt: skip


def test_a_module_alone_fails_with_one_line_where_the_model_cannot_train() -> None:
    network, setup = build("alexnet", 256), presets.setup(GUIDED)
    with raises_naming(DoesNotFit, 512, "MiB"):
        plan(network, setup, TITAN_X, 512 << 20)
    least = least_bytes(network, setup, TITAN_X)
    program: Program = plan(network, setup, TITAN_X, least)
    program.verify()
