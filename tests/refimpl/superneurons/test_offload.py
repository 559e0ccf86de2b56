"""SuperNeurons' offload and prefetch: which maps leave and when, and when they are back."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import SUPERNEURONS, VDNN, Builder, Conventions, Network
from refimpl.planner import CopyIn, CopyOut, Free, Program, plan
from refimpl.superneurons import ALL_CHECKPOINTS, CHECKPOINTS, Ahead, OffloadOutputs
from refimpl.superneurons import presets as stages
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import leaving, machine, setup

pytestmark = pytest.mark.superneurons

K40C = MACHINES["k40c"]
PLENTY = 1 << 40  #: bytes


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


# -- coming back -------------------------------------------------------------------------------------------------------


def test_a_longer_distance_costs_memory_and_saves_waiting() -> None:
    network = build("alexnet:superneurons", 200)
    programs = [plan(network, stages.offload(distance=d), K40C, PLENTY) for d in (0, 3, 6)]
    peaks = [program.peak.live_bytes for program in programs]
    stalls = [program.simulate().stall for program in programs]
    assert peaks == sorted(peaks) and peaks[0] < peaks[-1]
    assert stalls == sorted(stalls, reverse=True) and stalls[0] > stalls[-1]
