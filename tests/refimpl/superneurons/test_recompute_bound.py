"""What bounds cost-aware recomputation, and what does not.

A backward step's own memory, that is what it uses, its checkpoint and what is kept of the segment it reads from, is
within l_peak under memory-centric and cost-aware.  On top comes what waits for other steps: checkpoints that stay,
gradients of other branches and, where segments branch, what was rebuilt for another branch.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.network import SUPERNEURONS, Builder, Conventions, Layer, Network, Tensor
from refimpl.network.zoo import build
from refimpl.superneurons import ALL_CHECKPOINTS, COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC, Recompute
from refimpl.superneurons.segments import Segment, Segmentation
from tests.refimpl.drawn_networks import networks
from tests.refimpl.superneurons.watching import KINDS, STRATEGIES, Run, Watched, chain, nbytes, segmentation, watched

pytestmark = pytest.mark.superneurons

MIB = 2**20

#: With fork layers, as the paper builds its networks and otherwise: no segment branches.
FORKED = st.one_of(
    networks(layers=14, kinds=KINDS, conventions=SUPERNEURONS),
    networks(layers=14, kinds=KINDS, conventions=Conventions(fork_layers=True, input_gradient=True)),
)


@st.composite
def chains(draw: Any) -> Network:
    b = Builder("drawn", (2, draw(st.integers(1, 3)), 8, 8), SUPERNEURONS)
    for kind in draw(
        st.lists(st.sampled_from(("conv", "relu", "pool", "lrn", "batchnorm", "dropout")), min_size=1, max_size=14)
    ):
        if kind == "conv":
            b.conv(draw(st.integers(1, 8)), 1)
        elif kind == "pool":
            b.pool(min(2, *b.last.shape[2:]), draw(st.integers(1, 2)), ceil=True)
        else:
            getattr(b, kind)()
    b.fc(3)
    b.softmax()
    return b.build()


# -- the rule ----------------------------------------------------------------------------------------------------------

PAPERS = ("alexnet", "vgg16", "vgg19", "inceptionv4", "resnet50", "resnet101", "resnet152")


def as_printed(found: Segmentation, with_checkpoint: bool) -> dict[Segment, bool]:
    """The paper's rule: a segment's outputs and the backward of its last layer, against the heaviest layer's backward.

    The printed one leaves the checkpoints out.
    """

    def weight(segment: Segment) -> int:
        made = {y for layer in segment.layers for y in layer.outputs}
        return nbytes({*made, *segment.layers[-1].backward.uses, *(segment.checkpoints if with_checkpoint else [])})

    def of_one(layer: Layer) -> int:
        return nbytes({*layer.backward.uses, *(found.nearest(layer) if with_checkpoint else [])})

    l_peak = max(of_one(step.layer) for step in found.backward)
    return {segment: weight(segment) <= l_peak for segment in found.segments}


@pytest.mark.parametrize("name", PAPERS)
def test_on_the_papers_networks_the_rule_as_printed_chooses_the_same(name: str) -> None:
    """For every segment that drops anything: ResNet's batch normalisations in front of a join do not."""
    chosen = segmentation(build(f"{name}:superneurons"))
    dropping = [segment for segment in chosen.segments if segment in chosen.dropped.values()]
    for with_checkpoint in (True, False):
        printed = as_printed(chosen, with_checkpoint)
        assert [segment.keeps for segment in dropping] == [printed[segment] for segment in dropping]


def test_a_layer_that_reads_the_segment_counts_too() -> None:
    """As printed the segment takes 4096 bytes, at relu1, and fits; at conv2's step it takes 5120.

    relu1: batchnorm1, relu1, dy in place and conv1.  conv2: these three maps, dy and dx.
    """
    network = chain("conv", "batchnorm", "relu", "conv")
    chosen = segmentation(network)
    (segment,) = chosen.segments
    assert chosen.l_peak() == 4096 and as_printed(chosen, with_checkpoint=True) == {segment: True}
    assert chosen.weight(segment) == 5120 and not segment.keeps
    assert watched(network, SPEED_CENTRIC).program.peak.live_bytes == 5120
    assert watched(network, COST_AWARE).program.peak.live_bytes == 4096


# -- the bound ---------------------------------------------------------------------------------------------------------


def own(plan: Watched, run: Run) -> set[Tensor]:
    """What a backward step may have on the device for itself.

    What it uses, the checkpoint it rebuilds from and, of a segment that keeps, everything, if it reads from it.
    """
    found = {*run.step.uses, *plan.segmentation.nearest(run.layer)}
    for segment in {plan.segmentation.dropped[t] for t in run.step.uses if t in plan.segmentation.dropped}:
        if segment.keeps:
            found.update(t for t, its in plan.segmentation.dropped.items() if its is segment)
    return found


def backward_runs(plan: Watched) -> list[Run]:
    return [run for run in plan.runs if not run.step.forward and not run.rebuild]


OFFLOADS = st.sampled_from((None, ALL_CHECKPOINTS))
BOUNDED = st.sampled_from((MEMORY_CENTRIC, COST_AWARE))


@given(networks(layers=14, kinds=KINDS), BOUNDED, OFFLOADS)
@settings(max_examples=60)
def test_what_a_step_has_for_itself_is_within_l_peak(network: Network, how: Recompute, offload: object) -> None:
    """The bound of memory-centric and cost-aware, on any network: l_peak, and on top what waits for other steps."""
    plan = watched(network, how, offload)
    for run in backward_runs(plan):
        assert nbytes(run.alive & own(plan, run)) <= plan.segmentation.l_peak(), run.step


@given(FORKED, BOUNDED, OFFLOADS)
@settings(max_examples=60)
def test_with_fork_layers_only_checkpoints_and_gradients_come_on_top(
    network: Network, how: Recompute, offload: object
) -> None:
    """No segment branches, and its backward steps follow each other: what is rebuilt is the running segment's alone."""
    plan = watched(network, how, offload)
    rebuilt = set(plan.segmentation.dropped)
    for run in backward_runs(plan):
        its = {*run.step.uses, *plan.segmentation.nearest(run.layer), *plan.segment_maps(run.layer)}
        assert nbytes(run.alive & its) <= plan.segmentation.l_peak(), run.step
        assert (run.alive - its).isdisjoint(rebuilt)


@given(chains(), BOUNDED)
@settings(max_examples=40)
def test_on_a_chain_whose_checkpoints_leave_nothing_comes_on_top(network: Network, how: Recompute) -> None:
    """There l_peak bounds the whole iteration."""
    plan = watched(network, how, ALL_CHECKPOINTS)
    assert plan.program.peak.live_bytes <= plan.segmentation.l_peak()


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet50"])
def test_on_the_papers_networks_the_bound_is_met_exactly(name: str) -> None:
    for how in (MEMORY_CENTRIC, COST_AWARE):
        plan = watched(build(f"{name}:superneurons"), how, ALL_CHECKPOINTS)
        assert plan.program.peak.live_bytes == plan.segmentation.l_peak()


def test_checkpoints_that_stay_come_on_top_of_l_peak() -> None:
    """ResNet-50, 32 images: 406.125 MiB for the heaviest step, and 2876.7 in all (calculated)."""
    plan = watched(build("resnet50:superneurons", 32), COST_AWARE)
    assert plan.segmentation.l_peak() / MIB == 406.125
    assert plan.program.peak.live_bytes / MIB == pytest.approx(2876.7, abs=0.05)


# -- how often ---------------------------------------------------------------------------------------------------------


@given(networks(layers=14, kinds=KINDS), OFFLOADS)
@settings(max_examples=25)
def test_cost_aware_recomputes_no_more_than_memory_centric_nor_less_than_speed_centric(
    network: Network, offload: object
) -> None:
    speed, memory, cost = (watched(network, how, offload).program.counts.recomputed_layers for how in STRATEGIES)
    assert speed <= cost <= memory


@given(FORKED)
def test_speed_centric_runs_no_layer_more_than_once_again(network: Network) -> None:
    again = watched(network, SPEED_CENTRIC).again
    assert max(Counter(name for names in again.values() for name in names).values(), default=0) <= 1


def test_memory_centric_runs_a_segment_of_n_layers_n_times_n_plus_1_halves() -> None:
    for n in (1, 2, 5):
        plan = watched(chain("conv", *["relu"] * n, "conv"), MEMORY_CENTRIC)
        assert plan.program.counts.recomputed_layers == n * (n + 1) // 2


@given(FORKED, st.sampled_from(STRATEGIES))
@settings(max_examples=60)
def test_while_rebuilding_there_is_only_what_the_step_reads_and_what_the_layer_at_work_does(
    network: Network, how: Recompute
) -> None:
    """Never the step's own gradients; of a segment that does not keep, nothing that was made before but its x."""
    plan = watched(network, how)
    for run in (run for run in plan.runs if run.rebuild):
        assert run.alive.isdisjoint(run.step.writes)
        cheap = {t for t in run.alive if t in plan.segmentation.dropped}
        assert cheap <= plan.segment_maps(run.layer)
        for t in cheap - {*run.step.uses, *run.layer.forward.uses}:
            assert plan.segmentation.dropped[t].keeps
