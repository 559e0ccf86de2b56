"""SuperNeurons' dynamic workspaces: the fastest that fits the largest hole, and what more memory is good for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.machine import MACHINES, Choice
from refimpl.memory import BlockHeap, Pool
from refimpl.names.largest_batch import attempt
from refimpl.names.networks import build
from refimpl.network import Call, Network, Step
from refimpl.planner import Allocate, Context, Free, Launch, Program, Setup, plan
from refimpl.slots.algorithms import Chooser
from refimpl.superneurons import DynamicWorkspace, LeastRecentlyUsed
from refimpl.superneurons import presets as stages
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine

pytestmark = pytest.mark.superneurons

K40C = MACHINES["k40c"]
PLENTY = 1 << 40  #: bytes

#: Offers this project's own algorithms; were a launch not free, none with a workspace would be the fastest on networks
#: as small as those that are drawn.
SMALL = dataclasses.replace(machine(), launch_seconds=0.0)
CONVOLVING = ("conv", "conv", "conv", "pool", "relu", "join")

#: All that can be used beside dynamic workspaces.
STAGES = {
    "liveness": stages.liveness(DynamicWorkspace()),
    "offload": stages.offload(DynamicWorkspace()),
    "recompute": stages.recompute(algorithms=DynamicWorkspace()),
    "everything": stages.everything(),
}
# -- never more than the largest hole ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class WatchedHeap(BlockHeap):
    """The heap, whose pool can be looked at while a plan is made."""

    pools: list[Pool] = field(default_factory=list, compare=False)

    def open(self, size: int) -> Pool:
        self.pools.append(super().open(size))
        return self.pools[-1]


@dataclass(frozen=True)
class Watched(DynamicWorkspace):
    """Says of every choice whether it is what the paper asks, by the holes that there are at that moment."""

    heap: WatchedHeap = field(default_factory=WatchedHeap)
    chosen: list[tuple[Call, Choice]] = field(default_factory=list, compare=False)

    def bind(self, context: Context) -> Chooser:
        return _Watching(self, context)


class _Watching(Chooser):
    def __init__(self, module: Watched, context: Context) -> None:
        super().__init__(context, lambda step, choices, hole, drained: module.pick(choices, hole))
        self._machine, self._module = context.machine, module

    def choose(self, step: Step, call: Call, largest_hole: int, free_when_drained: int) -> Choice:
        choice = super().choose(step, call, largest_hole, free_when_drained)
        hole = max((nbytes for _, nbytes in self._module.heap.pools[-1].holes()), default=0)
        assert largest_hole == hole
        fitting = [c for c in self._machine.choices(call) if c.workspace_bytes <= hole]
        if fitting:
            assert choice.workspace_bytes <= hole and choice.seconds == min(c.seconds for c in fitting)
        else:
            assert choice.workspace_bytes == min(c.workspace_bytes for c in self._machine.choices(call))
        self._module.chosen.append((call, choice))
        return choice


def watched(wanted: Setup) -> tuple[Setup, Watched]:
    module = Watched()
    return wanted.replace(algorithms=module, allocator=module.heap), module


@settings(max_examples=8)
@given(networks(8, kinds=CONVOLVING, side=10), st.sampled_from(sorted(STAGES)), st.floats(0, 0.4))
def test_never_more_than_the_largest_hole(network: Network, stage: str, room: float) -> None:
    """Watched at every convolution of drawn networks, from the least budget to plenty; and functional tensors first."""
    wanted, module = watched(STAGES[stage])
    program = least_plan(network, wanted, SMALL, room)
    program.verify()
    assert functional_tensors_first(program)
    module.chosen.clear()
    program = plan(network, wanted, SMALL, program.budget)
    assert [call for call, _ in module.chosen] == [
        call for step in network.steps for call in step.calls if call.choosable
    ]  # every convolution of every step is asked about, once
    launched = {i.call: i.choice for i in program.instructions if isinstance(i, Launch) and i.choice}
    assert launched == dict(module.chosen)


def test_nothing_is_evicted_for_a_workspace_unless_the_cache_says_so() -> None:
    """In the paper a workspace gets what is left.  With the choice a smaller pool has the fast algorithms, too."""
    network, budget = build("vgg16", 128), 9 << 30
    wanted = (stages.everything(), stages.everything().replace(cache=LeastRecentlyUsed(workspaces=True)))
    paper, ours = (plan(network, one, MACHINES["titan-x"], budget) for one in wanted)
    ours.verify()
    assert paper.counts.evictions < ours.counts.evictions and ours.planned_seconds < 0.85 * paper.planned_seconds
    assert functional_tensors_first(ours) and ours.peak_bytes <= budget


def functional_tensors_first(program: Program) -> bool:
    """A workspace comes when all that its step uses is there, nothing comes beside it, and it goes with its step."""
    steps = {row.step.number: row.step for row in program.rows}
    alive: set[Any] = set()
    workspace = None
    for i in program.instructions:
        if isinstance(i, Allocate):
            if workspace is not None:
                return False
            if i.tensor.kind == "workspace":
                workspace = i.tensor
                if not set(steps[i.step].uses) <= alive:
                    return False
            else:
                alive.add(i.tensor)
        elif isinstance(i, Free):
            alive.discard(i.tensor)
            workspace = None if i.tensor is workspace else workspace
    return workspace is None


# -- more memory, less time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["liveness", "offload", "recompute"])
def test_more_memory_is_never_slower(stage: str) -> None:
    """Where nothing is evicted: a larger pool has the same blocks in the same places, and larger holes."""
    network, wanted = build("alexnet:superneurons", 200), STAGES[stage]
    enough = plan(network, wanted, K40C, PLENTY).arena_bytes
    programs = (attempt(network, wanted, K40C, enough * share // 40) for share in range(16, 42))
    seconds = [program.planned_seconds for program in programs if program]
    assert all(more <= less * (1 + 1e-12) for less, more in pairwise(seconds))
    assert seconds[-1] < 0.98 * seconds[0], "and it is good for something"
