"""SuperNeurons' tensor cache (§3.3.2): nothing is copied until an allocation fails, and then what was used longest ago.

The paper's `check`: a tensor that is in the cache moves to the front, a hit.  Another is allocated; if that fails, the
last tensor that the running layer does not use, hence is not locked, is evicted, and the allocation tried again, until
it succeeds.  Then the tensor goes to the front, a miss.  The planner does the trying (`Books.allocate`), for it must
also wait for copies; this module knows the order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from refimpl.network import Tensor
from refimpl.planner.slots import Feature
from refimpl.planner.walk import Walk


@dataclass(frozen=True)
class LeastRecentlyUsed:
    """A list of all tensors on the device, the last used in front; evicted is the last that is not locked."""

    name: ClassVar[str] = "superneurons-lru"
    summary: ClassVar[str] = "what was used longest ago, and not by the running step, goes first"
    needs: ClassVar[frozenset[Feature]] = frozenset({"release"})
    offers: ClassVar[frozenset[Feature]] = frozenset({"eviction", "offload"})

    def bind(self, walk: Walk) -> TensorCache:
        return TensorCache()


class TensorCache:
    """A hash table that is also a list: every operation takes constant time, and a victim one a locked tensor."""

    def __init__(self) -> None:
        self._recent: OrderedDict[Tensor, None] = OrderedDict()  # the front of the paper's list is the end of this

    def enter(self, tensor: Tensor) -> None:
        self._recent[tensor] = None
        self._recent.move_to_end(tensor)

    def leave(self, tensor: Tensor) -> None:
        self._recent.pop(tensor, None)

    def touch(self, tensor: Tensor) -> None:
        self._recent.move_to_end(tensor)

    def victim(self, locked: Collection[Tensor]) -> Tensor | None:
        return next((tensor for tensor in self._recent if tensor not in locked), None)
