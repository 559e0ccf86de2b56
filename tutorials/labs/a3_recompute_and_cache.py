"""Lab A3: a Recompute and a Cache.  About four hours; after notebook 04.

A map that backward needs can be dropped and computed again (`recompute`), or moved to the host when, and only when, an
allocation fails (`cache`).  SuperNeurons does both.  Write both.

What to write
    `Rebuild`: which maps are dropped, and which forward steps run again when a step of backward reads one.
    `Evict`: which tensor goes when an allocation fails.
The names `recompute` and `cache` at the end are what the tests take.  The other slots are the lab's: layer-wise
liveness, the fastest algorithms that fit, best fit.

What to know
    docs/slots/recompute.md and docs/slots/cache.md have every question of the two slots, when it is asked, and a small
    module of each.  `context.maps_across()` are the maps that both forward and backward use; `context.uses[tensor]` are
    the steps that use one, in order; `layer.traits.work == "pass"` is a layer that is one cheap pass over its data.
    A layer that works in place has no map of its own: to rebuild its map, it has to run again, too.

Steps
    1. Drop nothing, and write the cache first: evict anything that is not locked.  It fits already; it is slow.
    2. Which tensor is needed last?  `context.uses` knows the future.  A framework that learns as it goes does not.
    3. Drop the outputs of pooling layers, one step each.  Then of all cheap layers, with chains of several steps.
    4. `sources` names every checkpoint with all steps that rebuild from it, so that none is released too early.

Test it: pytest tutorials/labs/test_a3.py --submission my_modules.py
    This skeleton                                                            0: it fits nothing
    The cache alone, anything that is not locked goes                        96
    A cache that evicts what the running step uses                           0
    A cache whose list is the class's, and lives from one plan to the next   89
    Next use last, cheap maps rebuilt                                        100
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor


@dataclass(frozen=True)
class Rebuild(slots.Recompute):
    """Which maps are dropped, and how each is rebuilt."""

    name: ClassVar[str] = "my-recompute"
    summary: ClassVar[str] = "cheap maps are dropped"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> Rebuilding:
        return Rebuilding(context)


class Rebuilding:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def drops(self) -> Mapping[Tensor, str]:
        """Every map to be dropped, and the reason."""
        return {}  # yours

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """Checkpoint: the numbers of the backward steps that rebuild something from it."""
        return {}  # yours

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        """Whether the cache may drop this tensor without a copy."""
        return False  # yours

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """The forward steps to run again, in order, each with the tensors that may be released after it."""
        return ()  # yours


@dataclass(frozen=True)
class Evict(slots.Cache):
    """Which tensor goes when an allocation fails."""

    name: ClassVar[str] = "my-cache"
    summary: ClassVar[str] = "something is evicted"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"eviction", "offload"})

    def bind(self, context: Context) -> Evicting:
        return Evicting(context)


class Evicting:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def enter(self, tensor: Tensor) -> None:
        """The tensor has just been allocated on the device."""

    def leave(self, tensor: Tensor) -> None:
        """The tensor has just been released."""

    def touch(self, tensor: Tensor) -> None:
        """A step uses the tensor, and it is on the device."""

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        """The tensor to evict at step `now`, never a locked one; None: every tensor is locked."""
        return None  # yours


recompute, cache = Rebuild(), Evict()
