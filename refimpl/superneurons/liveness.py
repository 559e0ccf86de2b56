"""SuperNeurons' liveness analysis (§3.2): before a step what it needs is allocated, after it what nobody needs freed.

The paper gives every step two sets.  What is in memory when it begins is `in`, what is left when it has ended is `out`
and the next step's `in`.  To leave a tensor out of `out` one has to know that no later step needs it: the paper looks
through all later steps, for every step, which is quadratic.  One pass from the last step to the first gives the same
sets, in time linear in what all steps use: where a tensor is first met on the way is its last use.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from refimpl.network import Step, Tensor
from refimpl.planner import slots
from refimpl.planner.context import PlanContext

Name = TypeVar("Name", bound=Hashable)  #: whatever names a tensor, or one of its lives


def out_sets(uses: Sequence[Iterable[Name]], made: Sequence[Iterable[Name]]) -> list[list[Name]]:
    """The paper's analysis as it is told: what is alive behind each step, in the order in which it came to be.

    `uses[k]` are the tensors that step k reads or writes, `made[k]` those that it brings into being.  Quadratic: the
    twin that `last_uses` is tested against.
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
    """For every step, the tensors it uses and no later step does: one pass, from the last step to the first."""
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
    """Every tensor is freed behind its last use; one that leaves or is dropped, behind its last forward use too."""

    name: ClassVar[str] = "superneurons-liveness"
    summary: ClassVar[str] = "every tensor goes behind its last use: one pass over the in and out sets"
    offers: ClassVar = frozenset({"release"})

    def bind(self, context: PlanContext) -> Dead:
        return Dead(context)


class Dead:
    """Step → what is freed behind it."""

    def __init__(self, context: PlanContext) -> None:
        uses = [[*step.uses] for step in context.network.steps]
        for checkpoint, steps in context.rebuilt_from.items():  # what is rebuilt from is used, whoever reads the result
            for number in steps:
                uses[number - 1].append(checkpoint)
        self._behind = [dict.fromkeys(tensors) for tensors in last_uses(uses)]
        for behind, tensors in zip(self._behind, last_uses(uses[: context.network.depth]), strict=False):
            behind.update(dict.fromkeys(tensor for tensor in tensors if tensor in context.fates))

    def dead(self, step: Step) -> Sequence[Tensor]:
        return tuple(self._behind[step.number - 1])
