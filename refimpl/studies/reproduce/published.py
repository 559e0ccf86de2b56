"""A figure that a paper published, and ours beside it; and the result of a part of a paper's evaluation.

Marks say how sure the published one is: "P" printed in the paper, "D" read off its vector figures, "C" calculated with
the model described here, "p" recalled from the paper and not checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, NamedTuple

Quantity = Literal["bytes", "time", "counts"]

#: Unit → the quantity that it measures; "%" and "×" measure none, so such a figure says it.
QUANTITIES: dict[str, Quantity] = {
    "GB": "bytes", "MB": "bytes", "MiB": "bytes", "s": "time", "ms": "time", "images/s": "time",
    "": "counts", "images": "counts", "layers": "counts",
}  # fmt: skip

CLOSE = 0.02  #: the deviation, as a share, up to which a figure counts as met

Watch = Callable[[str], None]  #: a progress callback: called with the name of each thing that begins


@dataclass(frozen=True)
class Published:
    what: str
    value: float
    unit: str
    mark: str
    source: str
    within: float | None = (
        None  #: where a share would be too generous: how far ours may be off, in the figure's unit (of "%": points)
    )
    above: bool = False  #: published as "more than": every larger figure meets it
    in_medians: bool = True  #: not what repeats another line's figure, nor a limit that is kept or not
    of: Quantity | None = None  #: of a share or a ratio: the quantity; else the unit says it

    @property
    def quantity(self) -> Quantity | None:
        return self.of or QUANTITIES.get(self.unit)


@dataclass(frozen=True)
class Reproduced:
    published: Published
    ours: float
    note: str  #: how ours was found

    @property
    def deviation(self) -> float:
        """Ours over theirs, minus 1."""
        if not self.published.value:
            return inf if self.ours else 0.0
        return self.ours / self.published.value - 1

    @property
    def met(self) -> bool:
        within = self.published.within
        if self.published.above:
            return self.ours > self.published.value
        return abs(self.deviation) <= CLOSE if within is None else abs(self.ours - self.published.value) <= within


class Found(NamedTuple):
    """The result of a part: published figures with ours, and rows (dataclasses) of everything else that it shows."""

    figures: Sequence[Reproduced]
    rows: Sequence[Any]
