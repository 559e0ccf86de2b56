"""A solution of lab A5b: each copy begins as late as the seconds allow, and no earlier than there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl import Context, slots
from refimpl.memory.allocation_trace import rounded
from refimpl.network import Step, Tensor
from tutorials.solutions.a5a_offload import books, leave, starts

ROOM = 0.95  #: of the budget, for maps that come early: with less left free, blocks may find no addresses


@dataclass(frozen=True)
class Fetch(slots.Prefetch):
    """As late as the seconds allow, where there is room, again until there is a hole."""

    name: ClassVar[str] = "my-prefetch"
    summary: ClassVar[str] = "as late as the seconds allow, where there is room"
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Fetching:
        return Fetching(context)


class Fetching:
    """Answers for one plan."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.begins = with_room(context, in_time(context, away(context)))

    def due(self, step: Step) -> Sequence[Tensor]:
        """Each map from its step on until a step uses it: a prefetch that finds no hole is left out."""
        used = self.context.first_backward_use
        return [tensor for tensor, begin in self.begins.items() if begin <= step.number < used(tensor)]


def away(context: Context) -> list[Tensor]:
    """The offloaded maps, in the order in which backward uses them."""
    return sorted(filter(context.is_offloaded, context.fates), key=context.first_backward_use)


def in_time(context: Context, maps: Sequence[Tensor]) -> dict[Tensor, int]:
    """Map → the last step in which its copy can begin and be over in time.

    The link copies one map after another: from the last one on, a copy is over when the next one begins.
    """
    start, first = starts(context), context.network.depth + 1
    begins: dict[Tensor, int] = {}
    next_begins = start[-1]
    for tensor in reversed(maps):
        used = context.first_backward_use(tensor)
        next_begins = min(next_begins, start[used]) - context.machine.copy_seconds(tensor.nbytes, "in")
        begins[tensor] = max((step for step in range(first, used) if start[step] <= next_begins), default=first)
    return {tensor: begins[tensor] for tensor in maps}


def with_room(context: Context, begins: Mapping[Tensor, int]) -> dict[Tensor, int]:
    """Map → the same step, or the first one after it from which on each step has room for the map."""
    held, room = books(context), ROOM * context.budget
    for tensor in begins:
        leave(held, context, tensor)
    found: dict[Tensor, int] = {}
    for tensor, begin in begins.items():
        number = context.first_backward_use(tensor)
        while number > begin and held[number - 1] + rounded(tensor.nbytes) <= room:
            number -= 1
            held[number] += rounded(tensor.nbytes)
        found[tensor] = number
    return found


prefetch = Fetch()
