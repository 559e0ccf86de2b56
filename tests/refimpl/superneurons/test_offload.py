"""SuperNeurons' offload and prefetch: which maps leave and when, and when they are back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, Free, Program, plan
from refimpl.superneurons import ALL_CHECKPOINTS, CHECKPOINTS, Ahead, OffloadOutputs
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine, setup

pytestmark = pytest.mark.superneurons

PLENTY = 1 << 40  #: bytes


def copies(program: Program, kind: type[CopyOut | CopyIn], why: str) -> dict[str, int]:
    """Map → the step that copies it, for one reason; each map once."""
    found = [i for i in program.instructions if isinstance(i, kind) and i.why == why]
    assert len({i.tensor for i in found}) == len(found)
    return {i.tensor.name: i.step for i in found}


# -- which, and when they leave ----------------------------------------------------------------------------------------


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
