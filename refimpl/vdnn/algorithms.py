"""vDNN's greedy choice of convolution algorithms (§3.3 of the paper, the dynamic policy's last resort)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.machine import Choice
from refimpl.network import Call, Step
from refimpl.planner.context import PlanContext
from refimpl.planner.slots import Feature


@dataclass(frozen=True)
class Greedy:
    """The fastest algorithm; where that would overflow at this point, this call alone steps down until one fits."""

    name: ClassVar[str] = "vdnn-greedy"
    summary: ClassVar[str] = "the fastest; where that would overflow, the next less hungry one"
    needs: ClassVar[frozenset[Feature]] = frozenset()
    offers: ClassVar[frozenset[Feature]] = frozenset()

    def bind(self, context: PlanContext) -> BoundGreedy:
        return BoundGreedy(context)


class BoundGreedy:
    def __init__(self, context: PlanContext) -> None:
        self._choices = context.machine.choices

    def choose(self, step: Step, call: Call, largest_hole: int) -> Choice:
        fastest, *slower = self._choices(call)
        taken = fastest
        for next_ in slower:
            if taken.workspace_bytes <= largest_hole:
                break
            if next_.workspace_bytes < taken.workspace_bytes:
                taken = next_
        return taken
