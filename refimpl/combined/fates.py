"""Fates: what becomes of each map between forward and backward, as a thing to hold, print, edit and save.

Every map that forward makes and backward reads has one fate:

| fate | the map |
| --- | --- |
| keep | stays on the device |
| offload | is copied to the host, released, and copied back before backward needs it |
| drop | is released and rebuilt when backward needs it, then kept until its last use |
| again | is dropped, too, but never kept: every step that needs it rebuilds it |

One mapping fills three slots of a setup: recompute, offload and prefetch.  A file has one map a line, so that a reader
can change one fate and see what it costs:

    refimpl plan alexnet --policy vdnn-all --save-fates alexnet.fates
    refimpl plan alexnet --set fates=alexnet.fates
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from refimpl.network import Tensor
from refimpl.planner import Context, SetupError
from refimpl.slots.context import made_once
from refimpl.text import closest

Word = Literal["keep", "offload", "drop", "again"]
WORDS: tuple[Word, ...] = get_args(Word)


@dataclass(frozen=True)
class Fates:
    """Map → fate, by name; a map that is not named is kept.  Equal fates are equal, and have one hash."""

    chosen: tuple[tuple[str, Word], ...] = ()  #: sorted by name, without the maps that stay

    @classmethod
    def of(cls, fates: Mapping[str, Word]) -> Fates:
        """The fates of these maps; all others are kept."""
        return cls(tuple(sorted((name, word) for name, word in fates.items() if word != "keep")))

    @cached_property
    def _by_name(self) -> dict[str, Word]:
        return dict(self.chosen)

    def __getitem__(self, name: str) -> Word:
        return self._by_name.get(name, "keep")

    def named(self, *words: Word) -> list[str]:
        """The maps that have one of these fates (never keep), by name."""
        return [name for name, word in self.chosen if word in words]

    def changed(self, fates: Mapping[str, Word]) -> Fates:
        """The same fates, with these maps changed."""
        return Fates.of(self._by_name | dict(fates))

    def __str__(self) -> str:
        return ", ".join(f"{name} {word}" for name, word in self.chosen) or "every map is kept"

    def check(self, maps: Mapping[str, Tensor]) -> None:
        """Raise `SetupError` for a name that is not of one of the maps."""
        for name, _ in self.chosen:
            if name not in maps:
                near = closest(name, maps)
                raise SetupError(
                    f"fates: {name!r} is no map that forward makes and backward reads"
                    + (f"; did you mean {near}?" if near else "; refimpl plan … --save-fates FILE writes all names")
                )


def by_name(context: Context) -> dict[str, Tensor]:
    """The maps that may have a fate, by name: what is made once may be read in backward to rebuild others."""
    return {tensor.name: tensor for tensor in (*context.maps_across(), *made_once(context.network))}
