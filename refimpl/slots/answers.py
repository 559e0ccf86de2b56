"""What a setup and a plan refuse: a wrong module, and a wrong answer of one that is not the project's.

An error names the module, its method, what it returned and what to return.  This file is imported for such a module
alone, or to say what is wrong; the project's own modules plan without it.
"""

from __future__ import annotations

import inspect
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from refimpl.memory import Allocator, Pool
from refimpl.memory.tiers import pinned_size
from refimpl.network import Call, Layer, Step, Tensor
from refimpl.slots import planner_only, questions
from refimpl.slots.context import Context
from refimpl.slots.errors import SetupError
from refimpl.text import shown, size

TENSORS = "return tensors, such as those of step.reads; () for none"
REASONS = "return tensors with reasons, {tensor: 'why'}; {} for none"
NUMBERS = "return each checkpoint with the numbers of the backward steps that rebuild from it, {tensor: [number, …]}"
PAIRS = "return pairs of a forward step and the tensors to release after it, [(layer.forward, ()), …]"

#: Feature that is needed → the error text where no module of the setup offers it.
WITHOUT = {
    "release": "needs a liveness that releases maps between forward and backward; set liveness=layer-wise",
    "offload": "prefetches offloaded maps, and nothing is offloaded; set an offload, or prefetch=none",
    "rebuild": "needs a recompute that can rebuild dropped maps; set a recompute",
    "eviction": "needs a cache that can evict; set a cache",
}


def described(value: object) -> str:
    """A wrong answer in an error: `the name 'conv1'`, `17 (an int)`, `None`."""
    if value is None or isinstance(value, (bool, Tensor, Step)):
        return str(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value).__name__
    if type(value).__repr__ is object.__repr__:
        return f"an object of the class {kind}"
    named = "the name " if isinstance(value, str) else "the layer " if isinstance(value, Layer) else ""
    return f"{named}{shown(value)} ({'an' if kind[0] in 'aeio' else 'a'} {kind})"


class Answers:
    """A bound object whose answers are checked; whatever else it has, such as `limits`, is its own."""

    protocol: type

    def __init__(self, module: questions.Module[Any], bound: Any, context: Context) -> None:
        self._module, self._bound, self._context = module, bound, context
        for name, asked in vars(self.protocol).items():
            if inspect.isfunction(asked) and not name.startswith("_"):
                self._check_method(name, ", ".join(list(inspect.signature(asked).parameters)[1:]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bound, name)

    def _check_method(self, name: str, arguments: str) -> None:
        """Whether the bound object has a method that takes these arguments."""
        method = getattr(self._bound, name, None)
        if isinstance(self._bound, type) or not callable(method):
            raise self._refusal("bind(context)", self._bound, f"return an object with a method {name}({arguments})")
        try:
            inspect.signature(method).bind(*filter(None, arguments.split(", ")))
        except TypeError as error:
            wanted = ", ".join(filter(None, ("self", arguments)))
            raise self._wrong(f"{name}()", f"has other arguments ({error}); write def {name}({wanted})") from None

    def _refusal(self, question: str, answer: object, instead: str) -> SetupError:
        return self._wrong(question, f"returned {described(answer)}; {instead}")

    def _wrong(self, question: str, what: str) -> SetupError:
        return SetupError(f"{self._module.name}: {question} {what}")

    def _tensor(self, question: str, x: object, instead: str) -> Tensor:
        if not isinstance(x, Tensor):
            raise self._refusal(question, x, instead)
        if x not in self._context.uses:
            stays = x in self._context.network.resident
            kind = f"a {x.kind} and stays for the whole training" if stays else "not of this network"
            raise self._wrong(question, f"returned {x}, which is {kind}; return tensors of context.uses")
        return x

    def _all(self, question: str, answer: Any, instead: str) -> tuple[Any, ...]:
        if isinstance(answer, str) or not isinstance(answer, Iterable):
            raise self._refusal(question, answer, instead)
        return tuple(answer)

    def _tensors(self, question: str, answer: Any) -> tuple[Tensor, ...]:
        return tuple([self._tensor(question, x, TENSORS) for x in self._all(question, answer, TENSORS)])

    def _at(self, step: Step, method: str) -> Sequence[Tensor]:
        """What a method answers at a step: tensors."""
        answer, uses = getattr(self._bound, method)(step), self._context.uses
        if type(answer) in (list, tuple) and all(type(x) is Tensor and x in uses for x in answer):
            return cast(Sequence[Tensor], answer)
        return self._tensors(f"{method}(step {step.number})", answer)

    def _items(self, question: str, answer: Any, instead: str) -> dict[Tensor, Any]:
        if not isinstance(answer, Mapping):
            first = next(iter(answer), answer) if isinstance(answer, (list, tuple, set)) else answer
            raise self._refusal(question, answer if isinstance(first, Tensor) else first, instead)
        return {self._tensor(question, x, instead): value for x, value in answer.items()}

    def _reasons(self, question: str, answer: Any) -> dict[Tensor, str]:
        """Maps with the reason of each."""
        reasons = self._items(question, answer, REASONS)
        for x, reason in reasons.items():
            if not isinstance(reason, str):
                raise self._wrong(question, f"gives {x} the reason {described(reason)}; {REASONS}")
            if x.kind not in ("map", "input"):
                raise self._wrong(question, f"returned {x}, a {x.kind}; only maps are offloaded or dropped")
        return reasons


class OffloadAnswers(Answers):
    protocol = questions.BoundOffload
    _named: Mapping[Tensor, str] = {}

    def offloads(self) -> Mapping[Tensor, str]:
        self._named = self._reasons("offloads()", self._bound.offloads())
        return self._named

    def leaves(self, step: Step) -> Sequence[Tensor]:
        leaving = self._at(step, "leaves")
        for x in leaving:
            if x not in self._named:
                what = f"returned {x}, which offloads() does not; return it there, with a reason"
                raise self._wrong(f"leaves(step {step.number})", what)
        return leaving


class LivenessAnswers(Answers):
    protocol = questions.BoundLiveness

    def dead(self, step: Step) -> Sequence[Tensor]:
        dead, context = self._at(step, "dead"), self._context
        for x in dead:
            used = context.uses[x]
            begun = used[0].number <= step.number < used[-1].number
            if begun and x not in context.fates and x not in context.batch:
                what = f"returned {x}, which {used[-1]} still uses; return it after context.last_use(tensor)"
                raise self._wrong(f"dead(step {step.number})", what)
        return dead


class PrefetchAnswers(Answers):
    protocol = questions.BoundPrefetch

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        order = getattr(self._module, "order", None)
        if order not in ("early", "between", "late"):
            raise self._wrong("order", f"is {order!r}; write 'early', 'between' or 'late'")

    def due(self, step: Step) -> Sequence[Tensor]:
        return self._at(step, "due")


class RecomputeAnswers(Answers):
    protocol = questions.BoundRecompute
    _dropped: Mapping[Tensor, str] = {}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._made: set[Tensor] = set()  # by the steps of any chain so far
        self._released: dict[Tensor, str] = {}  # the chain that releases a tensor
        self._promised: dict[Tensor, str] = {}  # the question whether it can be rebuilt

    def drops(self) -> Mapping[Tensor, str]:
        self._dropped = self._reasons("drops()", self._bound.drops())
        return self._dropped

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        first, last = self._context.network.depth + 1, len(self._context.network.steps)
        sources = self._items("sources()", self._bound.sources(), NUMBERS)
        for x, numbers in sources.items():
            sources[x] = self._all(f"sources(), of {x},", numbers, NUMBERS)
            for number in sources[x]:
                if not isinstance(number, int):
                    raise self._refusal(f"sources(), of {x},", number, NUMBERS)
                if not first <= number <= last:
                    raise self._wrong("sources()", f"names step {number} for {x}; backward has {first} to {last}")
        return sources

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        answer, question = self._bound.can_rebuild(tensor, step), f"can_rebuild({tensor}, step {step.number})"
        if not isinstance(answer, bool):
            raise self._refusal(question, answer, "return True or False")
        if answer and not (tensor.kind == "map" and self._context.can_be_rebuilt(tensor)):
            raise self._wrong(question, "returned True, and no forward step rebuilds it; return False")
        if answer:
            self._promised[tensor] = question
        return answer

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        question = f"chain({tensor}, step {step.number})"
        if tensor in self._promised:
            question += f", after {self._promised[tensor]} returned True,"
        if tensor not in self._dropped and tensor in self._released:
            what = f"releases {tensor}, which {step} still needs; leave it out there"
            raise self._wrong(self._released[tensor], what)
        answer = self._bound.chain(tensor, step, is_there)
        chain = [self._pair(question, one, tensor, step) for one in self._all(question, answer, PAIRS)]
        last = self._context.network.steps[self._context.last_forward_write(tensor, step.number) - 1]
        if all(again is not last for again, _ in chain):
            if tensor not in self._dropped and tensor not in self._promised:
                return ()  # `lost` says which module should not have released it
            what = f"does not run {last}, the last to write {tensor} before {step}"
            raise self._wrong(question, f"{what}; return it too")
        self._check_order(question, [again for again, _ in chain], is_there)
        for again, done in chain:
            self._made.update(again.writes)
            self._released.update(dict.fromkeys(done, question))
        return chain

    def _pair(self, question: str, one: Any, tensor: Tensor, step: Step) -> tuple[Step, Sequence[Tensor]]:
        if not isinstance(one, (tuple, list)) or len(one) != 2 or not isinstance(one[0], Step):
            raise self._refusal(question, one, PAIRS)
        if not one[0].forward or one[0].number >= step.number:
            raise self._wrong(question, f"runs {one[0]} again; return forward steps before step {step.number}")
        done = self._tensors(f"{question}, after {one[0]},", one[1])
        if tensor in done:
            raise self._wrong(question, f"releases {tensor} itself after {one[0]}; leave it out there")
        return one[0], done

    def _check_order(self, question: str, again: list[Step], is_there: Callable[[Tensor], bool]) -> None:
        made: set[Tensor] = set()
        for place, one in enumerate(again):
            for x in (*one.reads, *one.updates):
                if x in made or is_there(x):
                    continue
                if later := next((other for other in again[place + 1 :] if x in other.writes), None):
                    raise self._wrong(question, f"runs {one} before {later}, which makes {x}; return them in order")
                if x in one.updates and x not in self._made:
                    raise self._wrong(question, f"begins at {x}, which {one} changes in place; begin earlier")
            made.update(one.writes)


class CacheAnswers(Answers):
    protocol = questions.BoundCache

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._here: set[Tensor] = set()
        self.touch = self._bound.touch

    def enter(self, tensor: Tensor) -> None:
        self._here.add(tensor)
        self._bound.enter(tensor)

    def leave(self, tensor: Tensor) -> None:
        self._here.discard(tensor)
        self._bound.leave(tensor)

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        question, answer = f"victim(locked, {now})", self._bound.victim(locked, now)
        if answer is None:
            return None
        victim = self._tensor(question, answer, "return a tensor that is on the device and not locked, or None")
        if victim in locked:
            raise self._wrong(question, f"returned {victim}, which is locked; return another tensor, or None")
        if victim not in self._here:
            raise self._wrong(question, f"returned {victim}, which is not on the device; forget a tensor in leave()")
        return victim


class AlgorithmsAnswers(Answers):
    protocol = questions.BoundAlgorithms

    def choose(self, step: Step, call: Call, largest_hole: int, free_when_drained: int) -> Any:
        choice = self._bound.choose(step, call, largest_hole, free_when_drained)
        if choice not in self._context.machine.choices(call):
            question = f"choose(step {step.number}, {call.function})"
            raise self._refusal(question, choice, "return one of context.machine.choices(call)")
        return choice


class PinnedAnswers(Answers):
    protocol = questions.BoundPinned
    _placed = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        limits = getattr(self._bound, "limits", None)
        if not isinstance(limits, Mapping) or not limits or not limits.keys() <= self._context.tiers.keys():
            raise self._wrong("limits", f"is {described(limits)}; write bytes for tiers of context.tiers")

    def place(self, tensor: Tensor) -> questions.Place | None:
        question, place = f"place({tensor})", self._bound.place(tensor)
        if place is None:
            if not self._placed and pinned_size(tensor.nbytes) <= max(self._bound.limits.values()):
                raise self._wrong(question, "returned None, and all bytes are free; return a slots.Place(address)")
            return None
        self._placed = True
        if not isinstance(place, questions.Place) or not isinstance(place.address, int):
            raise self._refusal(question, place, "return a slots.Place(address), or None")
        if place.tier not in self._bound.limits:
            raise self._wrong(question, f"is in the tier {place.tier!r}, for which limits has no bytes")
        end, limit = place.address + tensor.nbytes, self._bound.limits[place.tier]
        if place.address < 0 or end > limit:
            raise self._wrong(question, f"has the bytes {place.address} to {end}, outside 0 to {limit}; return None")
        return place


class StoreAnswers(PinnedAnswers):
    protocol = planner_only.BoundStore


ANSWERS: dict[type, type[Answers]] = {
    questions.Recompute: RecomputeAnswers,
    questions.Offload: OffloadAnswers,
    questions.Liveness: LivenessAnswers,
    questions.Prefetch: PrefetchAnswers,
    questions.Cache: CacheAnswers,
    questions.Algorithms: AlgorithmsAnswers,
    questions.Pinned: PinnedAnswers,
}


def checked(module: questions.Module[questions.Bound], context: Context) -> questions.Bound:
    """The module, bound; each of its answers is checked."""
    kind = next(kind for slot, kind in ANSWERS.items() if isinstance(module, slot))
    kind = StoreAnswers if getattr(module, "uses_store", False) else kind
    return cast(questions.Bound, kind(module, module.bind(context), context))


class CheckedPool:
    """A pool whose addresses are checked; whatever else it has is its own."""

    def __init__(self, allocator: Allocator, size: int) -> None:
        pool = allocator.open(size)
        self._name, self._pool, self._starts = allocator.name, pool, list[int]()
        if not isinstance(pool, Pool):
            raise self._wrong(f"open({size}) returned {described(pool)}; return a Pool")
        if pool.size > size:
            raise self._wrong(f"open({size}) returned a pool of {pool.size} bytes; it may have {size} at most")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def _wrong(self, what: str) -> SetupError:
        return SetupError(f"{self._name}: {what}")

    @property
    def largest_hole(self) -> int:
        hole = self._pool.largest_hole
        if not isinstance(hole, int):
            raise self._wrong(f"largest_hole is {described(hole)}; return bytes, 0 where it is full")
        return hole

    def allocate(self, nbytes: int, *hints: bool) -> int | None:
        pool, starts = self._pool, self._starts
        try:
            address = pool.allocate(nbytes, *hints)
        except TypeError:  # from counting with the address, which is noted by then
            address = next((one for one in pool._live if not isinstance(one, int)), None)
            if address is None:
                raise
        if address is None:
            if not starts and pool.rounded(nbytes) <= pool.size:
                raise self._wrong(f"no address for a block of {nbytes} bytes, and all {pool.size} are free; return one")
            return None
        if why := self._why_wrong(address, nbytes):
            raise self._wrong(f"the address of a block of {nbytes} bytes is {described(address)}; {why}")
        insort(starts, address)
        return address

    def _why_wrong(self, address: Any, nbytes: int) -> str:
        """Empty for an address that a pool may give."""
        pool, starts = self._pool, self._starts
        if type(address) is not int:
            return "return an int, or None where no hole is large enough"
        if address < 0 or address + pool.rounded(nbytes) > pool.size or address % pool.granularity:
            return f"return a multiple of {pool.granularity}, with all {pool.rounded(nbytes)} bytes within {pool.size}"
        if address not in pool._live:
            return "allocate() does not note the block: write _take(), and leave allocate() as it is"
        place = bisect_left(starts, address)
        for other in starts[max(place - 1, 0) : place + 1]:
            if other < address + pool.rounded(nbytes) and address < other + pool.block_bytes(other):
                return f"a block from {other} on is live there; return a hole's"
        return ""

    def free(self, address: int) -> int:
        del self._starts[bisect_left(self._starts, address)]
        return self._pool.free(address)


def not_within(name: str, found: Any, budget: int) -> SetupError:
    """The error where a search returns no program, or one that needs more than the budget."""
    needs = getattr(found, "arena_bytes", None)
    what = f"a program of {size(needs)}, and the budget is {size(budget)}" if needs else described(found)
    return SetupError(f"{name}: search() returned {what}; return a program that attempt() made within the budget")


def lost(setup: Any, context: Context, tensor: Tensor, step: Step) -> SetupError:
    """The error where a step, or a rebuild for it, needs a tensor that is not on the device and that nothing brings."""
    recompute, liveness, last = setup.recompute.name, setup.liveness.name, context.last_use(tensor)
    if context.is_dropped(tensor):
        return SetupError(
            f"{recompute}: chain({tensor}, step {step.number}) does not make {tensor}, which {step} needs"
        )
    if last >= step.number:
        why = "a rebuild for it needs" if tensor not in step.uses else "it needs"
        instead = f"dead() may return it from step {last} on, context.last_use(tensor)"
        return SetupError(f"{liveness}: {tensor} was released before {step}, and {why} it; {instead}")
    return SetupError(
        f"{recompute}: a chain for {step} begins at {tensor}, which is not on the device; name it with step "
        f"{step.number} in sources(), or begin earlier"
    )


def unmet(slot: str, modules: Mapping[str, Any], missing: Collection[str]) -> SetupError:
    """The error where no module offers what the one in `slot` needs; or where words in `needs`, `offers` are wrong."""
    for where, module in modules.items():
        for what in ("needs", "offers"):
            if not {*getattr(module, what)} <= WITHOUT.keys():
                words = ", ".join(map(repr, WITHOUT))
                return SetupError(f"{where}={module.name}: {what} is {getattr(module, what)!r}; write a set of {words}")
    return SetupError(f"{slot}={modules[slot].name} {WITHOUT[min(missing)]}")


def wrong_module(slot: str, module: object, bases: Mapping[str, type]) -> SetupError:
    """The error for what is not a module for `slot`; `bases`: slot → the base class of its modules."""
    kind = type(module).__name__
    if isinstance(module, bases[slot]):
        return SetupError(f"{slot}={kind}() has no name; write `name: ClassVar = ...` in the class {kind}")
    if isinstance(module, type):
        return SetupError(f"{slot}={module.__name__} is a class; write {module.__name__}()")
    if isinstance(module, str):
        how = f"Setup takes modules, and replace names: .replace({slot}={module!r})"
        return SetupError(f"{slot}={module!r} is a name; {how}")
    right = next((other for other, base in bases.items() if isinstance(module, base)), None)
    if right:
        return SetupError(f"{module.name} is a module for the slot {right}, not {slot}")  # type: ignore[attr-defined]
    base = f"refimpl.slots.{bases[slot].__name__}" if slot != "allocator" else "refimpl.memory.Allocator"
    return SetupError(f"{slot}={module!r} is not a module; write an instance of a subclass of {base}")
