"""Two accountings of a network that need no plan.

**A row a layer** (`summary`): its output, parameters, operations and bytes.  Rows are plain data, which
`dataclasses.asdict` makes JSON; `refimpl.report` prints them.

**The static baseline** (`network_wide`): the bytes of training if everything were allocated once and nothing released.
It is an accounting and not a program: a forked network could not run with two gradient buffers.  Each published system
compares with its own, so the network's conventions say which one applies:

    vDNN           weights, their gradients, every map (a ReLU in place has none; the input batch and the last output
                   included), two buffers of the largest gradient map, one workspace
    SuperNeurons   every map and every gradient map, no resident tensor; one workspace

Weights are all learnt parameters, biases and the parameters of batch normalisations included.  Momentum, statistics,
labels and losses are not counted: vDNN's own figures have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from refimpl.network.layer import Layer
from refimpl.network.network import Network


@dataclass(frozen=True)
class SummaryRow:
    """One layer of a network, or the total of all."""

    layer: str
    kind: str  #: empty in a total
    shape: tuple[int, ...]  #: images, channels, height, width; empty in a total
    parameters: int
    flops_forward: int  #: multiplications and additions of convolutions and fully connected layers, the direct way
    flops_backward: int
    map_bytes: int  #: of the maps that it fills: none in place, one a branch of a fork
    in_place: bool
    relu: bool = False  #: a ReLU is part of it


def summary(network: Network) -> list[SummaryRow]:
    """A row a layer, in the order of the forward route; the first is the input batch."""
    batch = SummaryRow("input", "data", network.input.shape, 0, 0, 0, network.input.nbytes, False)
    return [batch, *(_row(layer) for layer in network.layers)]


def total(rows: Iterable[SummaryRow]) -> SummaryRow:
    """The sums over rows."""
    rows = list(rows)
    sums = {
        what: sum(getattr(row, what) for row in rows)
        for what in ("parameters", "flops_forward", "flops_backward", "map_bytes")
    }
    return SummaryRow("total", "", (), in_place=False, **sums)


def _row(layer: Layer) -> SummaryRow:
    filled = 0 if layer.in_place else sum(tensor.nbytes for tensor in layer.outputs if tensor.managed)
    flops = layer.forward.flops, layer.backward.flops
    parts = layer.name, layer.kind, layer.shape, layer.parameter_count
    return SummaryRow(*parts, *flops, filled, layer.in_place, layer.has_relu)


def network_wide(network: Network, workspace_bytes: int = 0) -> dict[str, int]:
    """The static baseline of a network.

    Args:
        network: its conventions say which accounting applies.
        workspace_bytes: the largest workspace of the chosen algorithms.

    Returns:
        Kind of memory → bytes.
    """
    gradients = [tensor.nbytes for tensor in network.managed if tensor.kind == "gradient map"]
    maps = sum(tensor.nbytes for tensor in network.managed if tensor.kind == "map")
    if not network.conventions.two_gradient_buffers:
        return {"map": maps, "gradient map": sum(gradients), "workspace": workspace_bytes}
    weights = sum(parameter.weight.nbytes for _, _, parameter in network.parameters())
    return {
        "weight": weights,
        "weight gradient": weights,
        "map": maps + network.input.nbytes,
        "gradient map": 2 * max(gradients, default=0),
        "workspace": workspace_bytes,
    }


def network_wide_bytes(network: Network, workspace_bytes: int = 0) -> int:
    """The sum of `network_wide`."""
    return sum(network_wide(network, workspace_bytes).values())
