"""SuperNeurons' liveness analysis: the paper's sets, and the quadratic twin."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.network import Network
from refimpl.planner import Context
from refimpl.slots.baseline import LayerWise
from refimpl.superneurons import ALL_CHECKPOINTS, CHECKPOINTS, COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC
from refimpl.superneurons.liveness import Analysis, last_uses, out_sets
from tests.refimpl.drawn_networks import networks

pytestmark = pytest.mark.superneurons

K40C = MACHINES["k40c"]

# -- the paper's example -----------------------------------------------------------------------------------------------

#: DATA→CONV1→POOL→FC and DATA→CONV3→FC→SOFTMAX, there and back: what a step reads, what it makes, its `out` set.
PAPER = (
    ("DATA", "", "t0", "t0"),
    ("CONV1", "t0", "t1", "t0 t1"),
    ("POOL", "t1", "t3", "t0 t1 t3"),
    ("CONV3", "t0", "t2", "t0 t1 t3 t2"),
    ("FC", "t3 t2", "t4", "t0 t1 t3 t2 t4"),
    ("SOFTMAX", "t4", "prob", "t0 t1 t3 t2 prob"),
    ("SOFTMAX", "prob", "t5", "t0 t1 t3 t2 t5"),
    ("FC", "t5 t2 t3", "t6", "t0 t1 t3 t6"),
    ("POOL", "t6 t1 t3", "t7", "t0 t7 t6"),
    ("CONV1", "t7 t0", "t8", "t0 t6 t8"),
    ("CONV3", "t6 t0", "t9", "t8 t9"),
    ("DATA", "t8 t9", "", ""),
)
USES = [[*reads.split(), *makes.split()] for _, reads, makes, _ in PAPER]
MADE = [makes.split() for _, _, makes, _ in PAPER]
OUT = [set(out.split()) for *_, out in PAPER]


def test_the_papers_sets_by_its_own_analysis() -> None:
    assert [set(out) for out in out_sets(USES, MADE)] == OUT
    after = [set[str](), *OUT]
    assert all(set(reads.split()) <= after[step] for step, (_, reads, _, _) in enumerate(PAPER))  # `in` has them


def test_the_papers_sets_by_one_pass() -> None:
    assert [set(out) for out in released(MADE, last_uses(USES))] == OUT


def released(made: Sequence[Iterable[Hashable]], last: Sequence[Iterable[Hashable]]) -> list[list[Hashable]]:
    """What is alive after each step if a tensor is freed after its stated last use."""
    alive: dict[Hashable, None] = {}
    sets = []
    for step in range(len(made)):
        alive |= dict.fromkeys(made[step])
        for tensor in last[step]:
            del alive[tensor]
        sets.append([*alive])
    return sets


@given(st.lists(st.lists(st.integers(0, 12), unique=True), max_size=20))
def test_twins_on_drawn_uses(uses: list[list[int]]) -> None:
    """Whatever uses what: the order in which tensors came to be is the same too."""
    seen: set[int] = set()
    made = []
    for step in uses:
        made.append([tensor for tensor in step if tensor not in seen])
        seen.update(step)
    assert released(made, last_uses(uses)) == out_sets(uses, made)


# -- on networks -------------------------------------------------------------------------------------------------------


def bound(network: Network, which: str) -> Context:
    """A context in which maps have fates, as the planner makes it."""
    context = Context(network, K40C)
    if which in ("speed", "memory", "cost", "both"):
        how = {"speed": SPEED_CENTRIC, "memory": MEMORY_CENTRIC}.get(which, COST_AWARE).bind(context)
        context.decide("drop", "test", how.drops())
        context.rebuilt_from.update(how.sources())
    if which in ("checkpoints", "both"):
        leaving = (CHECKPOINTS if which == "checkpoints" else ALL_CHECKPOINTS).bind(context)
        context.decide("offload", "test", leaving.offloads())
    return context


def lives(context: Context) -> list[list[Hashable]]:
    """What each step uses, if a map with a fate has two lives, one in forward and one in backward."""
    uses: list[list[Hashable]] = []
    for step in context.network.steps:
        sources = [t for t, steps in context.rebuilt_from.items() if step.number in steps]
        used = dict.fromkeys((*step.uses, *sources))
        uses.append([(tensor, step.forward) if tensor in context.fates else tensor for tensor in used])
    return uses


FATES = ("none", "checkpoints", "speed", "memory", "cost", "both")


@given(networks(layers=16), st.sampled_from(FATES))
def test_twins_with_fates(network: Network, which: str) -> None:
    """What leaves or is dropped goes twice; what is rebuilt from stays until the last rebuild."""
    context = bound(network, which)
    uses = lives(context)
    met: set[Hashable] = set()
    made = []
    for used in uses:
        made.append([life for life in used if life not in met])
        met.update(used)
    alive: set[Hashable] = set()
    module = Analysis().bind(context)
    for step, begun, expected in zip(network.steps, made, out_sets(uses, made), strict=True):
        alive |= set(begun)
        for tensor in module.dead(step):
            alive.remove((tensor, step.forward) if tensor in context.fates else tensor)
        assert alive == set(expected), step


@given(networks(), st.sampled_from(FATES))
def test_the_planners_last_uses_say_the_same(network: Network, which: str) -> None:
    """The liveness that vDNN uses, which asks the context tensor by tensor."""
    context = bound(network, which)
    ours, theirs = Analysis().bind(context), LayerWise().bind(context)
    for step in network.steps:
        assert set(ours.dead(step)) == set(theirs.dead(step)), step
        assert len(ours.dead(step)) == len(set(ours.dead(step)))
