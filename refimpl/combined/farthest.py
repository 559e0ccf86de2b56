"""Farthest next use (Belady, 1966): when an allocation fails, what is needed last is evicted.

An iteration's steps are known before it runs, so the best victim is known too.  Beside fates this is the safety net:
fates that nearly fit cost time instead of failing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from refimpl.network import Tensor
from refimpl.planner import Context
from refimpl.slots import questions as slots

NEVER = 1 << 60  #: the step of a tensor that no step needs any more


@dataclass(frozen=True)
class FarthestNextUse(slots.Cache):
    """Of the tensors that the running step does not use, the one needed last is evicted; of several the largest."""

    name: ClassVar[str] = "farthest"
    summary: ClassVar[str] = "the tensor whose next use is farthest is evicted first"
    offers: ClassVar = frozenset({"eviction", "offload"})

    def bind(self, context: Context) -> BoundFarthest:
        return BoundFarthest(context)


class BoundFarthest:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._here: dict[Tensor, None] = {}  # in the order of arrival: of equal ones the first goes
        self._uses: dict[Tensor, list[int]] = {}  # of those asked about so far

    def enter(self, tensor: Tensor) -> None:
        self._here[tensor] = None

    def leave(self, tensor: Tensor) -> None:
        del self._here[tensor]

    def touch(self, tensor: Tensor) -> None:
        pass

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        waiting = (tensor for tensor in self._here if tensor not in locked)
        return max(waiting, key=lambda tensor: (self._next_use(tensor, now), tensor.nbytes), default=None)

    def _next_use(self, tensor: Tensor, now: int) -> int:
        """The next step that uses the tensor, or rebuilds from it."""
        if tensor not in self._uses:
            used = (step.number for step in self._context.uses[tensor])
            self._uses[tensor] = sorted({*used, *self._context.rebuilt_from.get(tensor, ())})
        uses = self._uses[tensor]
        at = bisect_right(uses, now)
        return uses[at] if at < len(uses) else NEVER
