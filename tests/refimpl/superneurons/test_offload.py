"""SuperNeurons' offload and prefetch: which maps leave and when, when they are let go, and when they are back."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.memory.tiers import pinned_size
from refimpl.names.networks import build
from refimpl.network import SUPERNEURONS, VDNN, Builder, Conventions, Network, Tensor
from refimpl.planner import Context, CopyIn, CopyOut, Free, Program, Record, SetupError, Wait, plan
from refimpl.slots.baseline import BufferAMap, NoPrefetch, PinnedPlaces
from refimpl.slots.questions import Place
from refimpl.superneurons import ALL_CHECKPOINTS, CHECKPOINTS, SPEED_CENTRIC, Ahead, OffloadOutputs
from refimpl.superneurons import presets as stages
from tests.messages import raises_naming
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import instructions_of, machine, setup
from tests.refimpl.planner.mutations import refused, with_instructions

pytestmark = pytest.mark.superneurons

K40C = MACHINES["k40c"]
PLENTY = 1 << 40  #: bytes


def leaving(network: Network, module: OffloadOutputs) -> dict[str, str]:
    """Map → the layer after whose forward it leaves."""
    bound = module.bind(Context(network, K40C))
    return {tensor.name: step.layer.name for step in network.steps for tensor in bound.leaves(step)}


def copies(program: Program, kind: type[CopyOut | CopyIn], why: str) -> dict[str, int]:
    """Map → the step that copies it, for one reason; each map once."""
    found = [i for i in program.instructions if isinstance(i, kind) and i.why == why]
    assert len({i.tensor for i in found}) == len(found)
    return {i.tensor.name: i.step for i in found}


def long_chain(conventions: Conventions = SUPERNEURONS) -> Network:
    """Convolutions whose backward is far away, and one whose gap is just not empty."""
    b = Builder("chain", (2, 3, 16, 16), conventions)
    for number in range(1, 5):
        b.conv(4, 3, pad=1, name=f"conv{number}")
        b.relu(name=f"relu{number}")
    b.fc(3, name="fc")
    b.softmax(name="softmax")
    return b.build()


# -- which, and when they leave ----------------------------------------------------------------------------------------


def test_the_checkpoints_of_alexnet_leave_behind_their_own_forward() -> None:
    """The last FC's output does not: softmax's backward is the next step but one."""
    network = build("alexnet:superneurons", 2)
    checkpoints = [layer.name for layer in network.layers if layer.kind in ("conv", "fc")]
    assert leaving(network, CHECKPOINTS) == {name: name for name in checkpoints if name != "FC3"}


def test_on_a_forked_network_structure_layers_outputs_leave_too_if_asked() -> None:
    network = build("tiny-inception:superneurons", 2)
    some, everything = leaving(network, CHECKPOINTS), leaving(network, ALL_CHECKPOINTS)
    kinds = {layer.name: layer.kind for layer in network.layers}
    assert set(some.items()) < set(everything.items())
    assert Counter(kinds[layer] for layer in some.values()) == {"conv": 9}
    assert Counter(kinds[layer] for layer in everything.values()) == {"conv": 9, "fork": 6, "concat": 1}
    residual = leaving(build("tiny-resnet:superneurons", 2), ALL_CHECKPOINTS)
    assert residual["2_1.join"] == "2_1.join" and "2_1.relu.fork.1" in residual
    assert "2_1.relu.fork.2" not in residual  # goes into JOIN, and no backward step reads it: nothing to keep


def test_a_map_that_a_relu_overwrites_leaves_once_that_is_done() -> None:
    """vDNN's networks: one map for the convolution and its ReLU.  The last one's gap is empty."""
    assert leaving(long_chain(VDNN), CHECKPOINTS) == {f"conv{i}": f"relu{i}" for i in (1, 2, 3)}
    assert leaving(build("tiny-resnet", 2), ALL_CHECKPOINTS)["2_1.join"] == "2_1.relu"


def plainly(network: Network, kinds: tuple[str, ...], distance: int) -> dict[str, tuple[int, int, int]]:
    """The rule, read off the steps: map → the steps at which it leaves, is let go, and is back."""
    made_by = {tensor: layer.kind for layer in reversed(network.layers) for tensor in layer.outputs}
    found = {}
    for tensor, kind in made_by.items():
        uses = [step.number for step in network.steps if tensor in step.uses]
        forward = [number for number in uses if number <= network.depth]
        if kind not in kinds or forward == uses:
            continue
        back, gone = uses[len(forward)] - distance, forward[-1]
        changed = [k for k in forward if tensor in (*network.steps[k - 1].writes, *network.steps[k - 1].updates)]
        if back > gone + 1:
            found[tensor.name] = changed[-1], gone, back
    return found


@pytest.mark.slow
@given(networks(layers=16), st.sampled_from((CHECKPOINTS, ALL_CHECKPOINTS)), st.integers(0, 8))
def test_the_rule_on_drawn_networks(network: Network, module: OffloadOutputs, distance: int) -> None:
    """Leaves, is let go, is back: a plan with room for everything does exactly what the rule says, and is safe.

    A map that is due within forward is not copied: where there is room, its bytes are still there.
    """
    wanted = setup(offload=dataclasses.replace(module, distance=distance), prefetch=Ahead(distance))
    program = plan(network, wanted, machine(), PLENTY)
    program.verify()
    expected = plainly(network, module.kinds, distance)
    assert copies(program, CopyOut, "offload") == {name: leaves for name, (leaves, _, _) in expected.items()}
    gone = {name: times for name, times in expected.items() if times[2] > network.depth}
    assert copies(program, CopyIn, "prefetch") == {name: back for name, (_, _, back) in gone.items()}
    assert program.counts.on_demand_bytes == 0 and program.counts.skipped_prefetches == 0
    let_go: dict[Any, Any] = {}
    for i in program.instructions:
        if isinstance(i, Free) and i.tensor.name in gone:
            let_go.setdefault(i.tensor.name, i.released)
    assert let_go == {name: released for name, (_, released, _) in gone.items()}


def test_dropped_maps_need_not_leave() -> None:
    """Recomputation is asked first."""
    network = build("alexnet:superneurons", 2)
    cheap_too = dataclasses.replace(CHECKPOINTS, kinds=("conv", "fc", "relu", "pool"))
    setup = stages.recompute(SPEED_CENTRIC).replace(offload=cheap_too, prefetch=Ahead())
    program = plan(network, setup, K40C, PLENTY)
    program.verify()
    fates = {name: [t.name for t, fate in program.fates.items() if fate.name == name] for name in ("offload", "drop")}
    assert fates["offload"] == [*copies(program, CopyOut, "offload")] and "RELU1" in fates["drop"]
    assert set(fates["offload"]) == {"CONV1", "CONV2", "CONV3", "CONV4", "CONV5", "FC1", "FC2"}


# -- letting go --------------------------------------------------------------------------------------------------------


def test_a_map_is_let_go_behind_its_last_forward_use_though_its_copy_still_runs() -> None:
    """It is not live; where there is room, the pool has its bytes back at the first backward step, on any link."""
    network = long_chain()
    slow, middle, fast = (plan(network, stages.offload(), machine(link), PLENTY) for link in (1e4, 8e9, 1e15))
    assert instructions_of(slow) == instructions_of(middle) == instructions_of(fast)
    slow.verify()
    late = [i for i in slow.instructions if isinstance(i, Free) and i.step > i.released <= network.depth]
    assert late and {i.step for i in late} == {network.depth + 1}
    for row in slow.rows[: network.depth]:
        draining = sum(i.nbytes for i in late if i.released < row.step.number)
        assert row.pool_bytes >= network.resident_bytes + row.live_bytes + draining


# -- coming back -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", range(7))
def test_the_distance_is_a_parameter(distance: int) -> None:
    """A map is back a given number of steps before the first backward step that uses it: its ReLU's."""
    network = long_chain()
    program = plan(network, stages.offload(distance=distance), machine(1e15), PLENTY)
    program.verify()
    back = copies(program, CopyIn, "prefetch")
    for name, step in back.items():
        assert step == network.layer(name.replace("conv", "relu")).backward.number - distance
    # conv4: used at steps 8 and 13; three steps ahead it is due in forward, where its bytes are still there
    assert ("conv4" in back) == (distance < 3) and ("conv3" in back) == (distance < 5)
    assert min(back.values()) > network.depth


def test_a_longer_distance_costs_memory_and_saves_waiting() -> None:
    network = build("alexnet:superneurons", 200)
    programs = [plan(network, stages.offload(distance=d), K40C, PLENTY) for d in (0, 3, 6)]
    peaks = [program.peak.live_bytes for program in programs]
    stalls = [program.simulate().stall for program in programs]
    assert peaks == sorted(peaks) and peaks[0] < peaks[-1]
    assert stalls == sorted(stalls, reverse=True) and stalls[0] > stalls[-1]


def test_distance_0_and_a_prefetch_that_points_backwards() -> None:
    """0 is on demand but for the name; a number that points past the step that needs the map is refused."""
    network = build("alexnet:superneurons", 20)
    at_once = plan(network, stages.offload(distance=0), K40C, PLENTY)
    demanded = plan(network, stages.offload(distance=0).replace(prefetch=NoPrefetch()), K40C, PLENTY)
    assert at_once.counts.prefetched_bytes == demanded.counts.on_demand_bytes == at_once.counts.offloaded_bytes > 0
    assert [row.live_bytes for row in at_once.rows] == [row.live_bytes for row in demanded.rows]
    for module in (Ahead, lambda d: dataclasses.replace(CHECKPOINTS, distance=d)):
        with raises_naming(SetupError, "distance", -1, 0):
            module(-1)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def waits_behind_their_records(program: Program) -> bool:
    recorded = set()
    for i in program.instructions:
        if isinstance(i, Record):
            recorded.add(i.event)
        elif isinstance(i, Wait) and i.event not in recorded:
            return False
    return True


def test_a_wait_on_an_event_that_was_never_recorded_is_refused() -> None:
    """A GPU lets such a wait pass at once: the first iteration would read what has not been copied yet."""
    program = plan(long_chain(), stages.offload(), K40C, PLENTY)
    first = next(i for i in program.instructions if isinstance(i, Wait))
    record = next(i for i in program.instructions if isinstance(i, Record) and i.event == first.event)
    spoilt = with_instructions(program, [i for i in program.instructions if i is not record])
    assert waits_behind_their_records(program) and not waits_behind_their_records(spoilt)
    refused(spoilt)
    late = [i for i in program.instructions if i is not record]
    late.insert(late.index(first) + 1, record)
    refused(with_instructions(program, late))


def pinned(tensors: list[Tensor]) -> int:
    return sum(pinned_size(tensor.nbytes) for tensor in tensors)


class _ForAll(PinnedPlaces):
    """Wrong: every map has its buffer from the start, whether it moves or not."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.tiers)
        self._places = {tensor: PinnedPlaces.place(self, tensor) for tensor in context.maps_across()}

    def place(self, tensor: Tensor) -> Place | None:
        return self._places[tensor]


class ForAll(BufferAMap):
    def bind(self, context: Context) -> PinnedPlaces:
        return _ForAll(context)


def test_pinned_memory_only_for_what_moves() -> None:
    """The batch, the results, and the maps that leave; with room for everything a cache needs none for maps."""
    network = build("alexnet:superneurons", 20)
    for wanted in (stages.offload(), stages.everything()):
        program, wasteful = (plan(network, one, K40C, PLENTY) for one in (wanted, wanted.replace(pinned=ForAll())))
        moved = list({i.tensor: None for i in program.instructions if isinstance(i, (CopyIn, CopyOut))})
        offloads = wanted.offload.name != "none"
        assert program.pinned_bytes == pinned(moved)
        assert (program.pinned_bytes < wasteful.pinned_bytes) == (program.counts.offloaded_bytes > 0) == offloads
