"""The last consumer sends: how vDNN and vDNN++ offload the inputs of the layers that they choose.

A layer's input is copied out by the *last* layer that reads it in forward, during that layer's own forward: both only
read.  vDNN counts the layers that are still to read a map in its `refcount`; 0 means that the last has had its turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from refimpl.network import Layer, Step, Tensor
from refimpl.planner.context import PlanContext


class LastConsumerSends:
    """Offloads the inputs of the chosen layers that backward reads and that have no fate yet."""

    def __init__(self, chosen: Iterable[Layer], context: PlanContext) -> None:
        self._reasons: dict[Tensor, str] = {}
        self._by_last_consumer: defaultdict[int, list[Tensor]] = defaultdict(list)
        crossing = set(context.maps_across()) - set(context.fates)
        for layer in chosen:
            for x in layer.inputs:
                if x in crossing and x not in self._reasons:
                    self._reasons[x] = f"an input of {layer.name}"
                    self._by_last_consumer[context.last_forward_use(x)].append(x)

    def offloads(self) -> Mapping[Tensor, str]:
        return self._reasons

    def leaves(self, step: Step) -> Sequence[Tensor]:
        return self._by_last_consumer.get(step.number, ())
