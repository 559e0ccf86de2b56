"""Cost-aware recomputation: segments, what runs again at which backward step, what is alive then, and the state."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl import vdnn
from refimpl.cli import main
from refimpl.network import SUPERNEURONS, VDNN, Builder, Conventions, Layer, Network
from refimpl.network.zoo import build
from refimpl.planner import CopyOut, Launch, PlanContext, plan
from refimpl.planner.baseline import NoOffload, NoPrefetch
from refimpl.superneurons import (
    ALL_CHECKPOINTS,
    CHECKPOINTS,
    COST_AWARE,
    MEMORY_CENTRIC,
    SPEED_CENTRIC,
    Ahead,
    LeastRecentlyUsed,
    Recompute,
)
from refimpl.superneurons import presets as stages
from refimpl.superneurons.recompute import BoundRecompute
from refimpl.superneurons.segments import CHEAP, Segment, segments
from tests.refimpl.backend.running import differing, plain_training, trained
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine
from tests.refimpl.superneurons.watching import KINDS, MACHINE, PLENTY, STRATEGIES, chain, segmentation, watched

pytestmark = pytest.mark.superneurons

MIB = 2**20

# -- segments ----------------------------------------------------------------------------------------------------------


def spelled(found: list[Segment]) -> list[tuple[str, list[str]]]:
    return [
        (" ".join(x.name for x in segment.checkpoints), [layer.name for layer in segment.layers]) for segment in found
    ]


def test_the_segments_of_alexnet() -> None:
    assert spelled(segmentation(build("alexnet:superneurons", 2)).segments) == [
        ("CONV1", ["RELU1", "LRN1", "POOL1"]),
        ("CONV2", ["RELU2", "LRN2", "POOL2"]),
        ("CONV3", ["RELU3"]),
        ("CONV4", ["RELU4"]),
        ("CONV5", ["RELU5", "POOL5"]),
        ("FC1", ["RELU6", "DROP1"]),
        ("FC2", ["RELU7", "DROP2"]),
    ]


def test_a_fork_a_join_and_the_data_are_checkpoints_too() -> None:
    b = Builder("forked", (1, 1, 4, 4), SUPERNEURONS)
    trunk = b.batchnorm(name="first")
    left = b.relu(name="left")
    right = b.dropout(name="right", after=trunk)
    b.join(left, right, name="join")
    b.relu(name="behind")
    b.fc(2)
    b.softmax()
    assert spelled(segmentation(b.build()).segments) == [
        ("input", ["first"]),
        ("first.fork.1", ["left"]),
        ("first.fork.2", ["right"]),
        ("join", ["behind"]),
    ]


def test_without_fork_layers_a_segment_branches() -> None:
    b = Builder("branching", (1, 1, 4, 4), VDNN)
    b.conv(2, 1, name="conv")
    trunk = b.batchnorm(name="norm")
    left = b.relu(name="left")
    b.conv(2, 1, name="other", after=trunk)
    right = b.dropout(name="right")
    b.concat(left, right)
    b.fc(2)
    b.softmax()
    assert spelled(segmentation(b.build()).segments) == [("conv", ["norm", "left"]), ("other", ["right"])]


def test_a_cheap_join_makes_one_segment_of_those_that_it_joins() -> None:
    """And its map is rebuilt from both sides, each map freed after its last reader."""
    network = joined()
    rebuilt = dataclasses.replace(MEMORY_CENTRIC, cheap=(*CHEAP, "join"))
    assert spelled(segmentation(network, rebuilt).segments) == [
        ("first second", ["left", "right", "join", "norm", "relu"]),
    ]  # fmt: skip
    plan = watched(network, rebuilt)
    assert plan.again["third"] == ["left", "right", "join", "norm", "relu"]
    assert plan.again["norm"] == ["left", "right", "join"]
    alive = {"input.fork.1", "input.fork.2", "first", "second", "relu", "d(third)", "d(relu)"}
    assert plan.alive("third") == alive, "what was rebuilt on the way is freed"


@pytest.mark.parametrize("how", STRATEGIES, ids=lambda how: how.name)
@pytest.mark.parametrize("structure", [("join",), ("join", "concat"), ("join", "concat", "fork")], ids="+".join)
def test_any_cheap_layer_with_several_producers_is_rebuilt(how: Recompute, structure: tuple[str, ...]) -> None:
    for network in (joined(), build("tiny-resnet:superneurons", 2), build("tiny-inception:superneurons", 2)):
        program = watched(network, dataclasses.replace(how, cheap=CHEAP + structure)).program
        _, state = trained(program, 2, poison=True)
        assert differing(state, plain_training(program, 2)) == []


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
        if layer.kind in ("pool", "relu", "lrn", "batchnorm", "dropout"):
            groups[layer] = {layer}
            if layer.producers[0] in groups:
                groups[layer] = groups[layer.producers[0]]
                groups[layer].add(layer)
    return {frozenset(group) for group in groups.values()}


@given(networks(kinds=KINDS))
def test_segments_are_the_maximal_runs_of_cheap_layers(network: Network) -> None:
    found = segments(network.layers)
    assert {frozenset(segment.layers) for segment in found.values()} == maximal_runs(network)
    for segment in found.values():
        heads = [layer for layer in segment.layers if layer.producers[0] not in found]
        assert [layer.x for layer in heads] == segment.checkpoints


# -- what is dropped, and how long the source lives --------------------------------------------------------------------


def test_dropped_is_what_cheap_layers_put_out_and_backward_reads_behind_its_last_forward_use() -> None:
    network = chain("conv", "batchnorm", "dropout", "relu", "conv")
    plan = watched(network, COST_AWARE)
    # batchnorm1 feeds a dropout, whose backward reads dy alone: nobody rebuilds it for its own sake.
    assert {t.name for t, fate in plan.program.fates.items() if fate.name == "drop"} == {"dropout1", "relu1"}
    forward = [{t.name for t in run.alive if t.kind == "map"} for run in plan.runs if run.step.forward]
    assert forward[:6] == [
        {"conv1"},
        {"conv1", "batchnorm1"},
        {"conv1", "batchnorm1", "dropout1"},
        {"conv1", "dropout1", "relu1"},
        {"conv1", "relu1", "conv2"},
        {"conv1", "conv2", "fc1"},
    ]


@pytest.mark.parametrize("how", STRATEGIES, ids=lambda how: how.name)
def test_the_source_lives_until_the_last_step_that_rebuilds_from_it(how: Recompute) -> None:
    """No backward step reads conv1's map itself: without the rebuild it would go in forward."""
    plan = watched(chain("conv", "dropout", "conv"), how)
    assert plan.again == {"conv2": ["dropout1"]}
    assert plan.alive("conv2") == {"conv1", "dropout1", "d(conv2)", "d(dropout1)"}
    assert plan.alive("dropout1") == {"d(dropout1)", "d(conv1)"}


def test_a_source_that_only_rebuilds_read_can_leave() -> None:
    plan = watched(chain("conv", "dropout", "conv"), COST_AWARE, ALL_CHECKPOINTS)
    assert plan.program.fates[plan.program.network.layer("conv1").y].name == "offload"
    assert plan.again == {"conv2": ["dropout1"]}


def test_the_source_is_there_for_every_step_that_rebuilds() -> None:
    plan = watched(chain("conv", "dropout", "relu", "conv"), MEMORY_CENTRIC)
    assert plan.again == {"conv2": ["dropout1", "relu1"], "relu1": ["dropout1"]}
    assert plan.alive("relu1") == {"conv1", "dropout1", "relu1", "d(relu1)"}
    assert plan.alive("dropout1") == {"d(relu1)", "d(conv1)"}


def test_a_backward_step_rebuilds_only_what_it_reads() -> None:
    """Dropout reads dy alone, and batch normalisation does without what it put out."""
    plan = watched(chain("conv", "pool", "batchnorm", "dropout", "relu", "conv"), MEMORY_CENTRIC)
    assert plan.again == {
        "conv2": ["pool1", "batchnorm1", "dropout1", "relu1"],
        "relu1": ["pool1", "batchnorm1", "dropout1"],
        "batchnorm1": ["pool1"],
    }
    for layer in ("dropout1", "pool1", "conv1"):
        assert layer not in plan.again


def test_behind_a_managed_batch_the_batch_is_the_source() -> None:
    """vDNN's networks: the batch stays until its segment has been rebuilt; nothing below conv1 learns."""
    plan = watched(chain("relu", "pool", "conv", conventions=VDNN), COST_AWARE)
    assert plan.again == {"conv1": ["relu1", "pool1"]}
    assert "input" in plan.alive("conv1") and "relu1" not in plan.alive("conv1")


def test_a_relu_in_place_runs_again_only_with_the_layer_it_overwrites() -> None:
    """Behind a convolution the overwritten map is the checkpoint, and stays as it is."""
    after_norm = watched(chain("conv", "batchnorm", "relu", "pool", "conv", conventions=VDNN), MEMORY_CENTRIC)
    assert after_norm.again == {"conv2": ["batchnorm1", "relu1", "pool1"], "pool1": ["batchnorm1", "relu1"]}
    after_conv = watched(chain("conv", "relu", "pool", "conv", conventions=VDNN), MEMORY_CENTRIC)
    assert after_conv.again == {"conv2": ["pool1"]}


# -- the three strategies on one small network, by hand ----------------------------------------------------------------

#: conv1, relu1, lrn1 put out 1024 bytes, pool1, conv2 and relu2 256, pool2 64, fc1 and softmax1 12.
TWO_SEGMENTS = ("conv", "relu", "lrn", "pool", "conv", "relu", "pool")


def test_speed_centric_runs_every_layer_once_and_keeps_it() -> None:
    plan = watched(chain(*TWO_SEGMENTS), SPEED_CENTRIC)
    assert plan.again == {"fc1": ["relu2", "pool2"], "conv2": ["relu1", "lrn1", "pool1"]}
    assert plan.program.counts.recomputed_layers == 5
    assert plan.alive("fc1") == {"conv1", "conv2", "relu2", "pool2", "softmax1", "d(pool2)"}
    assert plan.alive("conv2") == {"conv1", "relu1", "lrn1", "pool1", "d(relu2)", "d(pool1)"}
    assert plan.alive("pool1") == {"conv1", "relu1", "lrn1", "pool1", "d(pool1)", "d(lrn1)"}
    assert plan.alive("lrn1") == {"conv1", "relu1", "lrn1", "d(lrn1)"}
    assert plan.alive("relu1") == {"conv1", "relu1", "d(lrn1)"}
    assert plan.alive("conv1") == {"d(lrn1)", "d(input)"}


def test_memory_centric_begins_anew_for_every_step() -> None:
    plan = watched(chain(*TWO_SEGMENTS), MEMORY_CENTRIC)
    assert plan.again == {
        "fc1": ["relu2", "pool2"],
        "pool2": ["relu2"],
        "conv2": ["relu1", "lrn1", "pool1"],
        "pool1": ["relu1", "lrn1"],
        "lrn1": ["relu1"],
    }
    assert plan.program.counts.recomputed_layers == 9
    assert plan.alive("fc1") == {"conv1", "conv2", "pool2", "softmax1", "d(pool2)"}
    assert plan.alive("pool2") == {"conv1", "conv2", "relu2", "pool2", "d(pool2)", "d(relu2)"}
    assert plan.alive("conv2") == {"conv1", "pool1", "d(relu2)", "d(pool1)"}
    assert plan.alive("pool1") == {"conv1", "lrn1", "pool1", "d(pool1)", "d(lrn1)"}
    assert plan.alive("lrn1") == {"conv1", "relu1", "lrn1", "d(lrn1)"}
    assert plan.alive("relu1") == {"conv1", "relu1", "d(lrn1)"}


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


@pytest.mark.parametrize("how", STRATEGIES, ids=lambda how: how.name)
def test_a_rebuild_comes_before_the_steps_gradient(how: Recompute) -> None:
    """Else the transient of memory-centric, 4096 at pool1, would stand as high as speed-centric's 4608."""
    plan = watched(chain(*TWO_SEGMENTS), how)
    assert all(run.alive.isdisjoint(run.step.writes) for run in plan.runs if run.rebuild)
    highest = max(row.transient_bytes for row in plan.program.rows)
    assert highest == {"speed": 4608, "memory": 4096, "cost": 4096}[how.strategy]


# -- what is published -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "runs", "mib"), [(SPEED_CENTRIC, 14, 993.018), (MEMORY_CENTRIC, 23, 886.230), (COST_AWARE, 17, 886.230)]
)
def test_alexnet(how: Recompute, runs: int, mib: float) -> None:
    """Extra forward runs and peak of AlexNet, batch 200, as printed; no moment inside a step is higher either."""
    program = watched(build("alexnet:superneurons", 200), how).program
    assert program.counts.recomputed_layers == runs
    assert program.peak.live_bytes / MIB == pytest.approx(mib, abs=0.001)
    assert max(row.transient_bytes for row in program.rows) == program.peak.live_bytes


@pytest.mark.parametrize(
    ("depth", "runs"), [(50, (84, 118, 85)), pytest.param(101, (169, 237, 170), marks=pytest.mark.slow)]
)
def test_resnet(depth: int, runs: tuple[int, int, int]) -> None:
    """Peaks calculated with every checkpoint offloaded and fetched on demand; the paper prints 455.125, 401 and 401."""
    network = build(f"resnet{depth}:superneurons", 32)
    found = [watched(network, how, ALL_CHECKPOINTS).program for how in STRATEGIES]
    assert tuple(program.counts.recomputed_layers for program in found) == runs
    assert [program.peak.live_bytes / MIB for program in found] == [455.125, 406.125, 406.125]


# -- state -------------------------------------------------------------------------------------------------------------


def stateful(conventions: Conventions) -> Network:
    """Batch normalisation and dropout in the middle of segments, so that both run again."""
    b = Builder("stateful", (3, 2, 6, 6), conventions)
    b.conv(4, 3, pad=1)
    trunk = b.batchnorm()
    b.dropout(0.3)
    left = b.relu()
    b.conv(4, 1, after=trunk)
    b.lrn(3)
    right = b.batchnorm()
    b.join(left, right)
    b.dropout(0.4)
    b.batchnorm()
    b.relu()
    b.pool(2)
    b.conv(4, 1)
    b.relu()
    b.fc(6)
    b.dropout()
    b.fc(3)
    b.softmax()
    return b.build()


@pytest.mark.parametrize("conventions", [SUPERNEURONS, VDNN], ids=["superneurons", "vdnn"])
@pytest.mark.parametrize("how", STRATEGIES, ids=lambda how: how.name)
def test_masks_running_statistics_and_all_other_state_are_the_baselines(
    how: Recompute, conventions: Conventions
) -> None:
    program = watched(stateful(conventions), how).program
    again = Counter(i.call.function for i in program.instructions if isinstance(i, Launch) and i.rebuild)
    assert again["batchnorm.forward"] >= 1 and again["dropout.forward"] >= 2
    assert again["batchnorm.update_running"] == 0
    _, state = trained(program, 3, poison=True)
    assert differing(state, plain_training(program, 3)) == []
    assert any(name.endswith("running_mean") and array.any() for name, array in state.items())


@given(
    networks(layers=10, kinds=KINDS),
    st.sampled_from(STRATEGIES),
    st.sampled_from((NoOffload(), CHECKPOINTS, ALL_CHECKPOINTS, vdnn.ALL)),
    st.sampled_from((NoPrefetch(), Ahead())),
    st.sampled_from((1e8, 12.8e9)),
    st.sampled_from((0.0, 0.1)),
    st.sampled_from((CHEAP, (*CHEAP, "join"), (*CHEAP, "join", "concat"), (*CHEAP, "join", "concat", "fork"))),
)
@settings(max_examples=25)
def test_under_a_cache_that_pushes_out_what_can_be_rebuilt(
    network: Network,
    how: Recompute,
    offload: object,
    prefetch: object,
    link: float,
    tightness: float,
    cheap: tuple[str, ...],
) -> None:
    """In the least memory, with a slow link too: evictions in forward and in backward, copies that drain."""
    setup = stages.recompute(dataclasses.replace(how, cheap=cheap)).replace(
        offload=offload, prefetch=prefetch, cache=LeastRecentlyUsed()
    )
    program = least_plan(network, setup, machine(link), tightness)
    program.verify()
    _, state = trained(program, 2, poison=True)
    assert differing(state, plain_training(program, 2)) == []


def test_a_chain_in_forward_leaves_what_a_forward_step_will_still_read() -> None:
    """A cache has pushed out what `left` put out, and `other` wants it; `both` will read `norm` again."""
    b = Builder("forward", (1, 2, 4, 4), VDNN)
    b.conv(2, 1)
    norm = b.batchnorm(name="norm")
    left = b.dropout(name="left")
    other = b.conv(2, 1, name="other")
    b.join(norm, other, name="both")
    b.fc(2)
    b.softmax()
    memory_centric = MEMORY_CENTRIC.bind(PlanContext(b.build(), MACHINE))
    for step, freed in ((other.forward, []), (other.backward, [norm.y])):
        assert [*memory_centric.chain(left.y, step)] == [(norm.forward, []), (left.forward, freed)]


def test_what_a_cache_pushes_out_in_forward_is_rebuilt_in_forward_too() -> None:
    """A map with two readers far apart is evicted in between, without a copy, and comes back from its checkpoint."""
    b = Builder("far apart", (2, 16, 8, 8), VDNN)
    far = b.lrn(3, name="far")
    for _ in range(3):
        b.conv(11, 3, pad=1)
    b.concat(b.last, b.conv(1, 1, name="late", after=far))
    b.pool(8, mode="average")
    b.fc(3)
    b.softmax()
    setup = stages.recompute(COST_AWARE).replace(cache=LeastRecentlyUsed())
    program = least_plan(b.build(), setup, MACHINE)
    program.verify()
    again = [(i.step, i.call.function) for i in program.instructions if isinstance(i, Launch) and i.rebuild]
    assert (program.network.layer("late").forward.number, "lrn.forward") in again
    assert (program.network.layer("late").backward.number, "lrn.forward") in again
    assert not any(isinstance(i, CopyOut) and i.tensor.name == "far" for i in program.instructions)


# -- linear time -------------------------------------------------------------------------------------------------------


def walked(network: Network, how: Recompute, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Layers on all ways from checkpoints to targets while planning, and layers that ran again."""
    lengths: list[int] = []
    path = BoundRecompute._path

    def counted(self: BoundRecompute, targets: list[Layer]) -> list[Layer]:
        found = path(self, targets)
        lengths.append(len(found))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(BoundRecompute, "_path", counted)
        program = plan(network, stages.recompute(how), MACHINE, PLENTY)
    return sum(lengths), program.counts.recomputed_layers


def test_no_way_is_walked_twice_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    long_segments = chain("conv", *["relu"] * 300, "conv", *["batchnorm", "dropout"] * 150)
    assert walked(long_segments, SPEED_CENTRIC, monkeypatch) == (600, 600)
    network = build("resnet:137:superneurons", 1)
    for how in STRATEGIES:
        steps, runs = walked(network, how, monkeypatch)
        assert runs <= steps <= 1.5 * runs


def bind_seconds(layers: int) -> float:
    context = PlanContext(chain("conv", *["relu"] * layers), MACHINE)
    times = []
    for _ in range(3):
        start = time.process_time()
        bound = COST_AWARE.bind(context)
        bound.drops(), bound.sources()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.timing
def test_weighing_a_long_segment_takes_linear_time() -> None:
    """Four times the layers: about four times as long, where quadratic were sixteen."""
    assert bind_seconds(2400) < 9 * bind_seconds(600)


# -- the command -------------------------------------------------------------------------------------------------------

PLAN = ("plan", "alexnet:superneurons", "--batch", "200", "--machine", "k40c", "--json")


@pytest.mark.parametrize("preset", ["superneurons-recompute", "superneurons"])
def test_the_command_takes_the_strategy_by_its_short_name(capsys: pytest.CaptureFixture[str], preset: str) -> None:
    for short, name, runs in (
        ("speed", "speed-centric", 14),
        ("memory", "memory-centric", 23),
        ("cost", "cost-aware", 17),
    ):
        assert main([*PLAN, "--policy", preset, "--recompute", short]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["slots"]["recompute"] == name
        assert document["recomputed_layers"] == runs


def test_two_strategies_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--policy", "superneurons-recompute", "--recompute", "speed", "--set", "recompute=cost-aware")
    assert main([*PLAN, *arguments]) == 2
    assert "give one of them" in capsys.readouterr().err
