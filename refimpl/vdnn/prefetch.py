"""vDNN's prefetch: while layer n runs backward, the map of at most one earlier layer comes back (§3.2, Figure 10).

Bounded on purpose: a map that comes back too early camps in GPU memory again, and the next CONV is long enough to hide
a copy.  Read literally, every layer's backward searches, a POOL's too, which then holds the next CONV's X beside its
own X, Y and dX.  VGG-16 with 256 images would not fit 12 GiB that way, against the paper's headline; so by default a
POOL's backward does not search, and the literal reading is a module of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from refimpl.network import Layer, Step, Tensor
from refimpl.planner import slots
from refimpl.planner.context import PlanContext


@dataclass(frozen=True)
class Window(slots.Prefetch):
    """The nearest layer that offloaded, no farther than the next CONV."""

    name: str
    summary: str
    silent: tuple[str, ...]  #: kinds of layers whose backward does not search
    order: Literal["early", "between", "late"] = "early"
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: PlanContext) -> BoundWindow:
        return BoundWindow(self, context)


WINDOW = Window("vdnn-window", "the nearest offloaded layer's map, no farther than the next CONV", ("pool",))
LITERAL = Window("vdnn-window-literal", "the same, and a POOL's backward searches too", ())


class BoundWindow:
    def __init__(self, module: Window, context: PlanContext) -> None:
        self._silent = module.silent
        self._layers = context.network.layers
        self._position = {layer: i for i, layer in enumerate(self._layers)}
        self._offloaded: defaultdict[Layer, list[Tensor]] = defaultdict(list)  #: by the layer that sent them out
        for tensor, fate in context.fates.items():
            if fate.name == "offload":
                self._offloaded[self._layers[context.last_forward_use(tensor) - 1]].append(tensor)
        self._prefetched: set[Layer] = set()

    def due(self, step: Step) -> Sequence[Tensor]:
        if step.forward or step.layer.kind in self._silent:
            return ()
        layer = self.find_prefetch_layer(step.layer)
        return self._offloaded[layer] if layer else ()

    def find_prefetch_layer(self, n: Layer) -> Layer | None:
        """The search of Figure 10: nearest first; what is found is marked; a CONV ends the window."""
        for i in reversed(range(self._position[n])):
            layer = self._layers[i]
            if layer in self._offloaded and layer not in self._prefetched:
                self._prefetched.add(layer)
                return layer
            if layer.kind == "conv":
                return None
        return None
