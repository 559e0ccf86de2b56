"""A solution of lab A3: as few cheap maps are dropped as the budget asks for; what came first is evicted first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor

SHARE = 0.95  #: of the budget that the books may fill: the rest is lost between the blocks


@dataclass(frozen=True)
class Rebuild(slots.Recompute):
    """Cheap maps are dropped where a step would not fit; what is rebuilt stays until its last use."""

    name: ClassVar[str] = "my-recompute"
    summary: ClassVar[str] = "as few cheap maps are dropped as the budget asks for"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> Rebuilding:
        return Rebuilding(context)


class Rebuilding:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.dropped = as_few_as_needed(context)

    def drops(self) -> Mapping[Tensor, str]:
        return dict.fromkeys(self.dropped, "cheap to rebuild, and a step is too full")

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """What the chain of each step of backward reads, and no chain makes."""
        found: dict[Tensor, dict[int, None]] = {}
        for step in self.context.network.steps[self.context.network.depth :]:
            for tensor in (*step.reads, *step.updates):
                if tensor in self.dropped:
                    for again, _ in self.chain(tensor, step, lambda _: False):
                        for x in again.reads:
                            if x.managed and x not in self.dropped:
                                found.setdefault(x, {})[step.number] = None
        return {x: [*numbers] for x, numbers in found.items()}

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return tensor in self.dropped

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """From the maps that are there on: the makers of the map, before them the makers of what those read."""
        found: dict[Step, None] = {}
        waiting = [(tensor, step.number)]
        while waiting:
            wanted, before = waiting.pop()
            for maker in makers(self.context, wanted):
                if maker.number < before and maker not in found:
                    found[maker] = None
                    waiting += [(x, maker.number) for x in maker.reads if x in self.dropped and not is_there(x)]
        return [(maker, ()) for maker in sorted(found, key=lambda one: one.number)]


def makers(context: Context, tensor: Tensor) -> list[Step]:
    """The forward steps that write a map, or change it in place."""
    return [step for step in context.uses[tensor] if step.forward and tensor in (*step.writes, *step.updates)]


def as_few_as_needed(context: Context) -> dict[Tensor, None]:
    """At the fullest step the cheapest map that waits there is dropped, again and again, until every step fits."""
    waiting, full = cheapest_first(context), books(context)
    dropped: dict[Tensor, None] = {}  # in order, so that two plans are alike
    ends = {tensor: context.last_use(tensor) for tensor in context.uses}
    while True:
        step = max(range(len(full)), key=full.__getitem__)
        if full[step] <= SHARE * context.budget:
            return dropped
        here = (tensor for tensor in waiting if step in idle(context, tensor) and tensor not in dropped)
        tensor = next(here, None)
        if tensor is None:
            full[step] = 0  # nothing more can leave; the cache does the rest
            continue
        dropped[tensor] = None
        for number in idle(context, tensor):
            full[number] -= tensor.nbytes
        for x in (x for maker in makers(context, tensor) for x in maker.reads if x.managed):
            for number in range(ends[x] + 1, ends[tensor] + 1):  # a checkpoint stays for the rebuild
                full[number] += x.nbytes
            ends[x] = max(ends[x], ends[tensor])


def cheapest_first(context: Context) -> list[Tensor]:
    """The maps that cheap layers alone have made, by the seconds that each byte costs."""

    def price(tensor: Tensor) -> float:
        calls = (call for maker in makers(context, tensor) for call in maker.calls)
        return sum(map(context.machine.seconds, calls)) / tensor.nbytes

    cheap = (
        tensor
        for tensor in context.maps_across()
        if context.can_be_rebuilt(tensor)
        and all(maker.layer.traits.work == "pass" for maker in makers(context, tensor))
    )
    return sorted(cheap, key=price)


def books(context: Context) -> list[int]:
    """Step number → bytes on the device if nothing is dropped, with the fastest algorithms' workspace."""
    full = [0] * (len(context.network.steps) + 1)
    for tensor, uses in context.uses.items():
        for number in range(uses[0].number, context.last_use(tensor) + 1) if uses else ():
            full[number] += tensor.nbytes
    for step in context.network.steps:
        spaces = (context.machine.choices(call)[0].workspace_bytes for call in step.calls if call.choosable)
        full[step.number] += context.network.resident_bytes + max(spaces, default=0)
    return full


def idle(context: Context, tensor: Tensor) -> range:
    """The steps between a map's last use in forward and its first in backward."""
    return range(context.last_forward_use(tensor) + 1, context.first_backward_use(tensor))


@dataclass(frozen=True)
class Evict(slots.Cache):
    """What came first goes first: forward made it first, so backward needs it last."""

    name: ClassVar[str] = "my-cache"
    summary: ClassVar[str] = "what came first goes first"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"eviction", "offload"})

    def bind(self, context: Context) -> Evicting:
        return Evicting()


class Evicting:
    """Answers for one plan."""

    def __init__(self) -> None:
        self.here: dict[Tensor, None] = {}  # in the order of arrival

    def enter(self, tensor: Tensor) -> None:
        self.here[tensor] = None

    def leave(self, tensor: Tensor) -> None:
        del self.here[tensor]

    def touch(self, tensor: Tensor) -> None:
        pass

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        return next((tensor for tensor in self.here if tensor not in locked), None)


recompute, cache = Rebuild(), Evict()
