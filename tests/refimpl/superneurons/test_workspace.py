"""SuperNeurons' dynamic workspaces: the fastest that fits the largest hole, and what more memory is good for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.machine import MACHINES, Choice, Machine
from refimpl.memory import BlockHeap, Pool
from refimpl.names.networks import build
from refimpl.network import Builder, Call, Network, Step
from refimpl.planner import Allocate, Context, DoesNotFit, Free, Launch, Program, Setup, plan
from refimpl.slots.algorithms import Chooser, MemoryOptimal
from refimpl.superneurons import DynamicWorkspace
from refimpl.superneurons import presets as stages
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import least_plan, machine

pytestmark = pytest.mark.superneurons

K40C = MACHINES["k40c"]
MIB = 1 << 20
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
#: The paper's networks with batches that a K40c trains in some GB, as SuperNeurons built them.
NETWORKS = {
    "alexnet": 200, "vgg16": 32, "vgg19": 32, "inceptionv4": 16, "resnet50": 32, "resnet101": 16, "resnet152": 16,
}  # fmt: skip

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


@pytest.mark.parametrize("stage", STAGES)
def test_never_more_than_the_largest_hole_on_the_papers_networks(stage: str) -> None:
    for name in ("alexnet", "vgg16"):
        network = paper(name)
        wanted, module = watched(STAGES[stage])
        low, high = span(name, stage)
        for budget in (low, (low + high) // 2, high):
            assert functional_tensors_first(plan(network, wanted, K40C, budget))
        assert len({choice.algorithm for _, choice in module.chosen}) > 2


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


def test_a_workspace_that_came_before_its_steps_tensors_would_be_noticed() -> None:
    program = plan(chain(), stages.liveness(DynamicWorkspace()), SMALL, PLENTY)
    assert functional_tensors_first(program)
    at = next(k for k, i in enumerate(program.instructions) if isinstance(i, Allocate) and i.tensor.kind == "workspace")
    program.instructions[at - 1 : at + 1] = program.instructions[at - 1 : at + 1][::-1]
    assert not functional_tensors_first(program)


def chain() -> Network:
    b = Builder("chain", (2, 8, 12, 12))
    for _ in range(3):
        b.conv(8, 3, pad=1)
        b.relu()
    b.fc(3)
    b.softmax()
    return b.build()


# -- each on its own ---------------------------------------------------------------------------------------------------


def test_each_pass_and_each_step_chooses_on_its_own() -> None:
    """AlexNet under a tight budget: one convolution, three passes, three algorithms; another layer, others again."""
    network = paper("alexnet")
    low, high = span("alexnet", "liveness")
    chosen = {}
    for budget in (low, high):
        program = plan(network, STAGES["liveness"], K40C, budget)
        for i in program.instructions:
            if isinstance(i, Launch) and i.choice:
                layer = network.steps[i.step - 1].layer.name
                chosen[budget, layer, i.call.function] = i.choice.algorithm
    of = {
        (budget, layer): {chosen[key] for key in chosen if key[:2] == (budget, layer)}
        for budget, layer, _ in chosen
    }  # fmt: skip
    assert any(len(algorithms) > 1 for algorithms in of.values())
    forward = {layer: chosen[low, layer, "conv.forward"] for b, layer in of if b == low}
    assert len(set(forward.values())) > 1
    assert {k[1:]: v for k, v in chosen.items() if k[0] == low} != {k[1:]: v for k, v in chosen.items() if k[0] == high}


def test_one_call_by_the_hole() -> None:
    """Every workspace of a call's choices is the threshold from which on it, or a faster one, is taken."""
    network = paper("alexnet")
    bound = DynamicWorkspace().bind(Context(network, K40C))
    for layer in network.layers:
        for step in (layer.forward, layer.backward):
            for call in (call for call in step.calls if call.choosable):
                choices = K40C.choices(call)
                least = min(choice.workspace_bytes for choice in choices)
                assert bound.choose(step, call, PLENTY, PLENTY) == choices[0]
                assert bound.choose(step, call, least - 1, PLENTY).workspace_bytes == least  # none fits: the least
                for choice in choices:
                    taken = bound.choose(step, call, choice.workspace_bytes, PLENTY)
                    assert taken.seconds <= choice.seconds and taken.workspace_bytes <= choice.workspace_bytes
                    tighter = bound.choose(step, call, taken.workspace_bytes - 1, PLENTY)
                    assert tighter.workspace_bytes < taken.workspace_bytes or taken.workspace_bytes == least


def test_no_plan_fails_for_a_workspace() -> None:
    """What fits with the least workspaces fits with dynamic ones too: each is gone before the next tensor comes."""
    for name in ("alexnet", "vgg16"):
        network = paper(name)
        low, high = span(name, "liveness")
        least, dynamic = (
            [
                fitting(network, stages.liveness(one), budget)
                for budget in range(low - high // 50, low + high // 50, 8 * MIB)
            ]
            for one in (MemoryOptimal(), DynamicWorkspace())
        )
        assert least == dynamic and set(least) == {True, False}


def fitting(network: Network, wanted: Setup, budget: int) -> bool:
    try:
        plan(network, wanted, K40C, budget)
    except DoesNotFit:
        return False
    return True


# -- more memory, less time --------------------------------------------------------------------------------------------


@cache
def paper(name: str) -> Network:
    return build(f"{name}:superneurons", NETWORKS[name])


@cache
def span(name: str, stage: str) -> tuple[int, int]:
    """From a budget that is just enough (to 1 % of the other) to one that gives every convolution all that it likes."""
    low, high = 0, plan(paper(name), STAGES[stage], K40C, PLENTY).arena_bytes
    top = high
    while high - low > top // 100:
        middle = (low + high) // 2
        low, high = (low, middle) if fitting(paper(name), STAGES[stage], middle) else (middle, high)
    return high, max(high, top)


def slower(network: Network, wanted: Setup, on: Machine, budgets: list[int]) -> Iterator[float]:
    """For each larger budget, how much slower it is than the one before: 0.01 is 1 %, 0 or less is as it should be."""
    before = None
    for budget in budgets:
        try:
            seconds = plan(network, wanted, on, budget).simulate().seconds
        except DoesNotFit:
            continue
        if before is not None:
            yield seconds / before - 1
        before = seconds


def ladder(name: str, stage: str, rungs: int) -> list[int]:
    low, high = span(name, stage)
    return [low + (high - low) * rung // rungs for rung in range(rungs + 1)]


@pytest.mark.parametrize("stage", ["liveness", "offload", "recompute"])
@pytest.mark.parametrize("name", ["alexnet", "vgg16", "vgg19"])
def test_more_memory_is_never_slower(name: str, stage: str) -> None:
    """Where nothing is evicted: a larger pool has the same blocks in the same places, and larger holes."""
    found = [*slower(paper(name), STAGES[stage], K40C, ladder(name, stage, 8))]
    assert found and max(found) <= 1e-12
    assert min(found) < -0.02  # and it is good for something


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inceptionv4", "resnet50", "resnet101", "resnet152"])
def test_more_memory_is_never_slower_on_the_deep_ones(name: str) -> None:
    found = [*slower(paper(name), STAGES["recompute"], K40C, ladder(name, "recompute", 3))]
    assert found and max(found) <= 1e-12


@pytest.mark.slow
def test_with_a_cache_more_memory_is_hardly_ever_slower() -> None:
    """An eviction leaves holes elsewhere, and a smaller pool may so have the larger hole.

    Of sixty steps up, at most 4, each by less than 4 %; from end to end it is faster, always.
    """
    found = []
    for name in ("alexnet", "vgg16", "vgg19"):
        one = [*slower(paper(name), STAGES["everything"], K40C, ladder(name, "everything", 20))]
        first, last = (
            plan(paper(name), STAGES["everything"], K40C, b).simulate().seconds for b in span(name, "everything")
        )
        assert last < first
        found += one
    print(f"slower with more memory: {sum(x > 1e-9 for x in found)} of {len(found)}, at most by {max(found):.1%}")
    assert len(found) == 60 and sum(x > 1e-9 for x in found) <= 4 and max(found) < 0.04


@pytest.mark.slow
def test_on_drawn_networks_it_is_counted() -> None:
    """Six budgets of each of some drawn networks, with the cache and without one."""
    steps: dict[str, list[float]] = {"recompute": [], "everything": []}

    @settings(max_examples=15, derandomize=True, database=None)
    @given(networks(8, kinds=CONVOLVING, side=10))
    def count(network: Network) -> None:
        for stage, found in steps.items():
            low = least_plan(network, STAGES[stage], SMALL).budget
            high = max(low, plan(network, STAGES[stage], SMALL, PLENTY).arena_bytes)
            found += slower(network, STAGES[stage], SMALL, [low + (high - low) * rung // 5 for rung in range(6)])

    count()
    for stage, found in steps.items():
        rises = [x for x in found if x > 1e-9]
        most = max(rises, default=0)
        print(f"{stage}: slower with more memory {len(rises)} of {len(found)} times, at most by {most:.1%}")
    assert len(steps["recompute"]) > 50 and not any(x > 1e-9 for x in steps["recompute"])
    assert sum(x > 1e-9 for x in steps["everything"]) <= 0.1 * len(steps["everything"])
