"""SuperNeurons' liveness analysis (§3.2): a tensor is freed after the last step that needs it.

The paper gives every step two sets: `in`, the tensors in memory when it begins, and `out`, those in memory after it,
which is the next step's `in`.  A tensor is not in `out` if no later step needs it: for every step the paper looks
through all later steps, in quadratic time.  One pass from the last step to the first gives the same sets in linear
time: the step at which the pass first meets a tensor is its last use.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from refimpl.network import Step, Tensor
from refimpl.slots import questions as slots
from refimpl.slots.context import Context

Name = TypeVar("Name", bound=Hashable)  #: a tensor, or the name of one


def out_sets(uses: Sequence[Iterable[Name]], made: Sequence[Iterable[Name]]) -> list[list[Name]]:
    """The paper's analysis, in quadratic time: the twin that `last_uses` is tested against.

    Args:
        uses: for each step, the tensors that it reads or writes.
        made: for each step, the tensors that it creates.

    Returns:
        For each step, the tensors in memory after it, in the order of their creation.
    """
    alive: list[Name] = []
    sets = []
    for step in range(len(uses)):
        there = alive + [tensor for tensor in made[step] if tensor not in alive]
        needed = {tensor for later in uses[step + 1 :] for tensor in later}
        alive = [tensor for tensor in there if tensor in needed]
        sets.append(alive)
    return sets


def last_uses(uses: Sequence[Iterable[Name]]) -> list[list[Name]]:
    """For every step, the tensors that it uses and no later step does."""
    met: set[Name] = set()
    last: list[list[Name]] = [[] for _ in uses]
    for step in reversed(range(len(uses))):
        for tensor in uses[step]:
            if tensor not in met:
                met.add(tensor)
                last[step].append(tensor)
    return last


@dataclass(frozen=True)
class Analysis(slots.Liveness):
    """Every tensor is freed after its last use; an offloaded or dropped map after its last forward use, too."""

    name: ClassVar[str] = "superneurons-liveness"
    summary: ClassVar[str] = "every tensor is freed after its last use: one pass over the in and out sets"
    offers: ClassVar = frozenset({"release"})

    def bind(self, context: Context) -> Dead:
        return Dead(context)


class Dead:
    """Step → the tensors that are freed after it."""

    def __init__(self, context: Context) -> None:
        uses = [[*step.uses] for step in context.network.steps]
        for checkpoint, steps in context.rebuilt_from.items():  # a rebuild uses its checkpoint
            for number in steps:
                uses[number - 1].append(checkpoint)
        for tensor, number in context.held.items():  # and a variable that holds it
            uses[number - 1].append(tensor)
        self._after = [dict.fromkeys(tensors) for tensors in last_uses(uses)]
        for after, tensors in zip(self._after, last_uses(uses[: context.network.depth]), strict=False):
            after.update(dict.fromkeys(tensor for tensor in tensors if tensor in context.fates))

    def free(self, tensor: Tensor, numbers: Iterable[int]) -> None:
        """Free a tensor after these steps, too."""
        for number in numbers:
            self._after[number - 1][tensor] = None

    def dead(self, step: Step) -> Sequence[Tensor]:
        return tuple(self._after[step.number - 1])


@dataclass(frozen=True)
class EachUse(Analysis):
    """An offloaded map is freed after every step that uses it, and so copied in for each (ours, a reading).

    The analysis keeps it from its producer to its last forward use.
    """

    name: ClassVar[str] = "superneurons-each-use"
    summary: ClassVar[str] = "an offloaded map is freed after each use, everything else after its last"

    def bind(self, context: Context) -> Dead:
        dead = Dead(context)
        for tensor in filter(context.is_offloaded, context.uses):
            made = context.last_forward_write(tensor, before=context.network.depth + 1)
            made = max(made, context.held.get(tensor, 0))
            used = (step.number for step in context.uses[tensor] if step.number >= made)
            dead.free(tensor, [*used, *context.rebuilt_from.get(tensor, ())])
        return dead
