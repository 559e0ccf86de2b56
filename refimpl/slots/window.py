"""The search of vDNN's Figure 10, for modules in the slot `prefetch`: vDNN and vDNN++ prefetch by it.

While layer n runs backward, the maps that at most one earlier layer sent out are prefetched.  The window is bounded on
purpose: a map that is back too early occupies GPU memory again, and the next CONV is long enough to hide a copy.  Kinds
of layers that the papers did not know search, and do not end the window (ours); where a softmax does not search, no
other loss does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from refimpl.network import Layer, Step, Tensor
from refimpl.network.kinds import LayerKind, with_new
from refimpl.slots import questions as slots
from refimpl.slots.context import Context, last_forward_uses


@dataclass(frozen=True)
class Window(slots.Prefetch):
    """Prefetches for the nearest layer that offloaded, no farther than the next CONV."""

    name: str
    summary: str
    silent: tuple[LayerKind, ...]  #: kinds of layers whose backward does not search
    order: Literal["early", "between", "late"] = "early"
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> BoundWindow:
        return BoundWindow(self.silent, context)


class BoundWindow:
    def __init__(self, silent: tuple[LayerKind, ...], context: Context) -> None:
        is_loss = "softmax" in silent
        self._silent = with_new(silent, lambda traits: is_loss and traits.work == "loss")
        self._layers = context.network.layers
        self._position = {layer: i for i, layer in enumerate(self._layers)}
        self._offloaded: defaultdict[Layer, list[Tensor]] = defaultdict(list)  #: by the layer that sent them out
        for tensor, fate in context.fates.items():
            if fate.name == "offload":
                self._offloaded[self._layers[last_forward_uses(context.network)[tensor] - 1]].append(tensor)
        self._prefetched: set[Layer] = set()

    def due(self, step: Step) -> Sequence[Tensor]:
        if step.forward or step.part > 1 or step.layer.kind in self._silent:
            return ()
        layer = self.find_prefetch_layer(step.layer)
        return self._offloaded[layer] if layer else ()

    def find_prefetch_layer(self, n: Layer) -> Layer | None:
        """The search of Figure 10: nearest first; the layer that is found is marked; a CONV ends the window."""
        for i in reversed(range(self._position[n])):
            layer = self._layers[i]
            if layer in self._offloaded and layer not in self._prefetched:
                self._prefetched.add(layer)
                return layer
            if layer.kind == "conv":
                return None
        return None
