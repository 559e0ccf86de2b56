"""The search: the papers' setups, the two-parameter family, then changes of the best, each judged by the planner.

1. The papers' setups are planned; the best of them become starting points.  Where one runs at the floor, that is it.
2. The two-parameter family (`seeds`), and some fates by lot.
3. The best of each kind are changed, again and again: half of the changes are remedies for what the plan loses
   (`remedies`), the others drawn.  A change that makes the plan slower is taken, too, if it is slower by less than a
   bound that shrinks; the bound is drawn before the judgement, so that a plan beyond it is given up.
4. The fastest program that was planned is adopted, a paper's if it is one.

The same search gives the same program everywhere: judgements are counted, not seconds, and draws have a seed.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

from refimpl.combined.farthest import FarthestNextUse
from refimpl.combined.fates import Fates, Word
from refimpl.combined.file import leaves_late, setup_with, words
from refimpl.combined.judge import Judge, Met, SearchProgress
from refimpl.combined.maps import Maps
from refimpl.combined.modules import Offloaded
from refimpl.combined.papers import planned_quickly
from refimpl.combined.remedies import KNOBS, Change, SearchRemedies, fates_of
from refimpl.combined.seeds import FEW, drawn, family, frugal
from refimpl.memory import BestFit, BothEnds
from refimpl.planner import FixedAddresses, PlanContext, Program, Search, Setup, SetupError
from refimpl.planner.baseline import NoCache
from refimpl.planner.setup import FIELDS

POINTS = 3  #: programs of papers that the search begins from
STARTS, FEW_STARTS = 4, 2  #: setups that are changed first; the few where there are not MANY plans left
MANY = 300
NEAR = 1.5  #: times the best seconds: a seed that takes longer is given up
HOT, WARM = 0.25, 0.15  #: the first bound, as a share of what is above the floor: of the first rounds, of the last


def judgements(steps: int) -> int:
    """The plans of a search without `--effort`: fewer for a deep network, whose plans take longer."""
    return 130 + 40_000 // steps


@dataclass(frozen=True)
class Combined(Search):
    """Every slot is searched."""

    searched: tuple[str, ...] = FIELDS
    smaller_pools: ClassVar[bool] = False  #: there are too many candidates; only the papers', and the last resorts
    effort: int | None = None  #: plans at most; None: by the network's depth
    seed: int = 1  #: of the draws
    first: bool = False  #: whether the first program that fits is adopted
    watch: SearchProgress = field(default=lambda plans, most, seconds: None, repr=False, compare=False)

    def search(self, attempt: Callable[..., Program], context: PlanContext) -> Program:
        maps = Maps(context)
        most = self.effort or judgements(len(context.network.steps))
        judge = Judge(attempt, maps.floor, most, self.watch, self.first)
        try:
            points = [] if self.first else points_of(of_papers(judge, context)[:POINTS])
            if self.first:
                any(judge.planned(setup) for setup in frugal(maps))
            if not judge.over:
                Climb(judge, maps, random.Random(self.seed)).search(points)
            if judge.best is None:
                any(judge.planned(setup, smaller=True) for setup in frugal(maps))
        except KeyboardInterrupt:  # the best so far is a result
            if judge.best is None:
                raise
        if judge.best is None:
            raise self.untrainable(judge.failure, context)
        adopted = judge.best.setup
        if adopted.name != self.name:
            adopted = dataclasses.replace(adopted, name=f"{self.name}: {adopted.name}")
        return dataclasses.replace(judge.best, setup=adopted, tried=tuple(judge.tried))

    @property
    def frugal(self) -> Setup:
        """Whether a budget is enough: the search ends with the first program that fits."""
        return dataclasses.replace(self, first=True)

    def replace(self, **modules: Any) -> Setup:
        """Raises `SetupError`: no slot is left."""
        if modules:
            raise SetupError(f"{self.name} chooses every slot itself; {self.instead}")
        return self


COMBINED = Combined("combined", least="with everything offloaded", instead="take another preset, or --fates FILE")


# -- the papers' programs ----------------------------------------------------------------------------------------------


def of_papers(judge: Judge, context: PlanContext) -> list[Program]:
    """The papers' programs within the budget, the fastest first; these plans are not counted."""
    found = []
    for setup in planned_quickly():
        if isinstance(setup, Search):
            program = judge.searched(setup, context)
        else:
            program = judge.planned(setup, NEAR * judge.seconds, smaller=True)
        if program:
            found.append(program)
    judge.count = 0
    return sorted(found, key=lambda program: program.planned_seconds)


def points_of(programs: list[Program]) -> list[Setup]:
    """Programs as points of the search; where blocks have fixed addresses, also with other ones."""
    points = [point(program) for program in programs]
    fixed = [one for one in points if isinstance(one.allocator, FixedAddresses)]
    return points + [dataclasses.replace(one, allocator=FixedAddresses(early=True)) for one in fixed]


def point(program: Program) -> Setup:
    """A paper's program as a point of the search: its fates, and its other modules where the search has them."""
    setup = program.setup
    fates = Fates.of({name: "drop" if word == "again" else word for name, word in words(program).items()})
    own = {name: getattr(setup, name) for name in KNOBS if name in FIELDS}
    if isinstance(setup.cache, NoCache):
        own["cache"] = FarthestNextUse()
    if isinstance(setup.allocator, FixedAddresses):  # with the patience that found the paper's addresses
        own["allocator"] = dataclasses.replace(setup.allocator, places=())
    elif setup.allocator not in KNOBS["allocator"]:
        own["allocator"] = BothEnds() if isinstance(setup.allocator, BothEnds) else BestFit()
    return setup_with(fates, name="combined", offload=Offloaded(leaves_late(program)), **own)


# -- seeds and changes -------------------------------------------------------------------------------------------------


class Climb:
    """One search: the judge, the draws, and what is known of the maps."""

    def __init__(self, judge: Judge, maps: Maps, lot: random.Random) -> None:
        self.judge, self.maps, self.lot = judge, maps, lot
        self.few_steps = len(maps.network.steps) <= FEW

    def search(self, points: list[Setup]) -> None:
        """Seeds; half of the plans that are left for the best of each kind, the rest for the best of all."""
        seeds = self.seeds(points)
        left = self.judge.most - self.judge.count
        starts = self.starts(seeds, STARTS if left >= MANY else FEW_STARTS)
        climbed = [self.climb(start, left // 2 // len(starts), HOT) for start in starts]
        if climbed:
            self.climb(min(climbed, key=lambda met: met.seconds), self.judge.most - self.judge.count, WARM)

    def seeds(self, points: list[Setup]) -> list[Met]:
        """All seeds that fit, the fastest first."""
        judge, found = self.judge, list[Met]()
        by_lot = (drawn(self.maps, self.lot) for _ in range(judge.most // 16))
        for setup in chain(points, family(self.maps), by_lot):
            if judge.over:
                break
            near = 1.0 if isinstance(setup.allocator, FixedAddresses) and setup not in points else NEAR
            met = None if judge.knows(setup) else judge.met(setup, near * judge.seconds)
            if met and met.fits:
                found.append(met)
        return sorted(found, key=lambda met: met.seconds)

    def starts(self, seeds: list[Met], most: int) -> list[Met]:
        """The fastest of each kind."""
        kinds: dict[Any, Met] = {}
        for met in seeds:
            dropped = len(fates_of(met.setup).named("drop")) * 4 // max(1, len(self.maps.large))
            kinds.setdefault((met.setup.algorithms, dropped, met.setup.prefetch, type(met.setup.allocator)), met)
        return [*kinds.values()][:most]

    def climb(self, start: Met, turns: int, hot: float) -> Met:
        """Change a setup step by step; the fastest that was met.

        Args:
            start: the setup, with its program.
            turns: plans at most.
            hot: the first bound, as a share of what is above the floor.
        """
        judge = self.judge
        best = now = start
        left, misses = turns, 0
        ranked: list[Change] | None = None  #: of the setup of now
        while left > 0 and misses < 50 * turns and not judge.over:
            if ranked is None:
                ranked = SearchRemedies(now.setup, now.program, self.maps).ranked()[: 3 * len(self.maps.large)]
            setup = self.change(ranked, fates_of(now.setup)).applied(now.setup)
            heat = hot * (best.seconds - judge.floor) * (left / turns) ** 1.5
            edge = now.seconds - heat * math.log(1 - self.lot.random())
            if setup == now.setup or judge.knows(setup):
                misses += 1
                continue
            left -= 1
            met = judge.met(setup, edge)
            if met and met.seconds <= edge and (met.fits or self.few_steps):
                now, ranked = met, None
                if now.fits and now.seconds < best.seconds:
                    best = now
            elif left % 50 == 0 and now is not best:
                now, ranked = best, None
        return best

    def change(self, ranked: list[Change], fates: Fates) -> Change:
        """A remedy, the more promising the likelier, or a change by lot; where no map has a fate, of another module."""
        lot, large = self.lot, self.maps.large
        kind = lot.random()
        if kind < 0.45 and ranked:
            return ranked[int(len(ranked) * lot.random() ** 3)]
        if kind < 0.55 and large:
            one, other = lot.choice(large), lot.choice(large)
            return self._allowed({one.name: fates[other.name], other.name: fates[one.name]})
        if kind < 0.85 and large:
            first, count = lot.randrange(len(large)), 1 if kind < 0.75 else lot.choice((2, 3, 4, 6))
            word: Word = lot.choice(("keep", "offload", "drop"))
            return self._allowed({x.name: word for x in large[first : first + count]})
        knob = lot.choice([*KNOBS])
        return Change(knob=knob, value=lot.choice(KNOBS[knob]))

    def _allowed(self, fates: dict[str, Word]) -> Change:
        """The change to these fates; the batch is never dropped."""
        batch = self.maps.network.input.name
        return Change(tuple((name, word) for name, word in fates.items() if name != batch or word != "drop"))
