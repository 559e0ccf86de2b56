"""The papers' setups by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from refimpl.combined.papers import papers
from refimpl.planner import Search, Setup

SHOWN = ("recompute", "algorithms")  #: the slots in which setups of one preset differ


@dataclass(frozen=True)
class Named:
    """A setup of a paper."""

    paper: str
    name: str  #: which no other setup has
    setup: Setup


@cache
def of_papers() -> dict[str, Named]:
    """Name → setup, paper by paper."""
    found = (Named(paper, name_of(setup), setup) for paper, setups in papers().items() for setup in setups)
    return {named.name: named for named in found}


def name_of(setup: Setup) -> str:
    """A setup's name, with the modules that its paper offers a choice of."""
    if isinstance(setup, Search):
        return setup.name
    named = [f"{slot}={setup.shown(slot)}" for slot in SHOWN if f"{slot}=" not in setup.name]
    return ", ".join([setup.name, *(text for text in named if not text.endswith("=none"))])
