"""The search: the papers' programs, some seeds, then one change after another, each judged by the planner.

1. The papers' setups are planned.  Where one runs at the floor, that is it.
2. The fastest of them and the two-parameter family (`seeds`) are the seeds, first with whole steps, then, where
   half of the plans are left, with steps cut at their seams.  Where all of them are far above the floor, so is the
   family in smaller pools.
3. From the fastest seed with fixed addresses and the fastest without: a sweep gives every map, and all maps that are
   alike, each other fate, the largest first; what is faster stays.
4. From the faster of the two a walk draws changes: of the fates of a map or of all maps like it, or of a module.  One
   that makes the plan slower is taken, too, if it is slower by less than a bound that shrinks: so the walk leaves local
   minima.  The bound is drawn before the judgement, so that a plan beyond it is given up.
5. The fastest program that was planned is adopted, a paper's if it is one.

The same search gives the same program everywhere: judgements are counted, not seconds, and draws have a seed.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import itemgetter
from typing import Any

from refimpl.combined.carried_out import Dropped, InTime, Offloaded
from refimpl.combined.farthest import FarthestNextUse
from refimpl.combined.fates import WORDS, Fates, Word
from refimpl.combined.file import leaves_late, setup_with, words
from refimpl.combined.fixed import FixedAddresses
from refimpl.combined.judge import Judge, Judged, SearchProgress
from refimpl.combined.maps import Maps
from refimpl.combined.papers import planned_quickly, with_searched_pools
from refimpl.combined.seeds import ADDRESSES, ALGORITHMS, EARLY, FEW, family, frugal
from refimpl.combined.smaller_pool import SmallerPool, smaller_pools
from refimpl.memory import BestFit, BothEnds
from refimpl.network import Network, Tensor
from refimpl.planner import Context, Program, Search, Setup, SetupError
from refimpl.slots.algorithms import FastestThatFits
from refimpl.slots.baseline import NoCache
from refimpl.slots.setup import FIELDS

POINTS = 3  #: papers' programs that are seeds: the fastest is not always the one with the most to gain
NEAR = 1.5  #: times the best seconds: a plan of a seed or a paper that takes longer is given up, and time is saved
CUT_SEEDS = 0.5  #: of all plans: where seeds of whole steps take more, none of cut steps are tried
FAR = 1.1  #: times the floor: above it memory is tight, and holes decide what fits
SWEEP = 0.25  #: of all plans, for each sweep: enough for the maps of a chain; a deep network's largest count most
RARE = 0.2  #: of the changes are of a module, and of the others of all maps alike: they change much of the plan
HEAT = 2.0  #: maps' mean share of what is above the floor: the first bound; one map is a small part of a deep network

Knobs = dict[str, tuple[Any, ...]]  #: slot, or switch, → its modules

#: What is searched beside the fates.
KNOBS: Knobs = {
    "prefetch": tuple(InTime(lead) for lead in (1.0, 2.0, 4.0, 8.0)),
    "algorithms": ALGORITHMS,
    "allocator": (BestFit(), BothEnds(), ADDRESSES, EARLY),
    "seams": (True, False),
}


def judgements(steps: int) -> int:
    """The plans of a search without `--effort`: fewer for a deep network, whose plans take longer."""
    return 130 + 40_000 // steps


def unwatched(plans: int, most: int, seconds: float) -> None:
    """The progress callback of a search without a watcher; another process can have it."""


@dataclass(frozen=True)
class Combined(Search):
    """Every slot is searched, and whether steps are cut; without `seams` all steps are whole."""

    searched: tuple[str, ...] = tuple(name for name in FIELDS if name != "seams")
    seams: bool = True  #: whether steps may be cut
    effort: int | None = None  #: plans at most; None: by the network's depth
    seed: int = 1  #: of the draws
    first: bool = False  #: whether the first program that fits is adopted
    watch: SearchProgress = field(default=unwatched, repr=False, compare=False)

    def search(self, attempt: Callable[..., Program], context: Context) -> Program:
        network = context.network.whole or context.network  # the papers' steps are whole
        context = Context(network, context.machine, context.budget)
        maps, cuts = Maps(context), len(self.cut(network).steps) > len(network.steps)
        most = self.effort or judgements(len(network.steps))
        judge = Judge(attempt, maps.floor, most, self.watch, self.first)
        try:
            points = [] if self.first else [point for _, point in of_papers(judge, context)]
            if self.first:
                any(judge.planned(setup) for setup in frugal(maps, seams=cuts))
            pools = smaller_pools(self.cut(network), context.budget)
            begun = starts(judge, maps, with_early_addresses(points), pools, cuts)
            swept = (sweep(judge, maps, start) for start in begun)
            if fastest := min(swept, key=lambda judged: judged.seconds, default=None):
                walk(judge, maps, fastest, random.Random(self.seed), knobs(maps, cuts))
            if judge.best is None:
                any(judge.planned(setup) for setup in frugal(maps, seams=cuts))
        except KeyboardInterrupt:  # the best so far is a result
            if judge.best is None:
                raise
        if judge.best is None:
            raise self.untrainable(judge.failure, context)
        adopted = judge.best.setup
        name = self.name if adopted.name == self.preset else f"{self.name}: {adopted.name}"
        adopted = dataclasses.replace(adopted, name=name)
        return dataclasses.replace(judge.best, setup=adopted, tried=tuple(judge.tried))

    def cut(self, network: Network) -> Network:
        """The network in the smallest steps that a program may have; PyTorch's autograd has no seams."""
        return network if network.conventions.as_pytorch else super().cut(network)

    @property
    def frugal(self) -> Setup:
        """Whether a budget is enough: the search ends with the first program that fits."""
        return dataclasses.replace(self, first=True)

    def replace(self, **modules: Any) -> Setup:
        """The same search with whole steps alone, or with cut ones, too; raises `SetupError` for the slots."""
        if {*modules} - {"seams", "name"}:
            raise SetupError(f"{self.name} chooses every slot itself; {self.instead}")
        return super().replace(**modules)


COMBINED = Combined("combined", least="with everything offloaded", instead="take another preset, or --set fates=FILE")


# -- the papers' programs ----------------------------------------------------------------------------------------------


def of_papers(judge: Judge, context: Context) -> list[tuple[float, Setup]]:
    """Seconds of the papers' fastest programs within the budget, and each as a point; these plans are not counted."""

    def found() -> Iterator[tuple[float, Setup]]:
        for setup in planned_quickly():
            if isinstance(setup, Search):
                program = judge.searched(setup, context)
            else:
                program = judge.planned(setup, NEAR * judge.seconds)
            if program:
                yield program.planned_seconds, point(program)
        for setup in with_searched_pools():
            if not judge.at_floor and (program := judge.planned(setup, judge.seconds)):
                yield program.planned_seconds, point(program)

    fastest = nsmallest(POINTS, found(), key=itemgetter(0))
    judge.count = 0
    return fastest


def with_early_addresses(points: list[Setup]) -> list[Setup]:
    """The points; those whose blocks have fixed addresses also with other ones."""
    fixed = [one for one in points if isinstance(one.allocator, FixedAddresses)]
    return points + [dataclasses.replace(one, allocator=FixedAddresses(early=True)) for one in fixed]


def point(program: Program) -> Setup:
    """A paper's program as a point of the search: its fates, and the rest of its setup where a point may have it."""
    setup = program.setup
    fates = Fates.of({name: "drop" if word == "again" else word for name, word in words(program).items()})
    kept = ("prefetch", "algorithms", "cache", "allocator", "copy_streams", "join", "barrier", "seams")
    own = {name: getattr(setup, name) for name in kept}
    if isinstance(setup.cache, NoCache):
        own["cache"] = FarthestNextUse()
    if isinstance(setup.allocator, FixedAddresses):  # with the patience that found the paper's addresses
        own["allocator"] = dataclasses.replace(setup.allocator, places=())
    elif setup.allocator not in KNOBS["allocator"]:
        own["allocator"] = BothEnds() if isinstance(setup.allocator, BothEnds) else BestFit()
    return setup_with(fates, name="combined", offload=Offloaded(leaves_late(program)), **own)


# -- seeds and changes -------------------------------------------------------------------------------------------------


def starts(judge: Judge, maps: Maps, points: list[Setup], pools: list[SmallerPool], cuts: bool) -> list[Judged]:
    """The fastest seed with fixed addresses and the fastest without; where none fits, of those that need least.

    Where the fastest is slow, memory is tight, and there are more seeds.

    Args:
        judge: plans the seeds.
        maps: the network's.
        points: the papers' programs.
        pools: for seeds where memory is tight.
        cuts: whether steps may be cut.
    """
    fastest: dict[bool, Judged] = {}  # whether blocks have fixed addresses →

    def judge_all(setups: Iterable[Setup], near: float = NEAR) -> None:
        for setup in setups:
            if judge.over or judge.knows(setup) or not (judged := judge.judged(setup, near * judge.seconds)):
                continue
            fixed = isinstance(setup.allocator, FixedAddresses)
            if fixed not in fastest or judged.seconds < fastest[fixed].seconds:
                fastest[fixed] = judged

    for seams in (False, True)[: 1 + cuts]:
        if not seams or judge.count < CUT_SEEDS * judge.most:
            judge_all(dataclasses.replace(one, seams=seams) for one in points)
            judge_all(family(maps, seams=seams))
    counted = judge.count
    for allocator in (BestFit(), *pools):
        if judge.seconds > FAR * judge.floor:
            judge_all(family(maps, FastestThatFits(), allocator=allocator, seams=cuts))
    judge.count = counted  # most of them failed early
    if not fastest:
        judge_all(frugal(maps, seams=cuts), math.inf)
    return sorted(fastest.values(), key=lambda judged: judged.seconds)


def knobs(maps: Maps, cuts: bool) -> Knobs:
    """The `KNOBS` of a network: no fixed addresses where it is deep, and no seams where it has none."""
    found = KNOBS if cuts else {slot: modules for slot, modules in KNOBS.items() if slot != "seams"}
    return found if len(maps.network.steps) <= FEW else found | {"allocator": KNOBS["allocator"][:2]}


def sweep(judge: Judge, maps: Maps, now: Judged) -> Judged:
    """The setup after each map, and all maps that are alike, had every other fate once; what was faster stayed."""
    groups = dict.fromkeys([*maps.twins.values(), *((x,) for x in maps.large)])
    end = judge.count + SWEEP * judge.most
    for group in sorted(groups, key=lambda group: -sum(x.nbytes for x in group)):
        for word in WORDS[:3]:
            setup = with_word(now.setup, maps, group, word)
            if judge.over or judge.count >= end:
                return now
            if judge.knows(setup) or not (judged := judge.judged(setup, now.seconds)):
                continue
            if judged.seconds < now.seconds and (judged.fits or not now.fits):
                now = judged
    return now


def walk(judge: Judge, maps: Maps, now: Judged, lot: random.Random, knobs: Knobs) -> None:
    """Draw changes until nothing is left to gain, no plan is left, or no draw is new.

    A coin says how many changes are judged at once: a map can often come only if another one leaves.

    Args:
        judge: plans the setups, and keeps the fastest program.
        maps: the network's.
        now: where the walk begins.
        lot: of the draws.
        knobs: slot → the modules that are drawn.
    """
    few_steps = len(maps.network.steps) <= FEW
    best, first, drawn_again = now.seconds, judge.count, 0
    while not judge.over and drawn_again < judge.most:
        setup = changed(now.setup, maps, lot, knobs)
        while lot.random() < 0.5:
            setup = changed(setup, maps, lot, knobs)
        if judge.knows(setup):
            drawn_again += 1
            continue
        left = (judge.most - judge.count) / (judge.most - first)
        bound = left * HEAT / max(1, len(maps.large)) * (best - judge.floor)
        edge = now.seconds - bound * math.log(1 - lot.random())
        judged, drawn_again = judge.judged(setup, edge), 0
        if judged and judged.seconds <= edge and (judged.fits or few_steps):
            now = judged
            best = min(best, now.seconds) if now.fits else best


def changed(setup: Setup, maps: Maps, lot: random.Random, knobs: Knobs) -> Setup:
    """The setup with another fate for a map, or for all maps like it, or with another module in one slot."""
    if lot.random() < RARE or not maps.large:
        slot = lot.choice([*knobs])
        return dataclasses.replace(setup, **{slot: lot.choice(knobs[slot])})
    x = lot.choice(maps.large)
    return with_word(setup, maps, maps.twins[x] if lot.random() < RARE else (x,), lot.choice(WORDS[:3]))


def with_word(setup: Setup, maps: Maps, tensors: Sequence[Tensor], word: Word) -> Setup:
    """A point of the search where these maps have another fate; what nothing rebuilds, as the batch, is not dropped."""
    assert isinstance(setup.recompute, Dropped) and isinstance(setup.offload, Offloaded)
    may = [x for x in tensors if word != "drop" or maps.context.can_be_rebuilt(x)]
    fates = setup.recompute.fates.changed({x.name: word for x in may})
    offload = dataclasses.replace(setup.offload, fates=fates)
    return dataclasses.replace(setup, recompute=Dropped(fates), offload=offload)
