"""The last consumer sends: how vDNN and vDNN++ offload the inputs of the layers that they choose.

A layer's input is copied out by the *last* layer that reads it in forward, during that layer's own forward: both only
read.  vDNN counts the layers that are still to read a map in its `refcount`; 0 means that the last has had its turn.
"""

from __future__ import annotations

from collections.abc import Iterable

from refimpl.network import Layer
from refimpl.slots.baseline import Departures
from refimpl.slots.context import Context, last_forward_uses


class LastConsumerSends(Departures):
    """Offloads the inputs of the chosen layers that backward reads and that have no fate yet."""

    def __init__(self, chosen: Iterable[Layer], context: Context) -> None:
        super().__init__()
        crossing = set(context.maps_across()) - set(context.fates)
        for layer in chosen:
            for x in layer.inputs:
                if x in crossing:
                    crossing.remove(x)
                    self.add(last_forward_uses(context.network)[x], x, f"an input of {layer.name}")
