"""vDNN's offload (§3.2): the inputs of chosen layers are copied to the host.

It is X, a layer's input, and the last layer that reads it sends it (`refimpl.planner.last_consumer`).  A map that
several layers read is offloaded if any of them is of a chosen kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.network.kinds import LayerKind, with_new
from refimpl.planner import slots
from refimpl.planner.context import PlanContext
from refimpl.planner.last_consumer import LastConsumerSends


@dataclass(frozen=True)
class OffloadInputs(slots.Offload):
    """X of every layer of the chosen kinds: CONV, POOL and CONCAT for vDNN-all, CONV alone for vDNN-conv."""

    kinds: tuple[LayerKind, ...]
    name: str
    summary: str
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: PlanContext) -> LastConsumerSends:
        return LastConsumerSends([layer for layer in context.network.layers if layer.kind in self.kinds], context)


#: All layers of the paper's feature extraction whose X is a buffer of its own; a ReLU works in place.  Without CONCAT
#: GoogLeNet would keep the 603 MiB that its CONCATs alone read.  Of the kinds that the paper did not know, all whose
#: backward reads X (ours).
ALL = OffloadInputs(
    with_new(("conv", "pool", "concat"), lambda traits: "x" in traits.backward_reads),
    "vdnn-all",
    "the inputs of every CONV, POOL and CONCAT",
)
#: The slow layers, whose time hides the copy; of the kinds that the paper did not know, the matrix products (ours).
CONV = OffloadInputs(
    with_new(("conv",), lambda traits: traits.work == "product"), "vdnn-conv", "the inputs of every CONV"
)
