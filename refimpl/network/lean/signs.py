"""ReLU by sign.

Forward keeps a bit an element, whether its gradient passes, in a managed tensor that is planned as any map.  Backward
reads the bits and dy, and not y.  Where no other layer's backward reads y, it goes after forward: before a concat, a
join or a fork, and before one of these and a max pooling by position.  A convolution reads its input in backward, so a
ReLU before one stays as it is; so does one that is part of its convolution, and one before a max pooling by position
alone, which needs no signs.  The results are those of a ReLU to the bit
(`kernels.relu_sign`).  The papers' library reads maps.

A ReLU by sign has a map of its own: the one before it goes, and comes back from there where its map is rebuilt.  If it
worked in place, its signs could not be rebuilt without destroying that map.
"""

from __future__ import annotations

from math import prod

from refimpl.network.call import Call
from refimpl.network.calls import Backward
from refimpl.network.layer import Layer
from refimpl.network.lean import positions
from refimpl.network.network import Network
from refimpl.network.tensor import Tensor

ABOUT = "the backward of a ReLU reads a bit an element, where no other layer's backward needs its map"
LACKS = "ReLU whose map no other layer's backward needs"
REASON = "the signs of a ReLU, in place of its map"


def applies(network: Network) -> bool:
    return any(by_sign(network, layer) for layer in network.layers)


def by_sign(network: Network, layer: Layer) -> bool:
    """Whether it is a ReLU that reads its map in backward, and no other layer does."""
    alone = layer.kind == "relu" and not any(reads_input(network, reader) for reader in layer.consumers)
    return alone and not ("positions" in network.conventions.lean and positions.rectifies(layer))


def reads_input(network: Network, layer: Layer) -> bool:
    """Whether a layer's backward reads its input, or holds it as the network's conventions say."""
    if "positions" in network.conventions.lean and positions.by_position(layer):
        return False
    held = layer.traits.library_reads if network.conventions.holds_inputs else ()
    return "x" in (*layer.traits.backward_reads, *held)


def tensors(network: Network, layer: Layer) -> dict[str, tuple[Tensor, str]]:
    """The bits, 32 to a whole number."""
    if not by_sign(network, layer):
        return {}
    signs = Tensor(f"{layer.name}.signs", (-(-prod(layer.shape) // 32),), "map", managed=True, dtype="int32")
    return {"signs": (signs, REASON)}


def forward(network: Network, layer: Layer) -> list[Call]:
    """x → y and signs."""
    if "signs" not in layer.kept:
        return []
    x, y, signs = layer.x, layer.y, layer.kept["signs"]
    return [Call("relu_sign.forward", {"x": x, "y": y, "signs": signs, **layer.options}, [x], [y, signs])]


class BySign(Backward):
    def _elementwise(self, layer: Layer) -> list[Call]:
        """In place on dy, with the signs."""
        if "signs" not in layer.kept:
            return super()._elementwise(layer)
        dy, signs = self._dy(layer), layer.kept["signs"]
        call = Call("relu_sign.backward", {"signs": signs, "dy": dy, "dx": dy}, [signs], updates=[dy])
        return [call, *self._becomes(dy, layer.x)]


BACKWARD = BySign
