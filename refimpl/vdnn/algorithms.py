"""vDNN's greedy choice of convolution algorithms (§3.3 of the paper, the dynamic policy's last resort)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from refimpl.machine import Choice
from refimpl.planner.baseline import ByWorkspace


@dataclass(frozen=True)
class Greedy(ByWorkspace):
    """The fastest algorithm; where that would overflow at this point, this call alone steps down until one fits."""

    name: ClassVar[str] = "vdnn-greedy"
    summary: ClassVar[str] = "the fastest; where that would overflow, the next one with less workspace"

    def pick(self, choices: Sequence[Choice], largest_hole: int) -> Choice:
        taken, *slower = choices
        for next_ in slower:
            if taken.workspace_bytes <= largest_hole:
                break
            if next_.workspace_bytes < taken.workspace_bytes:
                taken = next_
        return taken
