"""Two small modules that the pages about slots show and use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor


@dataclass(frozen=True)
class OffloadFirst(slots.Offload):
    """The first `count` maps are offloaded after their last forward use."""

    count: int = 4
    name: ClassVar[str] = "first"
    summary: ClassVar[str] = "the first maps are offloaded"
    needs: ClassVar = frozenset({"release"})  # of the liveness: an offloaded map is released in between
    offers: ClassVar = frozenset({"offload"})  # to a prefetch

    def bind(self, context: Context) -> slots.Departures:
        maps = [tensor for tensor in context.maps_across() if tensor.kind == "map" and tensor not in context.fates]
        departures = slots.Departures()
        for tensor in maps[: self.count]:
            departures.add(context.last_forward_use(tensor), tensor, "among the first")
        return departures


@dataclass(frozen=True)
class Ahead(slots.Prefetch):
    """Each map is prefetched `distance` steps before its first backward use."""

    distance: int = 2
    name: ClassVar[str] = "ahead"
    summary: ClassVar[str] = "a fixed number of steps ahead"
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Fetching:
        return Fetching(context, self.distance)


class Fetching:
    def __init__(self, context: Context, distance: int) -> None:
        self.due_at: dict[int, list[Tensor]] = {}
        for tensor, fate in context.fates.items():
            if fate.name == "offload":
                number = max(context.first_backward_use(tensor) - distance, context.network.depth + 1)
                self.due_at.setdefault(number, []).append(tensor)

    def due(self, step: Step) -> Sequence[Tensor]:
        return self.due_at.get(step.number, ())
