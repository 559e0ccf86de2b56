"""Max pooling by position.

Forward keeps a byte an output, which element of its window that is, in a managed tensor that is planned as any map.
Backward reads it and dy, and neither x nor y: where no other layer's backward reads those, they go after forward.  The
results are those of max pooling to the bit (`kernels.pool_position`).  cuDNN reads x and y, so the papers' figures are
of networks without it.

If only such a pooling reads the map of a ReLU, the ReLU's backward has no call: no position is noted of a 0, so
the gradient is 0 already where the ReLU would make it so.

Averages, pooling to a given size and windows of more than 127 elements stay as they are.
"""

from __future__ import annotations

from math import prod
from typing import Any

from refimpl.network.call import Call
from refimpl.network.calls import Backward
from refimpl.network.layer import Layer
from refimpl.network.network import Network
from refimpl.network.tensor import Tensor

ABOUT = "the backward of max pooling reads a byte an output, neither x nor y"
LACKS = "max pooling that could keep positions"
LARGEST = 127  #: elements of a window, as the kernels have them


def applies(network: Network) -> bool:
    return any(by_position(layer) for layer in network.layers)


def by_position(layer: Layer) -> bool:
    """Whether a layer is a max pooling that can keep positions."""
    options = layer.options
    return (
        layer.kind == "pool"
        and options["mode"] == "max"
        and "out" not in options
        and prod(options["window"]) <= LARGEST
    )


def rectifies(layer: Layer) -> bool:
    """Whether a layer is a ReLU whose only reader is a max pooling that keeps positions."""
    alone = layer.kind == "relu" and not layer.options and len(layer.consumers) == 1
    return alone and by_position(layer.consumers[0])


def tensors(network: Network, layer: Layer) -> dict[str, tuple[Tensor, str]]:
    """The positions, four to a whole number."""
    if not by_position(layer):
        return {}
    shape = *layer.shape[:2], -(-prod(layer.shape[2:]) // 4)
    positions = Tensor(f"{layer.name}.positions", shape, "map", managed=True, dtype="int32")
    return {"positions": (positions, "a max pooling's positions, in place of its x and y")}


def forward(network: Network, layer: Layer) -> list[Call]:
    """x → y and positions."""
    if "positions" not in layer.kept:
        return []
    x, y, kept = layer.x, layer.y, layer.kept
    arguments = {"x": x, "y": y, **kept, **walk(layer)} | ({"rectified": True} if rectifies(layer.producers[0]) else {})
    return [Call("pool_position.forward", arguments, [x], [y, *kept.values()])]


class ByPosition(Backward):
    def _pool(self, layer: Layer) -> list[Call]:
        """Positions and dy → dx."""
        if "positions" not in layer.kept:
            return super()._pool(layer)
        kept, dy = layer.kept, self._dy(layer)
        dx, then = self._into(layer, layer.x)
        arguments = {**kept, "dy": dy, "dx": dx, **walk(layer)}
        return [Call("pool_position.backward", arguments, [*kept.values(), dy], [dx]), *then]

    def _elementwise(self, layer: Layer) -> list[Call]:
        """dy is dx already, after such a ReLU."""
        if not rectifies(layer):
            return super()._elementwise(layer)
        return [] if layer.in_place else self._becomes(self._dy(layer), layer.x)


BACKWARD = ByPosition


def walk(layer: Layer) -> dict[str, Any]:
    """How its windows walk over a map."""
    return {name: layer.options[name] for name in ("window", "stride", "pad", "ceil")}
