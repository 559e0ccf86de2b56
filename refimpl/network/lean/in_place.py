"""Batch normalisation, dropout and joins in place.

In backward no other layer reads dy once its own layer has run.  So the dx of batch normalisation and of dropout is
written over dy, as that of a ReLU is, and a step holds x and dy in place of x, dy and dx.  In forward a join adds up in
the map of its first input, or of the second of two, where no backward reads that map and no other layer does.

The kernels compute the same numbers in place: they read an element of dy for the last time where they write dx.  The
papers' networks have maps of their own.
"""

from __future__ import annotations

from refimpl.network.call import Call
from refimpl.network.calls import Backward
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.tensor import Tensor

ABOUT = "the dx of batch normalisation and dropout overwrites dy, a join's sum one of its inputs"
LACKS = "batch normalisation, dropout or join that could work in place"


def applies(network: Network) -> bool:
    return any(spares_dx(layer) or overwritten(network, layer) for layer in network.layers)


def spares_dx(layer: Layer) -> bool:
    return layer.kind in ("batchnorm", "dropout", "drop_path") and layer.producers[0].learns


def overwritten(network: Network, layer: Layer) -> Tensor | None:
    """The input that a join adds the others to; the kernels of two inputs have it first."""
    if layer.kind == "join":
        first, *others = layer.producers
        taken = (one for one in (first, *(others if len(others) == 1 else ())) if one.hands_over)
        return next((one.output_for(layer) for one in taken), None)
    return None


def forward(network: Network, layer: Layer) -> list[Call]:
    """y += the other inputs."""
    if layer.kind != "join" or not layer.in_place:
        return []
    y, others = layer.y, [x for x in layer.inputs if x is not layer.y]
    return [Call("join.forward", {"inputs": (y, *others), "y": y}, others, updates=[y])]


class InPlace(Backward):
    def _over(self, layer: Layer) -> tuple[Tensor, list[Call]]:
        """dx over dy."""
        dy = self._dy(layer)
        return dy, self._becomes(dy, layer.x) if layer.producers[0].learns else []


BACKWARD = InPlace
