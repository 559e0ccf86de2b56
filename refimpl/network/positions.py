"""Max pooling by position, a convention of a network (`Conventions.pool_positions`) that no paper has.

Forward keeps a byte an output, which element of its window that is, in a managed tensor that is planned as any map.
Backward reads it and dy, and neither x nor y: where no other layer's backward reads those, they go after forward.  The
results are those of max pooling to the bit (`kernels.pool_position`).  cuDNN reads x and y, so the papers' figures are
of networks without it.

Averages, pooling to a given size and windows of more than 127 elements stay as they are.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from refimpl.network.call import Call
from refimpl.network.conventions import POSITIONS
from refimpl.network.derived import described_again, of_layers
from refimpl.network.layer import Layer, NetworkError
from refimpl.network.network import Network
from refimpl.network.tensor import Tensor

LARGEST = 127  #: elements of a window, as the kernels have them


def by_position(network: Network) -> Network:
    """`Network.by_position`: the same layers, described again.  Raises `NetworkError`."""
    network = network.whole or network
    if network.conventions.as_pytorch:
        raise NetworkError(f"{network.name} runs in PyTorch, whose max pooling keeps no positions of ours")
    if network.ranks > 1:
        raise NetworkError(f"{network.name} is trained by {network.ranks} ranks: call by_position before data_parallel")
    if not any(positions_of(layer) for layer in network.layers):
        raise NetworkError(f"{network.name} has no max pooling that could keep positions; leave out {POSITIONS}")
    if network.conventions.pool_positions:
        return network
    again = described_again((*network.data, *network.layers))
    other = of_layers(network, again, network.learning, replace(network.conventions, pool_positions=True))
    other.name, other.fingerprint = network.name + POSITIONS, network.fingerprint
    return other


def positions_of(layer: Layer) -> Tensor | None:
    """The positions of a max pooling, four to a whole number; None for a layer that keeps none."""
    options = layer.options
    if layer.kind != "pool" or options["mode"] != "max" or "out" in options or prod(options["window"]) > LARGEST:
        return None
    shape = *layer.shape[:2], -(-prod(layer.shape[2:]) // 4)
    return Tensor(f"{layer.name}.positions", shape, "map", managed=True, dtype="int32")


def forward(layer: Layer) -> Call:
    """x → y and positions."""
    x, y, kept = layer.x, layer.y, layer.kept
    return Call("pool_position.forward", {"x": x, "y": y, **kept, **walk(layer)}, [x], [y, *kept.values()])


def backward(layer: Layer, dy: Tensor, dx: Tensor) -> Call:
    """Positions and dy → dx."""
    kept = layer.kept
    return Call("pool_position.backward", {**kept, "dy": dy, "dx": dx, **walk(layer)}, [*kept.values(), dy], [dx])


def walk(layer: Layer) -> dict[str, Any]:
    """How its windows walk over a map."""
    return {name: layer.options[name] for name in ("window", "stride", "pad", "ceil")}
