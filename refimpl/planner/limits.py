"""What one pass of the loop may not do, because an earlier pass has shown that it does not pay; no paper has it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from refimpl.network import Tensor


@dataclass(frozen=True)
class PassLimits:
    """The defaults limit nothing."""

    lag: int | None = None  #: steps that a released block drains at most; None: as long as there is room
    fastest: bool = False  #: a call that cannot have its fastest algorithm ends the pass (`NotTheFastest`)
    seconds: float = inf  #: an iteration that is sure to take longer ends the pass (`TooSlow`)
    futile: frozenset[tuple[Tensor, int]] = frozenset()  #: (map, step) of prefetches that are not made


PAPERS = PassLimits()
