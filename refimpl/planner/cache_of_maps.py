"""A cache that evicts maps alone: PyTorch's training loop has no place where a gradient could leave the device.

SuperNeurons' cache and the combined search's evict any managed tensor, and in our own executor they may.  A map stays
while variables of the user's module hold it, too: to evict it would free nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from refimpl.network import Tensor
from refimpl.slots.context import Context
from refimpl.slots.questions import BoundCache


class CacheOfMaps:
    """Passes on to another cache what it hears of maps, and nothing of gradients."""

    def __init__(self, cache: BoundCache, context: Context) -> None:
        self._cache, self._context = cache, context
        self._held: set[Tensor] = set()  #: on the device, and in variables

    def enter(self, tensor: Tensor) -> None:
        if tensor.kind == "map":
            self._cache.enter(tensor)
            if tensor in self._context.held:
                self._held.add(tensor)

    def leave(self, tensor: Tensor) -> None:
        if tensor.kind == "map":
            self._cache.leave(tensor)

    def touch(self, tensor: Tensor) -> None:
        if tensor.kind == "map":
            self._cache.touch(tensor)

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        self._held = {x for x in self._held if self._context.held[x] >= now}
        return self._cache.victim({*locked, *self._held} if self._held else locked, now)
