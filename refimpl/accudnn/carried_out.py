"""AccUDNN's modules of the slots offload, prefetch and algorithms.

Each one decides by the model when it is bound, so that it works beside any other paper's modules; or it is given the
decision as data, so that a policy that has decided already can plan it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from refimpl.accudnn.choice import Decision, caps_within, choose
from refimpl.accudnn.performance_model import Candidate, Model, within
from refimpl.accudnn.schedule import scheduled
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import Chooser, least
from refimpl.slots.baseline import Arrivals, Departures
from refimpl.slots.context import Context


class Leaving(NamedTuple):
    """A map that leaves after a step, and why."""

    name: str
    step: int
    reason: str


class Leaves(Departures):
    """Offloads named maps that have no other fate."""

    def __init__(self, leaving: Iterable[Leaving], context: Context) -> None:
        super().__init__()
        named = {tensor.name: tensor for tensor in context.uses if tensor not in context.fates}
        for name, step, reason in leaving:
            if name in named:
                self.add(step, named[name], reason)


def leaving(reasons: Mapping[Candidate, str]) -> tuple[Leaving, ...]:
    """Each map after its last write, in the order of the writes."""
    return tuple(
        Leaving(one.name, one.last_write, reasons[one]) for one in sorted(reasons, key=lambda one: one.last_write)
    )


@dataclass(frozen=True)
class ModelGuided(slots.Offload):
    """The maps that the model chooses for the budget; all candidates where the model cannot train within it."""

    leaving: tuple[Leaving, ...] | None = field(default=None, repr=False)
    name: ClassVar[str] = "accudnn-model"
    summary: ClassVar[str] = "the maps that the model of time and memory chooses for the budget"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    @property
    def follows_pool(self) -> bool:
        return self.leaving is None

    def bind(self, context: Context) -> Leaves:
        if self.leaving is not None:
            return Leaves(self.leaving, context)
        decision = choose(Model.of(context), context.budget)
        return Leaves(leaving(decision.reasons), context) if decision else Everything().bind(context)


@dataclass(frozen=True)
class Everything(slots.Offload):
    """Every map that is idle over at least one step."""

    name: ClassVar[str] = "accudnn-everything"
    summary: ClassVar[str] = "every map that is idle between forward and backward, after its last write"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Leaves:
        return Leaves(leaving(dict.fromkeys(Model.of(context).candidates, "everything leaves")), context)


@dataclass(frozen=True)
class Late(slots.Prefetch):
    """As late as the deadlines allow and no earlier than memory allows, whatever module chose the maps."""

    coming: tuple[tuple[str, int], ...] | None = field(default=None, repr=False)  #: (map, step), in order
    name: ClassVar[str] = "accudnn-late"
    summary: ClassVar[str] = "as late as the deadlines allow, and no earlier than memory allows"
    order: Literal["early", "between", "late"] = field(default="early", init=False)
    needs: ClassVar = frozenset({"offload"})

    @property
    def follows_pool(self) -> bool:
        return self.coming is None

    def bind(self, context: Context) -> Arrivals:
        coming = self.coming
        if coming is None:
            coming = steps_of(offloaded_candidates(context), context.budget)
        arrivals, named = Arrivals(), {tensor.name: tensor for tensor in context.fates}
        for name, step in coming:
            if name in named:
                arrivals.add(step, named[name])
        return arrivals


def offloaded_candidates(context: Context) -> tuple[Model, list[Candidate]]:
    """The model, and the candidates that the setup offloads."""
    model = Model.of(context)
    offloaded = {tensor.name for tensor in context.fates if context.is_offloaded(tensor)}
    return model, [one for one in model.candidates if one.name in offloaded]


def steps_of(found: tuple[Model, Sequence[Candidate]], budget: int) -> tuple[tuple[str, int], ...]:
    """(map, step of its copy in), with workspaces that shrink where the budget makes them."""
    model, maps = found
    model = model.capped(caps_within(model, maps, budget) or {})
    schedule = scheduled(model, maps, budget)
    if schedule is None:  # the plan may fit nonetheless: the model keeps maps alive that a cache would evict
        return tuple((one.name, one.next_use) for one in sorted(maps, key=lambda one: one.next_use))
    return tuple((one.name, step) for one, step in schedule[0].items())


@dataclass(frozen=True)
class Capped(slots.Algorithms):
    """The fastest algorithm within the workspace that the model leaves a step; where it leaves any, the fastest."""

    caps: tuple[tuple[int, int], ...] | None = field(default=None, repr=False)  #: (step, bytes)
    name: ClassVar[str] = "accudnn-capped"
    summary: ClassVar[str] = "the fastest algorithm within the workspace that the model leaves the step"
    adapts: ClassVar[bool] = False

    @property
    def follows_pool(self) -> bool:
        return self.caps is None

    def bind(self, context: Context) -> Chooser:
        caps = (
            caps_within(*offloaded_candidates(context), context.budget) or {} if self.caps is None else dict(self.caps)
        )
        return Chooser(context, lambda step, choices, *_: within(choices, caps.get(step.number)) or least(choices))


def modules_of(decision: Decision) -> tuple[ModelGuided, Late, Capped]:
    """The three modules that carry out a decision."""
    coming = tuple((one.name, step) for one, step in decision.coming.items())
    return ModelGuided(leaving(decision.reasons)), Late(coming), Capped(tuple(sorted(decision.caps.items())))
