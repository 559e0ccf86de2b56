"""vDNN's offload and prefetch (§3.2): the inputs of chosen layers are copied to the host, and back.

What is offloaded is X, a layer's input; the last layer that reads it sends it (`refimpl.slots.last_consumer`).  A
map that several layers read is offloaded if any of them is of a chosen kind.  `with_new` extends a choice to kinds
that the paper did not know.

While a layer runs backward, the map of at most one earlier layer is prefetched (Figure 10).  The search,
`find_prefetch_layer` of the paper, is in `refimpl.slots.window`, where vDNN++ finds it too.  Which layers make it?
Read literally, every layer's backward does, a POOL's too, which then holds the next CONV's X beside its own X, Y and
dX.  VGG-16 with 256 images would not fit 12 GiB that way, and that it fits is the paper's headline.  So by default a
POOL's backward does not search; the literal reading is a module of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.network.kinds import LayerKind, with_new
from refimpl.slots import questions as slots
from refimpl.slots.context import Context
from refimpl.slots.last_consumer import LastConsumerSends
from refimpl.slots.window import Window


@dataclass(frozen=True)
class OffloadInputs(slots.Offload):
    """X of every layer of the chosen kinds: CONV, POOL and CONCAT for vDNN-all, CONV alone for vDNN-conv."""

    kinds: tuple[LayerKind, ...]
    name: str
    summary: str
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> LastConsumerSends:
        return LastConsumerSends([layer for layer in context.network.layers if layer.kind in self.kinds], context)


#: All layers of the paper's feature extraction whose X is a buffer of its own; a ReLU works in place.  Without CONCAT
#: GoogLeNet would keep the 603 MiB that its CONCATs alone read.  Of the kinds that the paper did not know, all whose
#: backward reads X (ours).
ALL = OffloadInputs(
    with_new(("conv", "pool", "concat"), lambda traits: "x" in traits.backward_reads and traits.work != "loss"),
    "vdnn-all",
    "the inputs of every CONV, POOL and CONCAT",
)
#: The slow layers, whose time hides the copy; of the kinds that the paper did not know, the matrix products (ours).
CONV = OffloadInputs(
    with_new(("conv",), lambda traits: traits.work == "product"), "vdnn-conv", "the inputs of every CONV"
)

WINDOW = Window("vdnn-window", "the nearest offloaded layer's map, no farther than the next CONV", ("pool",))
LITERAL = Window("vdnn-window-literal", "the same, and a POOL's backward searches too", ())
