"""The simple choices of a convolution's algorithm.  The planner asks them, and never the executor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from refimpl.network import Call, Step
from refimpl.slots import questions as slots
from refimpl.slots.context import Context

if TYPE_CHECKING:
    from refimpl.machine import Choice


class ByWorkspace(slots.Algorithms):
    """Base class of modules that look at a call's choices and the largest hole, and at nothing else."""

    def bind(self, context: Context) -> Chooser:
        return Chooser(context, lambda step, choices, largest_hole, drained: self.pick(choices, largest_hole))

    @abstractmethod
    def pick(self, choices: Sequence[Choice], largest_hole: int) -> Choice:
        """One of a call's choices, which are sorted, the fastest first.

        Args:
            choices: algorithms with their workspace in bytes and their seconds.
            largest_hole: bytes that can be had for the workspace in one piece.
        """


class Chooser:
    """Answers by a function of the step, the call's choices, the largest hole, and what is free once drained."""

    def __init__(self, context: Context, pick: Callable[[Step, Sequence[Choice], int, int], Choice]) -> None:
        self._pick, self._choices = pick, context.machine.choices

    def choose(self, step: Step, call: Call, largest_hole: int, free_when_drained: int) -> Choice:
        return self._pick(step, self._choices(call), largest_hole, free_when_drained)


def fastest_within(choices: Sequence[Choice], nbytes: int) -> Choice:
    """The fastest choice whose workspace takes at most `nbytes`; where none does, the one with the least."""
    fitting = (choice for choice in choices if choice.workspace_bytes <= nbytes)
    return next(fitting, None) or least(choices)


def least(choices: Sequence[Choice]) -> Choice:
    """The choice with the least workspace; of several such the fastest."""
    return min(choices, key=lambda choice: (choice.workspace_bytes, choice.seconds))


@dataclass(frozen=True)
class MemoryOptimal(ByWorkspace):
    """The algorithm with the least workspace; of several such the fastest."""

    name: ClassVar[str] = "memory"
    summary: ClassVar[str] = "the least workspace, and the fastest algorithm with that"
    adapts: ClassVar[bool] = False

    def pick(self, choices: Sequence[Choice], largest_hole: int) -> Choice:
        return least(choices)


@dataclass(frozen=True)
class PerformanceOptimal(ByWorkspace):
    """The fastest algorithm, whatever its workspace."""

    name: ClassVar[str] = "performance"
    summary: ClassVar[str] = "the fastest algorithm, whatever its workspace"
    adapts: ClassVar[bool] = False

    def pick(self, choices: Sequence[Choice], largest_hole: int) -> Choice:
        return choices[0]


@dataclass(frozen=True)
class FastestThatFits(ByWorkspace):
    """The fastest algorithm whose workspace fits the largest hole; where none does, the one with the least."""

    name: ClassVar[str] = "fastest-that-fits"
    summary: ClassVar[str] = "the fastest algorithm whose workspace fits what is free"

    def pick(self, choices: Sequence[Choice], largest_hole: int) -> Choice:
        return fastest_within(choices, largest_hole)  # where none fits, the planner makes room, or fails
