"""SuperNeurons' dynamic convolution workspaces (§3.5): the fastest algorithm that the bytes free now allow.

Functional tensors come first: when a convolution call is asked about, everything its step reads and writes has its
place already, and what is left may be used for speed.  Forward, the gradient of the data and that of the filter each
choose on their own, at every step anew.  Free bytes that lie apart are no workspace: what counts is the largest hole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.machine import Choice
from refimpl.network import Call, Step
from refimpl.planner.slots import Feature
from refimpl.planner.walk import Walk


@dataclass(frozen=True)
class DynamicWorkspace:
    """The fastest algorithm whose workspace fits the largest hole; where none does, the one with the least."""

    name: ClassVar[str] = "superneurons-dynamic"
    summary: ClassVar[str] = "the fastest whose workspace fits what is free at that moment"
    needs: ClassVar[frozenset[Feature]] = frozenset()
    offers: ClassVar[frozenset[Feature]] = frozenset()

    def bind(self, walk: Walk) -> BoundWorkspace:
        return BoundWorkspace(walk)


class BoundWorkspace:
    def __init__(self, walk: Walk) -> None:
        self._choices = walk.machine.choices

    def choose(self, step: Step, call: Call, largest_hole: int) -> Choice:
        choices = self._choices(call)  # the fastest first
        for choice in choices:
            if choice.workspace_bytes <= largest_hole:
                return choice
        return min(choices, key=lambda choice: choice.workspace_bytes)  # the planner makes room, or says what misses
