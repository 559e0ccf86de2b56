"""The modules that carry out fates, in the slots recompute, offload and prefetch; and one for the slot algorithms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar, Literal, NamedTuple

from refimpl.combined.fates import Fates, by_name
from refimpl.machine.seconds import fastest_seconds
from refimpl.network import Step, Tensor
from refimpl.planner import Context
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import Chooser, fastest_within
from refimpl.slots.baseline import Departures
from refimpl.slots.context import made_once

# -- recompute ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dropped(slots.Recompute):
    """Drops the maps whose fate is drop or again, and rebuilds each from what is on the device."""

    fates: Fates = field(default=Fates(), repr=False)
    name: ClassVar[str] = "fates"
    summary: ClassVar[str] = "the maps that fates=FILE drops"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> BoundDropped:
        return BoundDropped(self.fates, context)


class Path(NamedTuple):
    """Forward steps that run again, in order, and the kept or offloaded maps that they begin from."""

    steps: list[Step]
    sources: list[Tensor]


class BoundDropped:
    def __init__(self, fates: Fates, context: Context) -> None:
        maps = by_name(context)
        fates.check(maps)
        self._context = context
        self._again = {maps[name] for name in fates.named("again")}
        self._dropped = {maps[name]: None for name in fates.named("drop", "again")}
        self._saved = {tensor for tensor in maps.values() if tensor not in self._dropped}

    def drops(self) -> Mapping[Tensor, str]:
        return dict.fromkeys(self._dropped, "its fate is to be rebuilt")

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """Goes through backward and keeps in mind what is rebuilt, so that a source is released as early as can be.

        If a cache evicts what was rebuilt, its sources are rebuilt, too; what is made once has to be there.
        """
        read: defaultdict[Tensor, dict[int, None]] = defaultdict(dict)
        if self._dropped:
            read.update({x: {last: None} for x, last in made_once(self._context.network).items() if last})
        there: dict[Tensor, int] = {}  # rebuilt map → its last use
        network = self._context.network
        for step in network.steps[network.depth :] if self._dropped else ():
            for tensor in self._dropped_of(step):
                if tensor not in there:
                    path = self._path(self._dropped_of(step), step, there.__contains__)
                    for source in path.sources:
                        read[source][step.number] = None
                    freed = {x for _, means in self._with_means(path.steps, step) for x in means}
                    made = {y: None for again in path.steps for y in (*again.writes, *again.updates)}
                    there |= {y: self._context.last_use(y) for y in made if y not in freed}
            there = {tensor: last for tensor, last in there.items() if last > step.number}
        return {tensor: [*numbers] for tensor, numbers in read.items() if tensor.managed}

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return tensor in self._dropped and not step.forward

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """The forward steps to run again: in backward for all dropped maps that the step reads, at one go."""
        wanted = self._dropped_of(step)
        if step.forward or tensor not in wanted:
            wanted = [tensor]
        path = self._path([x for x in wanted if not is_there(x)], step, is_there)
        chain = self._with_means(path.steps, step)
        return [(again, [x for x in means if x is not tensor]) for again, means in chain]

    def _dropped_of(self, step: Step) -> list[Tensor]:
        """The dropped maps that a step reads."""
        return [tensor for tensor in (*step.reads, *step.updates) if tensor in self._dropped]

    def _path(self, wanted: list[Tensor], step: Step, is_there: Callable[[Tensor], bool]) -> Path:
        """From the maps that are there or saved to the wanted ones, walked from its end."""
        again: dict[int, Step] = {}
        sources: dict[Tensor, None] = {}
        met = set(wanted)
        waiting = [*wanted]
        while waiting:
            tensor = waiting.pop()
            for one in self._context.uses[tensor]:
                if not one.forward or one.number >= step.number or tensor not in (*one.writes, *one.updates):
                    continue
                again[one.number] = one
                for x in (*one.reads, *one.updates):
                    if x in met:
                        continue
                    met.add(x)
                    if x in self._saved:
                        sources[x] = None
                    elif not is_there(x):
                        waiting.append(x)
        return Path([again[number] for number in sorted(again)], [*sources])

    def _with_means(self, again: list[Step], step: Step) -> list[tuple[Step, list[Tensor]]]:
        """Each step with the maps that were only means: not used by `step`, and not kept for a later one."""
        last = {x: one for one in again for x in one.uses}
        return [(one, [x for x in one.uses if last[x] is one and self._is_means(x, step)]) for one in again]

    def _is_means(self, x: Tensor, step: Step) -> bool:
        if x in self._saved or x in step.uses:
            return False
        return x in self._again or self._context.last_use(x) <= step.number


# -- offload -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offloaded(slots.Offload):
    """Offloads the maps whose fate that is."""

    late: bool = False  #: a map leaves after its last forward use; else as soon as it is complete
    fates: Fates = field(default=Fates(), repr=False)
    name: ClassVar[str] = "fates"
    summary: ClassVar[str] = "the maps that fates=FILE offloads"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> BoundOffloaded:
        return BoundOffloaded(self, context)


class BoundOffloaded(Departures):
    def __init__(self, module: Offloaded, context: Context) -> None:
        super().__init__()
        maps = by_name(context)
        module.fates.check(maps)
        leaving = [maps[name] for name in module.fates.named("offload")]
        backward = context.network.depth + 1
        for tensor in sorted(leaving, key=lambda tensor: first_read(tensor, context)):
            made = context.last_forward_use(tensor) if module.late else context.last_forward_write(tensor, backward)
            self.add(max(1, made), tensor, "its fate is to be offloaded")


def first_read(tensor: Tensor, context: Context) -> tuple[int, int]:
    """The first step that reads a map, and the map's place among those that it reads.

    A step that only updates it in place counts where no step reads it: a softmax's backward may work so.
    """
    uses = context.uses[tensor]
    step = next((step for step in uses if tensor in step.reads), uses[-1])
    return step.number, (*step.reads, *step.updates).index(tensor)


# -- prefetch ----------------------------------------------------------------------------------------------------------

AFTER_EVICTION = 3  #: steps before its next use that an evicted map is prefetched, as in SuperNeurons


@dataclass(frozen=True)
class InTime(slots.Prefetch):
    """Copies in as late as the machine's model allows, and no earlier than memory allows."""

    lead: float = 1.0  #: times the seconds of a copy that it may take
    guard: bool = True  #: whether memory has a say
    slack: float = 0.0  #: the share of the budget that is left free
    order: Literal["early", "between", "late"] = "late"
    name: ClassVar[str] = "in-time"
    summary: ClassVar[str] = "as late as the machine's model allows, and no earlier than memory allows"
    needs: ClassVar = frozenset({"offload"})

    @property
    def follows_pool(self) -> bool:
        return self.guard

    def bind(self, context: Context) -> BoundInTime:
        return BoundInTime(self, context)


class BoundInTime:
    """A map that found no hole at its step is due again at every later one, until the step that needs it."""

    def __init__(self, module: InTime, context: Context) -> None:
        self._needed = {tensor: context.first_backward_use(tensor) for tensor in context.maps_across()}
        away = [tensor for tensor in self._needed if context.is_offloaded(tensor) and self._needed[tensor]]
        away.sort(key=lambda tensor: (self._needed[tensor], tensor.name))
        begins = latest_begins(context, away, module.lead)
        if module.guard:
            room = int(context.budget * (1 - module.slack))
            begins = with_room(context, {tensor: begins[tensor] for tensor in away}, room)
        for tensor, needed in self._needed.items():  # kept, and evicted by a cache
            if tensor not in context.fates and needed:
                begins[tensor] = max(needed - AFTER_EVICTION, context.last_forward_use(tensor) + 1)
        self._at: defaultdict[int, list[Tensor]] = defaultdict(list)
        for tensor, number in begins.items():
            self._at[number].append(tensor)
        self._due: list[Tensor] = []

    def due(self, step: Step) -> Sequence[Tensor]:
        self._due += self._at.get(step.number, ())
        self._due = [tensor for tensor in self._due if self._needed[tensor] >= step.number]
        return tuple(self._due)


def latest_begins(context: Context, away: Sequence[Tensor], lead: float) -> dict[Tensor, int]:
    """Map → the last step at which its copy in can begin, if steps take no longer than with their fastest algorithms.

    Args:
        context: the network and the machine.
        away: in the order in which backward needs them; one engine copies them one after another.
        lead: times the seconds of a copy that it may take.
    """
    starts = [0.0]
    for seconds in fastest_seconds(context.network, context.machine):
        starts.append(starts[-1] + seconds)
    begins: dict[Tensor, int] = {}
    next_begins = starts[-1]
    for tensor in reversed(away):
        needed, earliest = context.first_backward_use(tensor), context.last_forward_use(tensor) + 1
        next_begins = min(starts[needed - 1], next_begins) - lead * context.machine.copy_seconds(tensor.nbytes, "in")
        number = needed
        while number > earliest and starts[number - 1] > next_begins:
            number -= 1
        begins[tensor] = number
    return begins


def with_room(context: Context, begins: Mapping[Tensor, int], room: int) -> dict[Tensor, int]:
    """The same steps, or later ones, so that what each step must hold and the maps that are back fit into `room`."""
    held, later = must_hold(context), {}
    for tensor, begin in begins.items():
        number = context.first_backward_use(tensor)
        while number > begin and held[number - 1] + tensor.nbytes <= room:
            number -= 1
            held[number] += tensor.nbytes
        later[tensor] = number
    return later


def must_hold(context: Context) -> list[int]:
    """Bytes that must be on the device at each step, by its number: no workspace, and nothing back before its use."""
    change = [0] * (len(context.network.steps) + 2)
    change[0] = context.network.resident_bytes
    for tensor, uses in context.uses.items():
        if not uses:
            continue
        first, last = 1 if tensor in context.batch else uses[0].number, context.last_use(tensor)
        spans = [(first, last)]
        if tensor in context.fates:
            spans = [(first, context.last_forward_use(tensor))]
            if back := context.first_backward_use(tensor):
                spans.append((back, last))
        for begin, end in spans:
            change[begin] += tensor.nbytes
            change[end + 1] -= tensor.nbytes
    return [*accumulate(change)]


# -- algorithms --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnceDrained(slots.Algorithms):
    """The fastest algorithm whose workspace fits what is free when all copies out are done; else the least."""

    name: ClassVar[str] = "once-drained"
    summary: ClassVar[str] = "the fastest whose workspace fits what is free once copies have drained"

    def bind(self, context: Context) -> Chooser:
        return Chooser(context, lambda step, choices, largest_hole, drained: fastest_within(choices, drained))
