"""Recomputation: segments, what runs again at which backward step, what is on the device then, and the state.

The plans of this file are watched: the mover notes which managed tensors are on the device at each launch.  The bound
that cost-aware recomputation keeps is l_peak: what a backward step has for itself (what it uses, its checkpoint and
what is kept of the segment it reads from) takes no more under memory-centric and cost-aware.  On top comes what waits
for other steps: checkpoints that stay, gradients of other branches and, where segments branch, what was rebuilt for
another branch.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.names.networks import build
from refimpl.network import SUPERNEURONS, VDNN, Builder, Conventions, Layer, Network, Step, Tensor
from refimpl.planner import Context, Program, Setup
from refimpl.planner.mover import Mover, Workspace
from refimpl.superneurons import (
    ALL_CHECKPOINTS,
    COST_AWARE,
    MEMORY_CENTRIC,
    SPEED_CENTRIC,
    RecomputeSegments,
)
from refimpl.superneurons import presets as stages
from refimpl.superneurons.recompute import BoundSegments
from refimpl.superneurons.segments import CHEAP, Segmentation, segments
from tests.matrix import some
from tests.refimpl.backend.running import differing, plain_training, trained
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine, planner

pytestmark = pytest.mark.superneurons

MIB = 2**20
PLENTY = 64 << 30
MACHINE = machine()
STRATEGIES = (SPEED_CENTRIC, MEMORY_CENTRIC, COST_AWARE)

# -- a plan that is watched --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """`layer`'s calls go to the device in `step`; what a rebuild runs is not the step's own layer's."""

    step: Step
    layer: Layer
    rebuild: bool
    alive: frozenset[Tensor]


class Watching(Mover):
    """Notes which managed tensors are on the device whenever a step runs, or runs again."""

    runs: list[Run]

    def launch(self, step: Step, workspace: Workspace, rebuild: bool = False) -> None:
        assert self.order.step is not None
        alive = frozenset(t for t in self.memory.managed() if t.kind != "workspace")
        self.runs.append(Run(self.order.step, step.layer, rebuild, alive))
        super().launch(step, workspace, rebuild)


class Watched:
    """A program that was planned and verified, and what was on the device at each launch."""

    def __init__(self, network: Network, setup: Setup, budget: int = PLENTY, **given: Any) -> None:
        planning = planner(network, setup, given.get("machine", MACHINE), budget, Watching)
        self.runs: list[Run] = []
        planning.mover.runs = self.runs  # type: ignore[attr-defined]
        self.recompute, self.context = planning.mover.recompute, planning.context
        self.program: Program = planning.plan()
        self.program.verify()

    @property
    def again(self) -> dict[str, list[str]]:
        """Layer whose backward step rebuilds → the layers that run again in it, in order."""
        found: dict[str, list[str]] = {}
        for run in self.runs:
            if run.rebuild:
                found.setdefault(run.step.layer.name, []).append(run.layer.name)
        return found

    def alive(self, layer: str) -> set[str]:
        """What is on the device when a layer's backward runs, by name."""
        (run,) = (r for r in self.runs if not r.rebuild and not r.step.forward and r.layer.name == layer)
        return {tensor.name for tensor in run.alive}

    @property
    def segmentation(self) -> Segmentation:
        assert isinstance(self.recompute, BoundSegments)
        return self.recompute.segmentation

    def segment_maps(self, layer: Layer) -> set[Tensor]:
        """All outputs of the segment that a layer belongs to or reads from; empty without a segment."""
        near = (s for s in self.segmentation.segments if layer in s.layers or layer.producers[0] in s.layers)
        return {y for segment in near for inside in segment.layers for y in inside.outputs}


def nbytes(tensors: set[Tensor] | frozenset[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors if tensor.managed)


def watched(network: Network, how: RecomputeSegments, offload: object = None) -> Watched:
    setup = stages.recompute(how)
    return Watched(network, setup.replace(offload=offload) if offload else setup)


def segmentation(network: Network, how: RecomputeSegments = COST_AWARE) -> Segmentation:
    return how.bind(Context(network, MACHINE)).segmentation


def chain(*kinds: str, conventions: Conventions = SUPERNEURONS) -> Network:
    """Of 4×8² maps, 1 KiB an image and one image; a pooling halves the sides.  Layers are named after their kinds."""
    b = Builder("chain", (1, 1, 8, 8), conventions)
    for kind in kinds:
        if kind == "conv":
            b.conv(4, 1, bias=False)
        elif kind == "pool":
            b.pool(2)
        else:
            getattr(b, kind)()
    b.fc(3)
    b.softmax()
    return b.build()


# -- segments ----------------------------------------------------------------------------------------------------------


def test_a_map_before_a_cheap_join_is_rebuilt_from_its_own_checkpoint() -> None:
    """The other side's checkpoint is not kept for it."""
    network = joined()
    bound = dataclasses.replace(MEMORY_CENTRIC, cheap=(*CHEAP, "join")).bind(Context(network, MACHINE))
    reasons = {tensor.name: why for tensor, why in bound.drops().items()}
    assert reasons["right"] == "its layer can run again from second"
    assert reasons["relu"] == "its layer can run again from first and second"
    steps = {tensor.name: numbers for tensor, numbers in bound.sources().items()}
    last = next(step.number for step in network.steps if step.layer.name == "right" and not step.forward)
    assert last in steps["second"] and last not in steps["first"]


def joined() -> Network:
    b = Builder("joined", (2, 1, 4, 4), SUPERNEURONS)
    b.conv(2, 1, name="first")
    left = b.dropout(name="left")
    b.conv(2, 1, name="second", after=b.input)
    right = b.lrn(name="right")
    b.join(left, right, name="join")
    b.batchnorm(name="norm")
    b.relu(name="relu")
    b.conv(2, 1, name="third")
    b.fc(2)
    b.softmax()
    return b.build()


def maximal_runs(network: Network) -> set[frozenset[Layer]]:
    """The definition as a twin: cheap layers that are connected through nothing but cheap layers."""
    groups: dict[Layer, set[Layer]] = {}
    for layer in network.layers:
        if layer.traits.work == "pass":
            together = {layer}.union(*(groups.get(producer, ()) for producer in layer.producers))
            groups |= dict.fromkeys(together, together)
    return {frozenset(group) for group in groups.values()}


@given(networks())
def test_segments_are_the_maximal_runs_of_cheap_layers(network: Network) -> None:
    found = segments(network.layers)
    assert {frozenset(segment.layers) for segment in found.values()} == maximal_runs(network)
    for segment in found.values():
        read = [pair for layer in segment.layers for pair in zip(layer.producers, layer.inputs, strict=True)]
        assert {*segment.checkpoints} == {x for producer, x in read if producer not in found}
        assert len({*segment.checkpoints}) == len(segment.checkpoints)


# -- what is dropped, and how long the source lives --------------------------------------------------------------------


@pytest.mark.parametrize("how", STRATEGIES, ids=lambda how: how.name)
def test_the_source_lives_until_the_last_step_that_rebuilds_from_it(how: RecomputeSegments) -> None:
    """No backward step reads conv1's map itself: without the rebuild it would go in forward."""
    plan = watched(chain("conv", "dropout", "conv"), how)
    assert plan.again == {"conv2": ["dropout1"]}
    assert plan.alive("conv2") == {"conv1", "dropout1", "d(conv2)", "d(dropout1)"}
    assert plan.alive("dropout1") == {"d(dropout1)", "d(conv1)"}


@pytest.mark.parametrize("how", STRATEGIES, ids=lambda how: how.name)
@pytest.mark.parametrize("kind", some(["upsample", "batchnorm", "gelu"], "upsample"))
def test_what_a_loss_overwrites_is_no_map_of_a_segment(how: RecomputeSegments, kind: str) -> None:
    """Logits of a cheap layer, as a segmentation network's enlarged maps: no cheap layer makes probabilities again."""
    b = Builder("enlarged", (2, 3, 4, 4), VDNN)
    b.conv(4, 3, pad=1)
    b.lrn(3)
    b.conv(5, 1)
    b.gelu()
    logits = getattr(b, kind)(*((2,) if kind == "upsample" else ()))
    b.pixel_softmax()
    plan = watched(b.build(), how)
    assert plan.again and not any(logits.name in names for names in plan.again.values())
    _, state = trained(plan.program, 2, poison=True)
    assert differing(state, plain_training(plan.program, 2)) == []


# -- the three strategies on one small network, by hand ----------------------------------------------------------------

#: conv1, relu1, lrn1 write 1024 bytes, pool1, conv2 and relu2 256, pool2 64, fc1 and softmax1 12.
TWO_SEGMENTS = ("conv", "relu", "lrn", "pool", "conv", "relu", "pool")


def test_cost_aware_keeps_the_segment_that_fits_the_memory_centric_peak() -> None:
    plan = watched(chain(*TWO_SEGMENTS), COST_AWARE)
    first, second = plan.segmentation.segments
    assert plan.segmentation.l_peak() == 4 * 1024  # lrn1: x, y, dy and conv1
    # At pool1 the whole first segment is there, 1024 + 1024 + 256, with dy, dx and conv1.
    assert plan.segmentation.weight(first) == 2304 + 256 + 1024 + 1024 > 4096
    # At pool2: 256 + 64, dy and dx of the same sizes, conv2; at fc1 dy has 12 bytes, but dx only 64.
    assert plan.segmentation.weight(second) == (256 + 64) + (64 + 256) + 256 <= 4096
    assert (first.keeps, second.keeps) == (False, True)
    assert plan.again == {
        "fc1": ["relu2", "pool2"],
        "conv2": ["relu1", "lrn1", "pool1"],
        "pool1": ["relu1", "lrn1"],
        "lrn1": ["relu1"],
    }
    assert plan.program.counts.recomputed_layers == 8
    assert plan.alive("fc1") == {"conv1", "conv2", "relu2", "pool2", "softmax1", "d(pool2)"}
    assert plan.alive("conv2") == {"conv1", "pool1", "d(relu2)", "d(pool1)"}


# -- what is published -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "runs", "mib"), [(SPEED_CENTRIC, 14, 993.018), (MEMORY_CENTRIC, 23, 886.230), (COST_AWARE, 17, 886.230)]
)
def test_alexnet(how: RecomputeSegments, runs: int, mib: float) -> None:
    """Extra forward runs and peak of AlexNet, batch 200, as printed; no moment inside a step is higher either."""
    program = watched(build("alexnet:superneurons", 200), how).program
    assert program.counts.recomputed_layers == runs
    assert program.peak.live_bytes / MIB == pytest.approx(mib, abs=0.001)
    assert max(row.transient_bytes for row in program.rows) == program.peak.live_bytes


# -- the bound ---------------------------------------------------------------------------------------------------------


#: With fork layers, as the paper builds its networks and otherwise: no segment branches.
FORKED = st.one_of(
    networks(layers=14, conventions=SUPERNEURONS),
    networks(layers=14, conventions=Conventions(fork_layers=True, input_gradient=True)),
)
OFFLOADS = st.sampled_from((None, ALL_CHECKPOINTS))


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


@pytest.mark.slow
@given(networks(layers=14), OFFLOADS)
@settings(max_examples=12)
def test_what_a_step_has_for_itself_is_within_l_peak(network: Network, offload: object) -> None:
    """The bound of memory-centric and cost-aware, on any network, and how often each strategy runs layers again."""
    runs = []
    for how in STRATEGIES:
        plan = watched(network, how, offload)
        runs.append(plan.program.counts.recomputed_layers)
        if how is not SPEED_CENTRIC:
            for run in backward_runs(plan):
                assert nbytes(run.alive & own(plan, run)) <= plan.segmentation.l_peak(), run.step
    speed, memory, cost = runs
    assert speed <= cost <= memory


@pytest.mark.slow
@given(FORKED, OFFLOADS)
@settings(max_examples=12)
def test_with_fork_layers_only_checkpoints_and_gradients_come_on_top(network: Network, offload: object) -> None:
    """No segment branches, and its backward steps follow each other: only the running segment is rebuilt.

    While it is, there is only what the step reads and what the layer at work does: never the step's own gradients and,
    of a segment that does not keep, nothing that was made before but its x.
    """
    for how in STRATEGIES:
        plan = watched(network, how, offload)
        rebuilt = set(plan.segmentation.dropped)
        for run in plan.runs:
            if run.rebuild:
                cheap = run.alive & rebuilt
                assert run.alive.isdisjoint(run.step.writes) and cheap <= plan.segment_maps(run.layer)
                others = cheap - {*run.step.uses, *run.layer.forward.uses}
                assert all(plan.segmentation.dropped[t].keeps for t in others)
        if how is SPEED_CENTRIC:
            assert max(Counter(name for names in plan.again.values() for name in names).values(), default=0) <= 1
            continue
        for run in backward_runs(plan):
            its = {*run.step.uses, *plan.segmentation.nearest(run.layer), *plan.segment_maps(run.layer)}
            assert nbytes(run.alive & its) <= plan.segmentation.l_peak(), run.step
            assert (run.alive - its).isdisjoint(rebuilt)
