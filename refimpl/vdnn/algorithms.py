"""vDNN's greedy choice of convolution algorithms (§3.3 of the paper, the dynamic policy's last resort).

Every call starts at its fastest algorithm.  Where the workspace would overflow at this point, this call alone steps
down, algorithm by algorithm, until one fits.  That ends at the fastest that fits, as SuperNeurons' dynamic workspaces
do, so the choice is in `refimpl.planner.baseline.FastestThatFits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.planner.baseline import FastestThatFits


@dataclass(frozen=True)
class Greedy(FastestThatFits):
    """The fastest algorithm; where that would overflow at this point, this call alone steps down until one fits."""

    name: ClassVar[str] = "vdnn-greedy"
    summary: ClassVar[str] = "the fastest; where that would overflow, the next one with less workspace"
