"""SuperNeurons' liveness analysis (§3.2): before a step its tensors are allocated, after it those nobody needs are freed.

The paper gives every step two sets.  What is in memory when it begins is `in`, what is left when it has ended is `out`,
and to leave a tensor out of `out` one has to know that no later step needs it: the paper looks through all later steps,
for every step, which is quadratic.  One pass from the last step to the first gives the same sets, in time linear in
what all steps use: the first time that a tensor is met there is its last use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl.network import Step, Tensor
from refimpl.planner.slots import Feature
from refimpl.planner.walk import Walk


def out_sets(uses: Sequence[Iterable[Tensor]], made: Sequence[Iterable[Tensor]]) -> list[list[Tensor]]:
    """The paper's analysis as it is told: what is alive behind each step, in the order in which it came to be.

    `uses[k]` are the tensors that step k reads or writes, `made[k]` those that it brings into being.  Quadratic: the
    twin that `last_uses` is tested against.
    """
    alive: list[Tensor] = []
    sets = []
    for step in range(len(uses)):
        alive += [tensor for tensor in made[step] if tensor not in alive]
        needed = {tensor for later in uses[step + 1 :] for tensor in later}
        alive = [tensor for tensor in alive if tensor in needed]
        sets.append(alive)
    return sets


def last_uses(uses: Sequence[Iterable[Tensor]]) -> list[list[Tensor]]:
    """The tensors that no step behind this one uses, for every step: one pass, from the last step to the first."""
    met: set[Tensor] = set()
    last: list[list[Tensor]] = [[] for _ in uses]
    for step in reversed(range(len(uses))):
        for tensor in uses[step]:
            if tensor not in met:
                met.add(tensor)
                last[step].append(tensor)
    return last


@dataclass(frozen=True)
class Analysis:
    """Every tensor is freed behind its last use; one that leaves or is dropped, behind its last forward use too."""

    name: ClassVar[str] = "superneurons-liveness"
    summary: ClassVar[str] = "every tensor goes behind its last use: one pass over the in and out sets"
    needs: ClassVar[frozenset[Feature]] = frozenset()
    offers: ClassVar[frozenset[Feature]] = frozenset({"release"})

    def bind(self, walk: Walk) -> Dead:
        return Dead(walk)


class Dead:
    def __init__(self, walk: Walk) -> None:
        network, depth = walk.network, walk.network.depth
        uses = [[*step.uses] for step in network.steps]
        for checkpoint, steps in walk.rebuilt_from.items():  # what is rebuilt from is used, whoever reads the result
            for number in steps:
                uses[number - 1].append(checkpoint)
        self._dead: defaultdict[int, list[Tensor]] = defaultdict(list, enumerate(last_uses(uses), start=1))
        for number, tensors in enumerate(last_uses(uses[:depth]), start=1):
            self._dead[number] += [t for t in tensors if t in walk.fates and t not in self._dead[number]]

    def dead(self, step: Step) -> Sequence[Tensor]:
        return self._dead.get(step.number, ())
