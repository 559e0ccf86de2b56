"""vDNN++'s static policies (§2 of our reading of the authors' public code): whose inputs are offloaded.

The authors' networks are chains of CONV, POOL, FC and softmax.  (Their code knows batch norm and dropout, too; none of
their networks has one.)  On such chains "all" offloads the maps that vDNN-all offloads.  On a network with batch norms
and forks it offloads more, so vDNN's list is a policy of vDNN++, too.

As in vDNN, the last layer that reads a map sends it.  The input of the last layer that is not a softmax or a ReLU stays
on the device: it is needed again at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.network import Layer, Network
from refimpl.network.kinds import LayerKind, with_new
from refimpl.slots import questions as slots
from refimpl.slots.context import Context
from refimpl.slots.errors import SetupError
from refimpl.slots.last_consumer import LastConsumerSends

#: A softmax, or another loss (ours), and a ReLU.
NEVER_LAST = with_new(("softmax", "relu"), lambda traits: traits.work == "loss")


@dataclass(frozen=True)
class OffloadInputsOf(slots.Offload):
    """X of every `every`-th layer of the chosen kinds, from the first."""

    kinds: tuple[LayerKind, ...]
    name: str
    summary: str
    every: int = 1
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def __post_init__(self) -> None:
        if self.every < 1:
            raise SetupError(f"every is {self.every}; it must be at least 1")

    def bind(self, context: Context) -> LastConsumerSends:
        return LastConsumerSends(self.layers(context.network), context)

    def layers(self, network: Network) -> list[Layer]:
        """The layers whose inputs are offloaded, in forward order."""
        last = [layer for layer in network.layers if layer.kind not in NEVER_LAST][-1:]
        return [layer for layer in network.layers if layer.kind in self.kinds and layer not in last][:: self.every]


KNOWN: tuple[LayerKind, ...] = ("conv", "pool", "batchnorm", "dropout")  #: to the authors' code (S)
ADDED: tuple[LayerKind, ...] = ("lrn", "concat", "join", "fork")  #: by us, for other networks (R)
#: "All" means all but ReLU, softmax and fully connected layers: later kinds, too, but losses (R).
ALL = OffloadInputsOf(
    with_new((*KNOWN, *ADDED), lambda traits: traits.work != "loss"),
    "vdnnpp-all",
    "the inputs of all layers but ReLU, FC and softmax",
)
#: vDNN's list, as it is extended there.
VDNN_ALL = OffloadInputsOf(
    with_new(("conv", "pool", "concat"), lambda traits: "x" in traits.backward_reads and traits.work != "loss"),
    "vdnnpp-vdnn-all",
    "the inputs of every CONV, POOL and CONCAT, as vDNN has them",
)
#: As vDNN's: with the matrix products among the kinds that the authors' code did not know (ours).
PRODUCTS = with_new(("conv",), lambda traits: traits.work == "product")
CONV = OffloadInputsOf(PRODUCTS, "vdnnpp-conv", "the inputs of every CONV")
ALTERNATE_CONV = OffloadInputsOf(PRODUCTS, "vdnnpp-alternate-conv", "the inputs of every second CONV", every=2)
