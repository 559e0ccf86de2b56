"""Lab A3: a recompute and a cache.  The handout is tutorials/handouts/a3.md; the tests say what is missing:

pytest tutorials/labs/test_a3.py -x
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
        raise NotImplementedError("drops: step 1 drops nothing, return {}; later, each map to drop → the reason")

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """Checkpoint: the numbers of the backward steps that rebuild something from it."""
        raise NotImplementedError("sources: in step 1 return {}; later, each map to rebuild from → the steps' numbers")

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        """Whether the cache may drop this tensor without a copy."""
        raise NotImplementedError("can_rebuild: in step 1 return False; later, whether a chain makes this tensor")

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """The forward steps to run again, in order, each with the tensors that may be released after it."""
        raise NotImplementedError("chain: return a list of (forward step, ()), in the order in which they run again")


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
        raise NotImplementedError("enter: remember that the tensor is on the device")

    def leave(self, tensor: Tensor) -> None:
        """The tensor has just been released."""
        raise NotImplementedError("leave: forget the tensor")

    def touch(self, tensor: Tensor) -> None:
        """A step uses the tensor, and it is on the device."""
        raise NotImplementedError("touch: pass is enough, or remember when the tensor was used")

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        """The tensor to evict at step `now`, never a locked one; None: every tensor is locked."""
        raise NotImplementedError("victim: return a tensor that is here and not in locked; None if all are locked")


recompute, cache = Rebuild(), Evict()
