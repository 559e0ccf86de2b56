"""SuperNeurons' offload (§3.3.1): the outputs of checkpoints are copied to the host.

It is Y, a layer's output, and the *producer* sends it, right after its forward (where a ReLU overwrites the map in
place, after that one's).  The map is released after its last forward use, though the copy may still run.  The paper's
text speaks of convolutions only; in its published curve the outputs of fully connected layers are offloaded too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.network.kinds import LayerKind, with_new
from refimpl.slots import questions as slots
from refimpl.slots.baseline import Departures
from refimpl.slots.context import Context
from refimpl.superneurons.prefetch import DISTANCE, check_distance


@dataclass(frozen=True)
class OffloadOutputs(slots.Offload):
    """Y of every layer of the chosen kinds, unless it would be prefetched before it has left."""

    kinds: tuple[LayerKind, ...]
    name: str
    summary: str
    distance: int = DISTANCE  #: of the prefetch that goes with it, steps
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def __post_init__(self) -> None:
        check_distance(self.distance)

    def bind(self, context: Context) -> BoundOffloadOutputs:
        return BoundOffloadOutputs(self, context)


#: With the matrix products among the kinds that the paper did not know (ours).
PRODUCTS = with_new(("conv", "fc"), lambda traits: traits.work == "product")
CHECKPOINTS = OffloadOutputs(PRODUCTS, "superneurons-checkpoints", "the outputs of every CONV and FC")

#: As the paper's text has it, for the preset `superneurons-eager`, which prefetches nothing.
CONVOLUTIONS = OffloadOutputs(
    with_new(("conv",), lambda traits: traits.work == "product"),
    "superneurons-convolutions", "the outputs of every CONV", distance=0,
)  # fmt: skip

#: For the published peaks of ResNet under recomputation: the structure layers' outputs are offloaded too, and each is
#: fetched when a step needs it.
ALL_CHECKPOINTS = OffloadOutputs(
    with_new((*PRODUCTS, "fork", "join", "concat"), lambda traits: traits.work == "structure"),
    "superneurons-all-checkpoints",
    "the outputs of every CONV, FC, FORK, JOIN and CONCAT",
    distance=0,
)


class BoundOffloadOutputs(Departures):
    def __init__(self, module: OffloadOutputs, context: Context) -> None:
        super().__init__()
        for tensor in context.maps_across():
            producer = context.producer(tensor)
            if producer is None or producer.layer.kind not in module.kinds or tensor in context.fates:
                continue
            back = context.first_backward_use(tensor) - module.distance  # when it is prefetched
            if back > context.last_forward_use(tensor) + 1:
                last = context.last_forward_write(tensor, before=context.network.depth + 1)
                self.add(last, tensor, f"{producer.layer.name} puts it out")
