"""Algorithms by what fits once copies have drained: kernels wait for a copy out rather than run slowly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.machine import Choice
from refimpl.network import Call, Step
from refimpl.planner import PlanContext, slots


@dataclass(frozen=True)
class OnceDrained(slots.Algorithms):
    """The fastest algorithm whose workspace fits what is free when all copies out are done; else the least."""

    name: ClassVar[str] = "once-drained"
    summary: ClassVar[str] = "the fastest whose workspace fits what is free once copies have drained"
    counts_drained: ClassVar[bool] = True

    def bind(self, context: PlanContext) -> BoundOnceDrained:
        return BoundOnceDrained(context)


class BoundOnceDrained:
    def __init__(self, context: PlanContext) -> None:
        self._choices = context.machine.choices

    def choose(self, step: Step, call: Call, largest_hole: int, free_when_drained: int) -> Choice:
        choices = self._choices(call)
        fitting = (choice for choice in choices if choice.workspace_bytes <= free_when_drained)
        return next(fitting, None) or min(choices, key=lambda choice: choice.workspace_bytes)
