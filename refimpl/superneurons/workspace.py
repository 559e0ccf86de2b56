"""SuperNeurons' dynamic convolution workspaces (§3.5): the fastest algorithm that the bytes free now allow.

Functional tensors come first: when the algorithm of a convolution call is chosen, all tensors of its step are on the
device, and the bytes that are left may be used for speed.  Forward, data gradient and filter gradient choose
separately, at every step.  A workspace is one block, so the largest hole counts, not all free bytes.

vDNN++'s dynamic policy makes the same choice, so it is in `refimpl.planner.baseline.FastestThatFits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.planner.baseline import FastestThatFits


@dataclass(frozen=True)
class DynamicWorkspace(FastestThatFits):
    """The fastest algorithm whose workspace fits the largest hole; where none does, the one with the least."""

    name: ClassVar[str] = "superneurons-dynamic"
    summary: ClassVar[str] = "the fastest whose workspace fits the largest hole at that moment"
