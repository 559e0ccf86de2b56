"""A figure that a paper published, and ours beside it; and the result of a part of a paper's evaluation.

A paper's published figures are data, `published.json` beside its evaluation, which `Figures` reads.  Marks say how sure
a figure is: "P" printed in the paper, "D" read off its vector figures, "C" calculated with the model described here,
"p" recalled from the paper and not checked again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

Quantity = Literal["bytes", "time", "counts"]

#: Unit → the quantity that it measures; "%" and "×" measure none, so such a figure says it.
QUANTITIES: dict[str, Quantity] = {
    "GB": "bytes", "MB": "bytes", "MiB": "bytes", "s": "time", "ms": "time", "images/s": "time",
    "": "counts", "images": "counts", "layers": "counts",
}  # fmt: skip

CLOSE = 0.02  #: the deviation, as a share, up to which a figure counts as met

#: A network's name → as the papers write it.
TITLES = {
    "alexnet": "AlexNet", "overfeat": "OverFeat", "googlenet": "GoogLeNet", "vgg16": "VGG-16", "vgg19": "VGG-19",
    "vgg116": "VGG-116", "vgg416": "VGG-416", "inceptionv4": "Inception-v4", "resnet50": "ResNet-50",
    "resnet101": "ResNet-101", "resnet152": "ResNet-152",
}  # fmt: skip

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
    at_most: bool = False  #: published as enough: every smaller figure meets it, too
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
        if self.published.at_most and self.ours <= self.published.value:
            return True
        return abs(self.deviation) <= CLOSE if within is None else abs(self.ours - self.published.value) <= within


class Found(NamedTuple):
    """The result of a part: published figures with ours, and rows (dataclasses) of everything else that it shows."""

    figures: Sequence[Reproduced]
    rows: Sequence[Any]


# -- a paper's figures -------------------------------------------------------------------------------------------------


def written(key: str) -> str:
    """A key as the papers write it: `vgg16(64)` is VGG-16(64)."""
    name, batch, rest = key.partition("(")
    return f"{TITLES.get(name, name)}{batch}{rest}"


def sized(key: str) -> tuple[str, int]:
    """The network and the images of a key such as `vgg16(64)`."""
    name, _, batch = key.rstrip(")").partition("(")
    return name, int(batch)


class Figures:
    """The published figures of one paper, and what else its file has.

    The file groups them by source and mark, and by name.  A name's value is a number, or numbers by one key or two;
    `what` then has {0} and {1} in the place of the keys.
    """

    def __init__(self, module: str) -> None:
        found: dict[str, Any] = json.loads(Path(module).with_name("published.json").read_text(encoding="utf-8"))
        self.data: dict[str, Any] = found.get("data", {})  #: what has no figure of ours beside it
        self._groups = {
            name: _figures(group["value"], group | {"mark": origin["mark"], "source": origin["source"]}, ())
            for origin in found["published"]
            for name, group in origin["figures"].items()
        }

    def one(self, name: str) -> Published:
        found: Published = self._groups[name]
        return found

    def by(self, name: str) -> dict[str, Published]:
        """A group with one key."""
        found: dict[str, Published] = self._groups[name]
        return found

    def by_two(self, name: str) -> dict[str, dict[str, Published]]:
        """A group with two keys."""
        found: dict[str, dict[str, Published]] = self._groups[name]
        return found


def _figures(value: Any, group: dict[str, Any], keys: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _figures(inner, group, (*keys, key)) for key, inner in value.items()}
    return Published(**group | {"what": group["what"].format(*map(written, keys)), "value": value})
