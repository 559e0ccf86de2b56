"""The papers' setups by name, the best of each paper within a budget, and how they are compared with the optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from refimpl.combined.papers import best_of, papers
from refimpl.machine import Machine
from refimpl.network import Network
from refimpl.planner import Search, Setup

SHOWN = ("recompute", "algorithms")  #: the slots in which setups of one preset differ


@dataclass(frozen=True)
class Named:
    """A setup of a paper."""

    paper: str
    name: str  #: which no other setup has
    setup: Setup


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


@dataclass(frozen=True)
class BestOfPaper:
    """The fastest of a paper's setups within a budget."""

    paper: str
    setup: str = ""  #: its name; empty if none fits
    seconds: float | None = None


def best_of_papers(
    network: Network, machine: Machine, budget: int, setups: Mapping[str, Named], watch: Callable[[str], None]
) -> list[BestOfPaper]:
    """The fastest setup of every paper; `watch` is called with each setup before it is planned."""
    found: list[BestOfPaper] = []
    for paper in dict.fromkeys(named.paper for named in setups.values()):
        own = {named.setup: named.name for named in setups.values() if named.paper == paper}
        best = best_of(own, network, machine, budget, math.inf, watch)
        fits = best.program is not None
        found.append(BestOfPaper(paper, own[best.setup], best.tried[0].seconds) if fits else BestOfPaper(paper))
    return found
