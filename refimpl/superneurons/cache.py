"""SuperNeurons' tensor cache (§3.3.2): when an allocation fails, the least recently used tensor is copied out.

The paper's Algorithm 2, and where it is here:

| the paper | here |
| --- | --- |
| `check(T)`: T is in the cache: it moves to the front, a hit | `touch` |
| `check(T)`: it is not: it is allocated, and put at the front, a miss | the executor's `allocate`, then `enter` |
| `out`: the last tensor that is not locked is offloaded and leaves | `victim`, the executor's `evict`, `leave` |
| locks: the tensors that the running layer uses | the `locked` that `victim` is given |

The executor, or the planner, moves the tensors, as it must wait for copies too; this module knows only their order.  A
missed tensor with a host copy is copied back; a layer's new output is only allocated.  In one point the listing is
wrong: it evicts until the evicted *bytes* are enough, but a tensor needs them in one piece.  Here the allocation is
tried again after every eviction, until there is a hole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from refimpl.network import Tensor
from refimpl.slots import questions as slots
from refimpl.slots.context import Context


@dataclass(frozen=True)
class LeastRecentlyUsed(slots.Cache):
    """All managed tensors on the device in the order of their last use; the oldest that is not locked is evicted.

    In the paper a workspace gets what is left (§3.5), and nothing is evicted for it.  With `workspaces` (ours) tensors
    are evicted until the workspace of the fastest algorithm has a hole.
    """

    workspaces: bool = False
    name: ClassVar[str] = "superneurons-lru"
    summary: ClassVar[str] = "the least recently used tensor that the running step does not use is evicted first"
    offers: ClassVar = frozenset({"eviction", "offload"})

    def bind(self, context: Context) -> TensorCache:
        return TensorCache()


class TensorCache:
    """Every operation takes constant time; to find a victim also takes one look at each locked tensor before it.

    An OrderedDict finds its first entry at once; a dict has to step over all entries that were deleted.
    """

    def __init__(self) -> None:
        self._recent: OrderedDict[Tensor, None] = OrderedDict()  # the front of the paper's list is its end

    def enter(self, tensor: Tensor) -> None:
        self._recent[tensor] = None
        self._recent.move_to_end(tensor)

    def leave(self, tensor: Tensor) -> None:
        del self._recent[tensor]

    def touch(self, tensor: Tensor) -> None:
        self._recent.move_to_end(tensor)

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        return next((tensor for tensor in self._recent if tensor not in locked), None)
