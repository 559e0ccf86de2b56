"""SuperNeurons' tensor cache (§3.3.2): nothing is copied until an allocation fails, and then what was used longest ago.

The paper's Algorithm 2, and who does it here:

| the paper | here |
| --- | --- |
| `check(T)`: T is in the cache: it moves to the front, a hit | `touch` |
| `check(T)`: it is not: it is allocated, and put at the front, a miss | `Mover.allocate`, then `enter` |
| `out`: the last tensor that is not locked is offloaded and leaves the list | `victim`, `Mover.evict`, `leave` |
| locks: what the running layer uses | the `locked` that `victim` is given |

The planner does the moving, for it must wait for copies as well; this module knows the order, and nothing else.  What
was missed and has a host copy is copied back, a layer's new output is only allocated.  One thing is not to be taken
from the listing: it evicts until the evicted *bytes* are enough, and bytes in several places are no place for a tensor.
The planner tries the allocation again behind every eviction, until there is a hole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from refimpl.network import Tensor
from refimpl.planner import slots
from refimpl.planner.context import PlanContext


@dataclass(frozen=True)
class LeastRecentlyUsed(slots.Cache):
    """A list of all managed tensors on the device, the last used in front; evicted is the last that is not locked."""

    name: ClassVar[str] = "superneurons-lru"
    summary: ClassVar[str] = "what was used longest ago, and not by the running step, goes first"
    offers: ClassVar = frozenset({"eviction", "offload"})

    def bind(self, context: PlanContext) -> TensorCache:
        return TensorCache()


class TensorCache:
    """A hash table that is also a list: every operation takes constant time, and a victim one look a locked tensor.

    Hence an OrderedDict: its first entry is found at once, where a dict has to step over all that have left.
    """

    def __init__(self) -> None:
        self._recent: OrderedDict[Tensor, None] = OrderedDict()  # the front of the paper's list is the end of this

    def enter(self, tensor: Tensor) -> None:
        self._recent[tensor] = None
        self._recent.move_to_end(tensor)

    def leave(self, tensor: Tensor) -> None:
        del self._recent[tensor]

    def touch(self, tensor: Tensor) -> None:
        self._recent.move_to_end(tensor)

    def victim(self, locked: Collection[Tensor]) -> Tensor | None:
        return next((tensor for tensor in self._recent if tensor not in locked), None)
