"""A figure that a paper published, and ours beside it.

Marks say how sure the published one is: "P" printed in the paper, "p" recalled from it and not checked again, "C"
calculated with the model described here.
"""

from __future__ import annotations

from dataclasses import dataclass

CLOSE = 0.02  #: the deviation, as a share, up to which a figure counts as met


@dataclass(frozen=True)
class Published:
    what: str
    value: float
    unit: str
    mark: str
    source: str


@dataclass(frozen=True)
class Reproduced:
    published: Published
    ours: float
    note: str  #: how ours was come by

    @property
    def deviation(self) -> float:
        """Ours over theirs, minus 1."""
        return self.ours / self.published.value - 1

    @property
    def met(self) -> bool:
        return abs(self.deviation) <= CLOSE
