"""A cache that evicts maps alone: PyTorch's training loop has no place where a gradient could leave the device.

SuperNeurons' cache and the combined search's evict any managed tensor, and in our own executor they may.
"""

from __future__ import annotations

from collections.abc import Collection

from refimpl.network import Tensor
from refimpl.slots.questions import BoundCache


class CacheOfMaps:
    """Passes on to another cache what it hears of maps, and nothing of gradients."""

    def __init__(self, cache: BoundCache) -> None:
        self._cache = cache

    def enter(self, tensor: Tensor) -> None:
        if tensor.kind == "map":
            self._cache.enter(tensor)

    def leave(self, tensor: Tensor) -> None:
        if tensor.kind == "map":
            self._cache.leave(tensor)

    def touch(self, tensor: Tensor) -> None:
        if tensor.kind == "map":
            self._cache.touch(tensor)

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        return self._cache.victim(locked, now)
