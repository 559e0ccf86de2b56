"""vDNN's offload: the inputs of chosen layers leave for the host (§3.2 of the paper).

What leaves is X, a layer's input, and it is the *consumer* that sends it: the last layer that reads the map, at the
same time as its own forward, for both only read.  A map that several layers read leaves if any of them is of a chosen
kind, and only once the last of them has had its turn: `refcount` of the paper is 0 then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl.network import Layer, Step, Tensor
from refimpl.planner import slots
from refimpl.planner.context import PlanContext


@dataclass(frozen=True)
class OffloadInputs(slots.Offload):
    """X of every layer of the chosen kinds: CONV and POOL for vDNN-all, CONV alone for vDNN-conv."""

    kinds: tuple[str, ...]
    name: str
    summary: str
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context: PlanContext) -> BoundOffload:
        return BoundOffload([layer for layer in context.network.layers if layer.kind in self.kinds], context)


ALL = OffloadInputs(("conv", "pool"), "vdnn-all", "the inputs of every CONV and POOL")
CONV = OffloadInputs(("conv",), "vdnn-conv", "the inputs of every CONV")


class BoundOffload:
    """The inputs of the chosen layers, each sent out by its last consumer."""

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
