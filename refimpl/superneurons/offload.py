"""SuperNeurons' offload and prefetch (§3.3.1): what checkpoints put out leaves, and is back some steps ahead.

What leaves is Y, a layer's output, and it is the *producer* that sends it, right behind its forward (where a ReLU
overwrites the map in place, behind that one's).  It is let go after its last forward use, though the copy may still
run.  It comes back a fixed number of steps before the first backward step that needs it: three in the published curve,
in which fully connected layers' outputs leave too, though the text speaks of convolutions only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from refimpl.network import Step, Tensor
from refimpl.planner import SetupError, slots
from refimpl.planner.context import PlanContext

DISTANCE = 3  #: steps


def check_distance(distance: int) -> None:
    """Refuse a distance that points behind the step that needs the map."""
    if distance < 0:
        raise SetupError(f"a prefetch distance of {distance} steps; it must be 0 or more")


@dataclass(frozen=True)
class OffloadOutputs(slots.Offload):
    """Y of every layer of the chosen kinds, unless it would have to come back before it has gone."""

    kinds: tuple[str, ...]
    name: str
    summary: str
    distance: int = DISTANCE  #: of the prefetch that goes with it, steps
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def __post_init__(self) -> None:
        check_distance(self.distance)

    def bind(self, context: PlanContext) -> BoundOffload:
        return BoundOffload(self, context)


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
    def __init__(self, module: OffloadOutputs, context: PlanContext) -> None:
        self._reasons: dict[Tensor, str] = {}
        self._at: defaultdict[int, list[Tensor]] = defaultdict(list)
        behind_forward = context.network.depth + 1
        for tensor in context.maps_across():
            producer = context.producer(tensor)
            if producer is None or producer.layer.kind not in module.kinds or tensor in context.fates:
                continue
            if (
                comes_back(context, tensor, module.distance) > context.last_forward_use(tensor) + 1
            ):  # else its gap is empty
                self._reasons[tensor] = f"{producer.layer.name} puts it out"
                self._at[context.last_forward_write(tensor, before=behind_forward)].append(tensor)

    def offloads(self) -> Mapping[Tensor, str]:
        return self._reasons

    def leaves(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())


def comes_back(context: PlanContext, tensor: Tensor, distance: int) -> int:
    """Number of the step, perhaps a forward one, that is `distance` steps ahead of the first backward use."""
    return context.first_backward_use(tensor) - distance


@dataclass(frozen=True)
class Ahead(slots.Prefetch):
    """Every map that is gone comes back a fixed number of steps before backward needs it.

    That is a map that left, or one that a cache pushed out; a map that was dropped is not fetched but rebuilt.
    """

    distance: int = DISTANCE  #: steps; 0 fetches a map as the step begins that needs it
    order: Literal["early", "between", "late"] = "early"
    needs: ClassVar = frozenset({"offload"})

    def __post_init__(self) -> None:
        check_distance(self.distance)

    @property
    def name(self) -> str:
        return "superneurons-ahead" if self.distance == DISTANCE else f"superneurons-ahead-{self.distance}"

    @property
    def summary(self) -> str:
        return f"what is gone comes back a fixed number of steps ahead: {self.distance}"

    def bind(self, context: PlanContext) -> BoundAhead:
        return BoundAhead(self.distance, context)


class BoundAhead:
    def __init__(self, distance: int, context: PlanContext) -> None:
        self._at: defaultdict[int, list[Tensor]] = defaultdict(list)
        for tensor in context.maps_across():
            fate = context.fates.get(tensor)
            if fate is None or fate.name == "offload":
                number = max(comes_back(context, tensor, distance), context.last_forward_use(tensor) + 1)
                self._at[number].append(tensor)

    def due(self, step: Step) -> Sequence[Tensor]:
        return self._at.get(step.number, ())
