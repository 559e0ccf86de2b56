"""SuperNeurons' liveness analysis: the paper's sets, the quadratic twin, and a time that is linear in all uses."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import SUPERNEURONS, Builder, Network, Tensor
from refimpl.planner import Context, plan
from refimpl.slots.baseline import LayerWise
from refimpl.superneurons import ALL_CHECKPOINTS, CHECKPOINTS, COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC
from refimpl.superneurons import presets as stages
from refimpl.superneurons.liveness import Analysis, last_uses, out_sets
from tests.counted_lines import lines_run
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import machine

pytestmark = pytest.mark.superneurons

K40C = MACHINES["k40c"]
PLENTY = 1 << 40  #: bytes

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
    assert last_uses(USES) == [
        [], [], [], [], [], ["t4"], ["prob"], ["t5", "t2"], ["t1", "t3"], ["t7"], ["t6", "t0"], ["t8", "t9"],
    ]  # fmt: skip
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


def test_a_tensor_that_nobody_reads_goes_at_once() -> None:
    uses, made = [["a", "b"], ["a"], []], [["a", "b"], [], []]
    assert out_sets(uses, made) == released(made, last_uses(uses)) == [["a"], [], []]


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


@given(networks(layers=20))
def test_twins_on_drawn_networks(network: Network) -> None:
    """The uses of real steps; the batch, where it is managed, is there before the first."""
    uses = [step.uses for step in network.steps]
    made: list[Sequence[Tensor]] = [step.writes for step in network.steps]
    made[0] = (*(tensor for tensor in [network.input] if tensor.managed), *made[0])
    assert released(made, last_uses(uses)) == out_sets(uses, made)


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


@given(networks())
def test_a_plan_holds_no_more_than_it_must(network: Network) -> None:
    """Live bytes at a step: what is in `in`, and what the step makes."""
    program = plan(network, stages.liveness(), machine(), PLENTY)
    uses = [step.uses for step in network.steps]
    begin = [tensor for tensor in [network.input] if tensor.managed]
    made = [[*begin, *step.writes] if step.number == 1 else [*step.writes] for step in network.steps]
    outs = [begin, *out_sets(uses, made)]
    for row in program.rows:
        there = {*outs[row.step.number - 1], *row.step.writes}
        assert (row.live_tensors, row.live_bytes) == (len(there), sum(tensor.nbytes for tensor in there))


def test_a_checkpoint_stays_until_its_segment_has_been_rebuilt() -> None:
    """CONV → DROPOUT → CONV: no backward step reads the output of the first CONV, but one rebuilds from it."""
    b = Builder("source", (2, 3, 8, 8), SUPERNEURONS)
    b.conv(4, 3, pad=1, name="source")
    b.dropout()
    b.conv(4, 3, pad=1, name="reader")
    b.fc(3)
    b.softmax()
    network = b.build()
    source, reader = network.layer("source").y, network.layer("reader")

    def goes(context: Context) -> list[int]:
        module = Analysis().bind(context)
        return [step.number for step in network.steps if source in module.dead(step)]

    assert goes(bound(network, "memory")) == [reader.backward.number]
    assert goes(Context(network, K40C)) == [2]  # DROPOUT's forward: if the analysis did not know, it would be lost


# -- in linear time ----------------------------------------------------------------------------------------------------


class Counted:
    """A name that counts how often it is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        Counted.looked_up += 1
        return id(self)


def lookups(depth: int, quadratic: bool) -> tuple[int, int]:
    """Lookups that one analysis makes of a ResNet, and how many uses its steps have."""
    network = build(f"resnet:{depth}:superneurons", 1)
    names = {id(tensor): Counted() for tensor in network.managed}
    uses = [[names[id(tensor)] for tensor in step.uses] for step in network.steps]
    made = [[names[id(tensor)] for tensor in step.writes] for step in network.steps]
    Counted.looked_up = 0
    out_sets(uses, made) if quadratic else last_uses(uses)
    return Counted.looked_up, sum(map(len, uses))


@pytest.mark.slow
def test_one_pass_looks_at_every_use_once() -> None:
    """At most two lookups a use: is it met, and if not, now it is.  The paper's own analysis looks again and again."""
    for depth in (50, 302):
        made, uses = lookups(depth, quadratic=False)
        assert uses < made <= 2 * uses
    few, many = (lookups(depth, quadratic=True)[0] for depth in (50, 101))
    assert many > 1.7**2 * few  # twice as deep


@pytest.mark.slow
def test_binding_the_analysis_takes_work_linear_in_depth() -> None:
    def work(depth: int) -> float:
        context = bound(build(f"resnet:{depth}:superneurons", 1), "memory")
        return lines_run(Analysis().bind, context) / len(context.network.steps)

    assert work(602) < 1.2 * work(152)
