"""Recomputation on demand: any forward tensor that is gone is computed once more when a step needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl.network import Step, Tensor
from refimpl.planner import Context
from refimpl.slots import questions as slots
from refimpl.slots.context import made_once


@dataclass(frozen=True)
class Rematerialized(slots.Recompute):
    """Drops nothing by itself; what a cache evicts is computed once more when a step needs it."""

    name: ClassVar[str] = "on-demand"
    summary: ClassVar[str] = "what a cache evicts is computed once more when a step needs it, from what is there"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> BoundRematerialized:
        return BoundRematerialized(context)


class BoundRematerialized:
    def __init__(self, context: Context) -> None:
        self.context = context

    def drops(self) -> Mapping[Tensor, str]:
        return {}

    def sources(self) -> Mapping[Tensor, Sequence[int]]:
        """What is made once, as long as anything may be computed from it."""
        return {x: [last] for x, last in made_once(self.context.network).items() if last}

    def can_rebuild(self, tensor: Tensor, step: Step) -> bool:
        return any(True for _ in self.makers(tensor, step))

    def chain(
        self, tensor: Tensor, step: Step, is_there: Callable[[Tensor], bool]
    ) -> Iterable[tuple[Step, Sequence[Tensor]]]:
        """The forward steps that make the tensor from what is there; what they make stays, until it is evicted."""
        again: dict[int, Step] = {}
        waiting = [tensor]
        while waiting:
            for one in self.makers(waiting.pop(), step):
                if one.number not in again:
                    again[one.number] = one
                    waiting += [x for x in (*one.reads, *one.updates) if not is_there(x)]
        return [(again[number], ()) for number in sorted(again)]

    def makers(self, tensor: Tensor, step: Step) -> Iterator[Step]:
        """The forward steps before `step` that write a tensor or change it in place; none where it is made once."""
        for one in self.context.uses[tensor] if self.context.can_be_rebuilt(tensor) else ():
            if one.forward and one.number < step.number and tensor in (*one.writes, *one.updates):
                yield one
