"""A network as a table, one row a layer: its output, parameters, operations and bytes.

Rows are plain data (`dataclasses.asdict` makes them JSON); `refimpl.report` prints them.
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
    filled = 0 if layer.in_place else sum(tensor.nbytes for tensor in layer.outputs)
    flops = layer.forward.flops, layer.backward.flops
    parts = layer.name, layer.kind, layer.shape, layer.parameter_count
    return SummaryRow(*parts, *flops, filled, layer.in_place, layer.has_relu)
