"""A wrong answer of a module of one's own is one line: the module, its method, what it returned, what is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels.copies import NoGpu
from refimpl.executor import Executor
from refimpl.memory import Allocator, BestFit, FitPool, Pool
from refimpl.names.networks import build
from refimpl.network import Step, Tensor
from refimpl.network.small import lenet
from refimpl.planner import SetupError, plan
from refimpl.planner.planning import program_of
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import MemoryOptimal
from refimpl.slots.baseline import BufferAMap, LayerWise
from refimpl.slots.planner_only import PoolSearch
from refimpl.slots.setup import BASES, Setup
from refimpl.superneurons import SPEED_CENTRIC
from tests.messages import raises_naming
from tests.refimpl.modules import DropSome, LastUsed, OffloadSome, PrefetchAhead, machine, setup

Answer = Callable[..., Any]

#: A right module for each slot.
RIGHT: dict[str, Any] = {
    "recompute": DropSome(kinds=("pool", "conv")), "offload": OffloadSome(), "liveness": LayerWise(),
    "prefetch": PrefetchAhead(), "cache": LastUsed(), "algorithms": MemoryOptimal(), "pinned": BufferAMap(),
}  # fmt: skip
#: Slot → the modules in other slots that it is tried beside.
BESIDE: dict[str, dict[str, Any]] = {
    "prefetch": {"offload": RIGHT["offload"]}, "pinned": {"offload": RIGHT["offload"]},
}  # fmt: skip

NETWORK, OTHER = build("tiny-vgg", 4), build("tiny-vgg", 4)
PLENTY, LITTLE = 64 << 20, 1060 << 10  #: bytes; with little, tensors are evicted


class Changed:
    """A right bound object with one answer, or one attribute, exchanged."""

    def __init__(self, right: Any, context: Any, method: str, answer: Any) -> None:
        self._right = right
        new = (lambda *given: answer(right, context, *given)) if callable(answer) else answer
        setattr(self, method, new)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)


def wrong(slot: str, method: str, answer: Any, right: Any = None) -> Any:
    """A module that is right but for one answer."""
    right = right or RIGHT[slot]

    def bind(self: Any, context: Any) -> Any:
        return answer if method == "bind" else Changed(right.bind(context), context, method, answer)

    has = {name: getattr(right, name) for name in ("needs", "offers", "order") if hasattr(right, name)}
    return type("Mine", (BASES[slot],), {"name": "mine", "summary": "", "bind": bind, **has})()


def weight(context: Any) -> Tensor:
    return next(iter(context.network.resident))


def gradient(context: Any) -> Tensor:
    return next(x for x in context.uses if x.kind == "gradient map")


#: Wrong answers where tensors are asked for at a step, and what the error says of each.
NOT_TENSORS: dict[str, tuple[Answer, str]] = {
    "none": (lambda right, context, step: None, "None"),
    "names": (lambda right, context, step: [x.name for x in step.reads], "'input' a str"),
    "a name": (lambda right, context, step: "conv1_1", "'conv1_1' a str"),
    "numbers": (lambda right, context, step: [step.number], "1 an int"),
    "one tensor": (lambda right, context, step: step.reads[0], "input"),
    "layers": (lambda right, context, step: [step.layer], "conv1_1 a Layer"),
    "a step": (lambda right, context, step: [step], "step 1 conv1_1 forward"),
    "a list of lists": (lambda right, context, step: [[*step.reads]], "[input] a list"),
    "a weight": (lambda right, context, step: [weight(context)], "conv1_1.w a weight"),
    "of another network": (lambda right, context, step: [OTHER.steps[0].writes[0]], "conv1_1 not of this network"),
}


@pytest.mark.parametrize("what", NOT_TENSORS)
@pytest.mark.parametrize(("slot", "method"), [("liveness", "dead"), ("offload", "leaves"), ("prefetch", "due")])
def test_where_tensors_are_asked_for_at_a_step(slot: str, method: str, what: str) -> None:
    answer, says = NOT_TENSORS[what]
    refused(slot, method, answer, f"{method} step 1 returned {says} return")


#: Slot, method, wrong answer, what the error says.
WRONG: list[tuple[str, str, Any, str]] = [
    ("liveness", "dead", lambda r, c, step: step.reads, "dead step 3 conv1_1 step 37 context.last_use"),
    ("offload", "leaves", lambda r, c, step: [x for x in step.writes if x not in r.offloads()], "fc5 offloads"),
    ("offload", "offloads", lambda r, c: None, "None {tensor: 'why'}"),
    ("offload", "offloads", lambda r, c: [x.name for x in r.offloads()], "'input' a str {tensor: 'why'}"),
    ("offload", "offloads", lambda r, c: list(r.offloads()), "a list {tensor: 'why'}"),
    ("offload", "offloads", lambda r, c: {x.name: "why" for x in r.offloads()}, "'input' a str"),
    ("offload", "offloads", lambda r, c: dict.fromkeys(r.offloads()), "input None {tensor: 'why'}"),
    ("offload", "offloads", lambda r, c: {weight(c): "large"}, "conv1_1.w a weight"),
    ("offload", "offloads", lambda r, c: {gradient(c): "large"}, "a gradient map"),
    ("recompute", "drops", lambda r, c: {c.batch[0]: "large"}, "input cannot be dropped the batch"),
    ("recompute", "sources", lambda r, c: list(r.sources()), "a list {tensor: [number, …]}"),
    ("recompute", "sources", lambda r, c: dict.fromkeys(r.sources(), 23), "input 23 an int {tensor: [number, …]}"),
    ("recompute", "sources", lambda r, c: dict.fromkeys(r.sources(), c.network.steps[22:]), "step 23 fc4 backward"),
    ("recompute", "sources", lambda r, c: {key: [7] for key in r.sources()}, "step 7 input 20 38"),
    ("recompute", "can_rebuild", lambda r, c, x, step: None, "can_rebuild None True False"),
    ("recompute", "can_rebuild", lambda r, c, x, step: True, "can_rebuild True no forward step"),
    ("cache", "victim", lambda r, c, locked, now: min(locked, key=str), "victim locked"),
    ("cache", "victim", lambda r, c, locked, now: "conv1_1", "victim 'conv1_1' a str None"),
    ("cache", "victim", lambda r, c, locked, now: [r.victim(locked, now)], "victim a list None"),
    ("cache", "victim", lambda r, c, locked, now: gradient(c), "not on the device"),
    ("cache", "victim", lambda r, c, locked, now: weight(c), "conv1_1.w a weight"),
    ("algorithms", "choose", lambda r, c, *given: None, "choose step 1 conv.forward None context.machine.choices"),
    ("algorithms", "choose", lambda r, c, *given: dataclasses.replace(r.choose(*given), workspace_bytes=1), "a Choice"),
    ("pinned", "place", lambda r, c, x: 0, "place conv1_1 0 an int slots.Place"),
    ("pinned", "place", lambda r, c, x: None, "place conv1_1 None slots.Place"),
    ("pinned", "place", lambda r, c, x: slots.Place(0, "disk"), "place conv1_1 'disk'"),
    ("pinned", "place", lambda r, c, x: slots.Place(-4096), "place conv1_1 -4096"),
    ("pinned", "place", lambda r, c, x: slots.Place(1 << 60), f"place conv1_1 {1 << 60}"),
    ("pinned", "limits", {"disk": 5}, "limits {'disk': 5} context.tiers"),
]  # fmt: skip


@pytest.mark.parametrize(("slot", "method", "answer", "says"), WRONG)
def test_a_wrong_answer(slot: str, method: str, answer: Any, says: str) -> None:
    refused(slot, method, answer, says)


def refused(slot: str, method: str, answer: Any, says: str, right: Any = None, budget: int = PLENTY) -> None:
    """Planned with one wrong answer, the module is named, and so is all that `says` says, in words apart."""
    wanted = setup(**BESIDE.get(slot, {}), **{slot: wrong(slot, method, answer, right)})
    evicts = slot == "cache" or method == "can_rebuild"
    if method == "can_rebuild":
        wanted = wanted.replace(cache=LastUsed())
    with raises_naming(SetupError, "mine", *says.split()) as caught:
        plan(NETWORK, wanted, machine(), LITTLE if evicts else budget)
    assert len(str(caught.value)) < 300


# -- what `bind` returns, and what a module says of itself -------------------------------------------------------------


class TooFew:
    def dead(self) -> tuple[Tensor, ...]:
        return ()


@pytest.mark.parametrize("slot", RIGHT)
@pytest.mark.parametrize(
    ("bound", "says"),
    [(None, "bind context None method"), (TooFew, "the class TooFew"), (object(), "the class object")],
)
def test_bind_returns_an_object_that_answers(slot: str, bound: Any, says: str) -> None:
    refused(slot, "bind", bound, says)


def test_a_method_takes_what_it_is_given() -> None:
    refused("liveness", "bind", TooFew(), "dead step write dead(self, step)")


@pytest.mark.parametrize("what", ["needs", "offers"])
@pytest.mark.parametrize("features", ["offload", frozenset({"prefetch"})])
def test_features_are_words_that_there_are(what: str, features: Any) -> None:
    module = wrong("offload", "leaves", lambda right, context, step: ())
    setattr(type(module), what, features)
    with raises_naming(SetupError, "offload=mine", what, repr(features), "release", "eviction"):
        setup(offload=module, prefetch=PrefetchAhead())


def test_a_prefetch_is_asked_early_between_or_late() -> None:
    module = wrong("prefetch", "due", lambda right, context, step: ())
    type(module).order = "soon"
    with raises_naming(SetupError, "mine", "'soon'", "'early'", "'between'", "'late'"):
        plan(NETWORK, setup(offload=RIGHT["offload"], prefetch=module), machine(), PLENTY)


# -- rebuilding --------------------------------------------------------------------------------------------------------

Chain = list[tuple[Step, Any]]

#: What becomes of a right chain for a tensor and a step, and what the error says.
CHAINS: dict[str, tuple[Callable[[Chain, Tensor, Step], Any], str]] = {
    "none": (lambda chain, x, step: None, "None (layer.forward, ())"),
    "steps alone": (lambda chain, x, step: [again for again, _ in chain], "forward (layer.forward, ())"),
    "layers": (lambda chain, x, step: [again.layer for again, _ in chain], "a Layer (layer.forward, ())"),
    "pairs of layers": (lambda chain, x, step: [(it.layer, ()) for it, _ in chain], "a tuple (layer.forward, ())"),
    "numbers": (lambda chain, x, step: [(again.number, ()) for again, _ in chain], "a tuple (layer.forward, ())"),
    "nothing to release": (lambda chain, x, step: [(again, None) for again, _ in chain], "after None ()"),
    "names to release": (lambda chain, x, step: [(again, [str(x)]) for again, _ in chain], "after a str"),
    "itself released": (lambda chain, x, step: [(again, [x]) for again, _ in chain], "releases pool3 itself"),
    "empty": (lambda chain, x, step: (), "does not run step 15 pool3 forward"),
    "without the last": (lambda chain, x, step: chain[:-1], "does not run step 15 pool3 forward"),
    "the other way round": (lambda chain, x, step: chain[::-1], "step 15 before step 13 conv3_2 in order"),
    "without the first": (lambda chain, x, step: chain[1:], "begins at conv1_1 step 2 relu1_1 forward in place"),
    "a backward step": (lambda chain, x, step: [(step, ())], "runs step 23 fc4 backward forward steps before step 23"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHAINS)
def test_a_chain_that_does_not_make_the_map(what: str) -> None:
    change, says = CHAINS[what]

    def chain(right: Any, context: Any, tensor: Tensor, step: Step, is_there: Any) -> Any:
        return change(list(right.chain(tensor, step, is_there)), tensor, step)

    refused("recompute", "chain", chain, f"chain(pool3, step 23) {says}")


def test_what_can_be_rebuilt_has_a_chain() -> None:
    says = "chain(conv1_1, step 36) can_rebuild(conv1_1, step 8) begins at conv1_1 relu1_1 forward"
    refused("recompute", "can_rebuild", lambda r, c, x, step: x.kind == "map", says, SPEED_CENTRIC)


#: Its concatenations are read by rebuilds after the last step that reads them itself.
FORKED = build("shufflenet-v2", 4)


def test_a_checkpoint_that_sources_leaves_out_is_not_there() -> None:
    module = wrong("recompute", "sources", lambda right, context: {}, SPEED_CENTRIC)
    with raises_naming(SetupError, "mine", "begins at 4_4.concat", "step 217", "conv5 backward", "sources()"):
        plan(FORKED, setup(recompute=module), machine(), 1 << 30)


class Hasty:
    """Every tensor goes after the last step that uses it itself."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def dead(self, step: Step) -> list[Tensor]:
        dropped = [x for x in self.context.fates if self.context.last_forward_use(x) == step.number]
        return [*dropped, *(x for x, uses in self.context.uses.items() if uses and uses[-1] is step)]


def hasty() -> slots.Liveness:
    has = {"name": "mine", "summary": "", "offers": LayerWise.offers, "bind": lambda self, context: Hasty(context)}
    return type("Mine", (slots.Liveness,), has)()


def test_a_checkpoint_that_is_released_before_its_last_rebuild() -> None:
    with raises_naming(SetupError, "mine", "4_4.concat", "step 217", "conv5 backward", "a rebuild", "context.last_use"):
        plan(FORKED, setup(recompute=SPEED_CENTRIC, liveness=hasty()), machine(), 1 << 30)


def test_a_chain_that_releases_a_checkpoint() -> None:
    def chain(right: Any, context: Any, *given: Any) -> Any:
        return [(again, again.reads) for again, _ in right.chain(*given)]

    module = wrong("recompute", "chain", chain, DropSome(kinds=("join",)))
    with raises_naming(SetupError, "mine", "chain(3_1.join, step 46)", "releases 3_1.around.norm", "step 46"):
        plan(build("tiny-resnet", 4), setup(recompute=module), machine(), PLENTY)


# -- allocators --------------------------------------------------------------------------------------------------------


class Mine(Allocator):
    """An allocator whose pool, or whose pool's method, is a wrong one."""

    name = "mine"
    summary = ""

    def __init__(self, opens: Callable[[int], Any]) -> None:
        super().__init__()
        object.__setattr__(self, "opens", opens)

    def open(self, size: int) -> Pool:
        return self.opens(size)  # type: ignore[attr-defined, no-any-return]


def pool(**methods: Any) -> Callable[[int], Pool]:
    """What opens best fit's pool with other methods."""
    return lambda size: type("MyPool", (FitPool,), methods)(size, 512, lambda holes, nbytes: holes.smallest(nbytes))


@pytest.mark.parametrize(
    ("opens", "says"),
    [
        (lambda size: None, "open 67108864 None a Pool"),
        (lambda size: FitPool, "the class FitPool a Pool"),
        (lambda size: BestFit().open(2 * size), "134217728 67108864"),
        (pool(_take=lambda self, nbytes, stays: 0), "864 is 0 live"),
        (pool(_take=lambda self, nbytes, stays: 512 * len(self.blocks())), "is 512 a block from 0 live"),
        (pool(_take=lambda self, nbytes, stays: 512 - 512 * len(self.blocks())), "is 0 a block from 512 live"),
        (pool(_take=lambda self, nbytes, stays: -512), "864 is -512 67108864"),
        (pool(_take=lambda self, nbytes, stays: self.size - 512), f"864 is {PLENTY - 512} {PLENTY}"),
        (pool(_take=lambda self, nbytes, stays: 1), "864 is 1 multiple of 512"),
        (pool(_take=lambda self, nbytes, stays: 0.0), "864 0.0 a float None"),
        (pool(_take=lambda self, nbytes, stays: (0, nbytes)), "864 (0, 1024) a tuple None"),
        (pool(_take=lambda self, nbytes, stays: None), "864 all 67108864 free"),
        (pool(allocate=lambda self, nbytes, *hints: 0), "allocate _take"),
        (pool(largest_hole=None), "largest_hole None bytes"),
    ],
)  # fmt: skip
def test_a_pool_gives_addresses_that_are_free(opens: Callable[[int], Any], says: str) -> None:
    with raises_naming(SetupError, "mine", *says.split()):
        plan(NETWORK, setup(allocator=Mine(opens)), machine(), PLENTY)


class Searching(Mine, PoolSearch):
    def search(self, attempt: Callable[..., Any], budget: int, fixed_order: bool) -> Any:
        return attempt(2 * budget) if self.opens(budget) else None  # type: ignore[attr-defined]


def test_a_search_returns_a_program_within_the_budget() -> None:
    with raises_naming(SetupError, "mine", "search", "None", "attempt"):
        plan(NETWORK, setup(allocator=Searching(lambda size: None)), machine(), PLENTY)
    with raises_naming(SetupError, "mine", "search", "1 MiB", "attempt"):
        plan(NETWORK, setup(allocator=Searching(BestFit().open)), machine(), 1 << 20)
    program = plan(NETWORK, setup(), machine(), PLENTY)
    assert program_of(setup(), program, program.arena_bytes) is program


# -- the executor asks the same way ------------------------------------------------------------------------------------


def train(wanted: Setup) -> None:
    network = lenet(batch=2, shape=(1, 8, 8))
    executor = Executor(network, wanted, 1 << 20, NoGpu())
    executor.train(np.ones((2, 1, 8, 8), np.float32), np.arange(2, dtype=np.int32))


def test_the_executor_refuses_what_the_planner_refuses() -> None:
    with raises_naming(SetupError, "mine", "offloads", "a list"):
        train(setup(offload=wrong("offload", "offloads", lambda right, context: [*right.offloads()])))
    with raises_naming(SetupError, "mine", "1600", "live"):
        train(setup(allocator=Mine(pool(_take=lambda self, nbytes, stays: 0))))


def test_a_rebuild_that_makes_nothing_is_an_error_of_its_module_even_of_ours() -> None:
    module = wrong("recompute", "chain", lambda *given: (), DropSome(kinds=("pool",)))
    type(module).__module__ = "refimpl.somewhere"
    with raises_naming(SetupError, "mine", "chain(pool2, step 16)", "does not make pool2", "fc3 backward"):
        train(setup(recompute=module))
    with raises_naming(SetupError, "mine", "chain(pool3, step 23)", "does not make pool3", "fc4 backward"):
        plan(NETWORK, setup(recompute=module), machine(), PLENTY)
