"""SuperNeurons' prefetch (§3.3.1): an offloaded map is back a fixed number of steps before backward needs it.

Three steps in the published curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from refimpl.slots import questions as slots
from refimpl.slots.baseline import Arrivals
from refimpl.slots.context import Context
from refimpl.slots.errors import SetupError

DISTANCE = 3  #: steps


def check_distance(distance: int) -> None:
    """Refuse a distance that points past the step that needs the map."""
    if distance < 0:
        raise SetupError(f"a prefetch distance of {distance} steps; it must be 0 or more")


@dataclass(frozen=True)
class Ahead(slots.Prefetch):
    """Prefetches every map that is not on the device a fixed number of steps before backward needs it.

    That is a map that was offloaded, or evicted by a cache; a dropped map is not fetched but rebuilt.
    """

    distance: int = DISTANCE  #: steps; 0 prefetches a map at the beginning of the step that needs it
    order: Literal["early", "between", "late"] = "early"
    name: ClassVar = "superneurons-ahead"
    summary: ClassVar = "an offloaded or evicted map is prefetched a fixed number of steps before it is needed"
    needs: ClassVar = frozenset({"offload"})

    def __post_init__(self) -> None:
        check_distance(self.distance)

    def bind(self, context: Context) -> Arrivals:
        arrivals = Arrivals()
        for tensor in context.maps_across():
            fate = context.fates.get(tensor)
            if fate is None or fate.name == "offload":
                number = context.first_backward_use(tensor) - self.distance
                arrivals.add(max(number, context.last_forward_use(tensor) + 1), tensor)
        return arrivals
