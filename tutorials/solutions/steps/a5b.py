"""A5b, a prefetch: what is handed in after each step."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from refimpl import Context, slots
from refimpl.network import Step, Tensor
from refimpl.slots.baseline import NoPrefetch
from tutorials.labs.lab import Case
from tutorials.labs.test_a5b import LAB as LAB
from tutorials.solutions.a5b_prefetch import away, in_time, prefetch
from tutorials.solutions.steps import a5a
from tutorials.solutions.steps.a5a import PARTS as PARTS

DRAWS, NEED = 6, 0.1


def draw(part: str, numbers: random.Random) -> Case:
    return a5a.draw(part, numbers, (0.25, 0.7))


@dataclass(frozen=True)
class Rule(slots.Prefetch):
    """Each map at the step of a rule."""

    begins: Callable[[Context], Mapping[Tensor, int]]
    name: ClassVar[str] = "a-rule"
    summary: ClassVar[str] = "each map at the step of a rule"
    needs: ClassVar = frozenset({"offload"})

    def bind(self, context: Context) -> Begins:
        return Begins(self.begins(context))


class Begins:
    def __init__(self, begins: Mapping[Tensor, int]) -> None:
        self.at: defaultdict[int, list[Tensor]] = defaultdict(list)
        for tensor, number in begins.items():
            self.at[number].append(tensor)

    def due(self, step: Step) -> Sequence[Tensor]:
        return self.at.get(step.number, ())


def ahead(context: Context, distance: int) -> dict[Tensor, int]:
    first = context.network.depth + 1
    return {tensor: max(first, context.first_backward_use(tensor) - distance) for tensor in away(context)}


ZERO: dict[str, Any] = {"prefetch": NoPrefetch()}
FULL: dict[str, Any] = {"prefetch": prefetch}
STEPS: dict[str, dict[str, Any]] = {
    "1 one step ahead": {"prefetch": Rule(lambda context: ahead(context, 1))},
    "2 two steps ahead": {"prefetch": Rule(lambda context: ahead(context, 2))},
    "3 by the seconds": {"prefetch": Rule(lambda context: in_time(context, away(context)))},
}
