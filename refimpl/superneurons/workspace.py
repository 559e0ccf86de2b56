"""SuperNeurons' dynamic convolution workspaces (§3.5): the fastest algorithm that the bytes free now allow.

Functional tensors come first: when a convolution call is asked about, everything its step reads and writes has its
place already, and what is left may be used for speed.  Forward, the gradient of the data and that of the filter each
choose on their own, at every step anew.  Free bytes that lie apart are no workspace: what counts is the largest hole.

The choice itself stands with the planner's simple modules (`refimpl.planner.baseline.FittingChooser`), for vDNN++'s
dynamic policy makes it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.planner.baseline import FastestThatFits


@dataclass(frozen=True)
class DynamicWorkspace(FastestThatFits):
    """The fastest algorithm whose workspace fits the largest hole; where none does, the one with the least."""

    name: ClassVar[str] = "superneurons-dynamic"
    summary: ClassVar[str] = "the fastest whose workspace fits what is free at that moment"
