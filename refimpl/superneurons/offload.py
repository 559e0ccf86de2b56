"""SuperNeurons' offload and prefetch (§3.3.1): what checkpoints put out leaves, and is back some steps ahead.

What leaves is Y, a layer's output, and it is the *producer* that sends it, right behind its forward; it is let go after
its last forward use.  It comes back a fixed number of backward steps before the first that needs it: three in the
published curve, in which fully connected layers' outputs leave too, though the text speaks of convolutions only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from refimpl.network import Step, Tensor
from refimpl.planner.slots import Feature
from refimpl.planner.walk import Walk

DISTANCE = 3  #: steps


@dataclass(frozen=True)
class OffloadOutputs:
    """Y of every layer of the chosen kinds, unless it would be back before it is gone."""

    kinds: tuple[str, ...]
    name: str
    summary: str
    distance: int = DISTANCE  #: of the prefetch that goes with it
    needs: ClassVar[frozenset[Feature]] = frozenset({"release"})
    offers: ClassVar[frozenset[Feature]] = frozenset({"offload"})

    def bind(self, walk: Walk) -> BoundOffload:
        return BoundOffload(self, walk)


CHECKPOINTS = OffloadOutputs(("conv", "fc"), "superneurons-checkpoints", "what every CONV and FC puts out")

#: The published peaks of ResNet under recomputation are those of a network whose structure layers' outputs leave too,
#: each fetched when a step needs it.
ALL_CHECKPOINTS = OffloadOutputs(
    ("conv", "fc", "fork", "join", "concat"),
    "superneurons-all-checkpoints",
    "what every CONV, FC, FORK, JOIN and CONCAT puts out",
    distance=0,
)


class BoundOffload:
    def __init__(self, module: OffloadOutputs, walk: Walk) -> None:
        self._reasons: dict[Tensor, str] = {}
        self._at: defaultdict[int, list[Tensor]] = defaultdict(list)
        for tensor in walk.maps_across():
            producer = walk.producer(tensor)
            if producer is None or producer.layer.kind not in module.kinds or tensor in walk.fates:
                continue
            if comes_back(walk, tensor, module.distance) > walk.last_forward_use(tensor) + 1:
                self._reasons[tensor] = f"{producer.layer.name} puts it out"
                self._at[walk.last_forward_write(tensor, walk.network.depth + 1)].append(tensor)

    def offloads(self) -> Mapping[Tensor, str]:
        return self._reasons

    def leaves(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())


def comes_back(walk: Walk, tensor: Tensor, distance: int) -> int:
    """Number of the step, perhaps a forward one, that is `distance` steps ahead of the first backward use."""
    return walk.first_backward_use(tensor) - distance


@dataclass(frozen=True)
class Ahead:
    """Every map that is gone comes back a fixed number of steps before backward needs it.

    That is a map that left, or one that a cache pushed out.
    """

    distance: int = DISTANCE
    name: ClassVar[str] = "superneurons-ahead"
    summary: ClassVar[str] = "three steps before a map is needed"
    needs: ClassVar[frozenset[Feature]] = frozenset({"offload"})
    offers: ClassVar[frozenset[Feature]] = frozenset()
    order: ClassVar[Literal["early", "late"]] = "early"

    def bind(self, walk: Walk) -> BoundAhead:
        return BoundAhead(self.distance, walk)


class BoundAhead:
    def __init__(self, distance: int, walk: Walk) -> None:
        self._at: defaultdict[int, list[Tensor]] = defaultdict(list)
        for tensor in walk.maps_across():
            fate = walk.fates.get(tensor)
            if fate is None or fate.name == "offload":
                number = max(comes_back(walk, tensor, distance), walk.last_forward_use(tensor) + 1)
                self._at[number].append(tensor)

    def due(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())
