"""Remedies: where a program loses time, and which changes of its setup could win it back.

A step loses time in three ways: it rebuilds, it runs a slower algorithm than the fastest, or it waits.

| what is seen | remedies, for the map and for all maps like it |
| --- | --- |
| a map is rebuilt | keep it, or offload it |
| a slower algorithm runs | make room for the workspace: what is idle there leaves, one map or as many as are needed |
| a backward step waits | the maps that it reads are kept, or dropped; copies begin earlier, all or one of them |
| a forward step waits | what left before it is dropped instead, or stays |

Each remedy has a promise, the seconds that it may win; the search tries the more promising more often.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from refimpl.accudnn import Capped, Late
from refimpl.combined.farthest import FarthestNextUse
from refimpl.combined.fates import Fates, Word
from refimpl.combined.maps import Maps
from refimpl.combined.modules import Dropped, InTime, Offloaded
from refimpl.combined.seeds import ADDRESSES, ALGORITHMS, EARLY
from refimpl.memory import BestFit, BlockHeap, BothEnds, FirstFit
from refimpl.network import Tensor
from refimpl.planner import CopyIn, Launch, Program, Setup
from refimpl.planner.baseline import MemoryOptimal, NoCache, NoPrefetch
from refimpl.superneurons import Ahead, LeastRecentlyUsed
from refimpl.vdnn import LITERAL, WINDOW
from refimpl.vdnnpp import WINDOW as WINDOW_ANY
from refimpl.vdnnpp import WINDOW_LATE

EARLIER = (1, 2, 4)  #: steps that a copy in may begin earlier
LEADS = (1.0, 2.0, 4.0, 8.0)
IN_TIME = tuple(InTime(lead, guard, slack) for lead in LEADS for guard, slack in ((True, 0), (True, 0.05), (False, 0)))

#: What the search varies beside the fates: field of a setup → what it can be.
KNOBS: dict[str, tuple[Any, ...]] = {
    "prefetch": (*IN_TIME, WINDOW, LITERAL, WINDOW_ANY, WINDOW_LATE, Ahead(), NoPrefetch()),
    "algorithms": (*ALGORITHMS, MemoryOptimal()),
    "cache": (FarthestNextUse(), NoCache(), LeastRecentlyUsed()),
    "allocator": (BestFit(), BothEnds(), FirstFit(), BlockHeap(), ADDRESSES, EARLY),
    "late": (False, True),
    "copy_streams": ("separate", "shared"),
    "join": (False, True),
    "barrier": (False, True),
}


@dataclass(frozen=True)
class Change:
    """Other fates for some maps, another module in one slot, or both."""

    fates: tuple[tuple[str, Word], ...] = ()
    knob: str = ""
    value: Any = None

    def applied(self, setup: Setup) -> Setup:
        if self.fates:
            setup = with_fates(setup, fates_of(setup).changed(dict(self.fates)))
        if self.knob == "late":
            assert isinstance(setup.offload, Offloaded)
            return dataclasses.replace(setup, offload=dataclasses.replace(setup.offload, late=self.value))
        return dataclasses.replace(setup, **{self.knob: self.value}) if self.knob else setup


def fates_of(setup: Setup) -> Fates:
    assert isinstance(setup.recompute, Dropped)
    return setup.recompute.fates


def with_fates(setup: Setup, fates: Fates) -> Setup:
    assert isinstance(setup.offload, Offloaded)
    offload = dataclasses.replace(setup.offload, fates=fates)
    return dataclasses.replace(setup, recompute=Dropped(fates), offload=offload)


class Losses:
    """Seconds that a program's kernels lose, by step."""

    def __init__(self, program: Program) -> None:
        self.waits: defaultdict[int, float] = defaultdict(float)
        self.rebuilds: defaultdict[Tensor, float] = defaultdict(float)
        #: Map → the step at which its copy in began.
        self.came = {it.tensor.name: it.step for it in program.instructions if isinstance(it, CopyIn) and it.step}
        #: Step → seconds by which its algorithms are slower than the fastest, and the bytes that these would need more.
        self.slower: dict[int, tuple[float, int]] = {}
        self.caps: dict[int, int] = {}  #: step → the workspace of its slower algorithms
        end = 0.0
        for span in program.simulate().on("compute"):
            launch: Launch = span.instruction
            self.waits[launch.step] += span.start - end
            end = span.end
            if launch.rebuild:
                for tensor in (*launch.call.writes, *launch.call.updates):
                    self.rebuilds[tensor] += span.end - span.start
            elif launch.choice is not None:
                fastest = program.machine.choices(launch.call)[0]
                lost, missing = self.slower.get(launch.step, (0.0, 0))
                lost += launch.choice.seconds - fastest.seconds
                if launch.choice != fastest:
                    self.caps[launch.step] = max(self.caps.get(launch.step, 0), launch.choice.workspace_bytes)
                missing = max(missing, fastest.workspace_bytes - launch.choice.workspace_bytes)
                if lost > 0:
                    self.slower[launch.step] = lost, missing


class SearchRemedies:
    """Changes of the setup that a program was planned with, and the seconds that each may win."""

    def __init__(self, setup: Setup, program: Program, maps: Maps) -> None:
        self.setup, self.maps, self.losses = setup, maps, Losses(program)
        self.fates = fates_of(setup)
        self.promise: defaultdict[Change, float] = defaultdict(float)
        self._for_rebuilds()
        self._for_slower_algorithms()
        self._for_waits()
        for knob, values in KNOBS.items():
            for value in values:
                self.promise[Change(knob=knob, value=value)] += 0.02 * (program.planned_seconds - maps.floor)

    def ranked(self) -> list[Change]:
        """Those that change anything, the most promising first; of equal promise in the order of being found."""
        ranked = sorted(self.promise, key=lambda change: -self.promise[change])
        return [change for change in ranked if change.applied(self.setup) != self.setup]

    def add(self, tensors: Iterable[Tensor], word: Word, seconds: float, **knob: Any) -> None:
        """These maps get another fate, which may win `seconds`; if it is one map, so do all maps like it."""
        chosen = tuple(x for x in tensors if not (x is self.maps.network.input and word == "drop"))
        if not chosen:
            return
        self.promise[Change(tuple((x.name, word) for x in chosen), **knob)] += seconds
        if len(chosen) == 1 and len(twins := self.maps.twins[chosen[0]]) > 1:
            same = tuple((x.name, word) for x in twins if not (x is self.maps.network.input and word == "drop"))
            self.promise[Change(same)] += seconds

    def has(self, word: Word) -> list[Tensor]:
        """The large maps with this fate."""
        return [x for x in self.maps.large if self.fates[x.name] == word]

    def _for_rebuilds(self) -> None:
        for x, seconds in self.losses.rebuilds.items():
            if x.name in self.maps.named and self.fates[x.name] in ("drop", "again"):
                self.add([x], "keep", seconds)
                self.add([x], "offload", 0.9 * seconds)

    def _copies(self, x: Tensor) -> float:
        """Seconds of a map's copies out and in."""
        return 2 * x.nbytes / self.maps.machine.link

    def _for_slower_algorithms(self) -> None:
        for number, (lost, missing) in self.losses.slower.items():
            uncapped = Capped(tuple((step, cap) for step, cap in self.losses.caps.items() if step != number))
            self.promise[Change(knob="algorithms", value=uncapped)] += 0.7 * lost
            idle = [x for x in self.has("keep") if self.maps.idle[x][0] < number < self.maps.idle[x][1]]
            for x in idle:
                share = min(1.0, x.nbytes / max(1, missing))
                costs: dict[Word, float] = {"offload": self._copies(x), "drop": self.maps.price[x] * x.nbytes}
                for word, cost in costs.items():
                    if cost < 2 * lost:
                        self.add([x], word, 0.8 * lost * share)
            words: tuple[Word, ...] = ("offload", "drop")
            for word in words:
                enough, nbytes = list[Tensor](), 0
                for x in sorted(idle, key=lambda x: -x.nbytes):
                    if nbytes < missing and not (x is self.maps.network.input and word == "drop"):
                        enough.append(x)
                        nbytes += x.nbytes
                if enough:
                    self.add(enough, word, 0.6 * lost, knob="algorithms", value=uncapped)
                if len(enough) > 1:
                    self.add(enough, word, 0.6 * lost)

    def _for_waits(self) -> None:
        network = self.maps.network
        cheap = {x: self.maps.price[x] * x.nbytes < self._copies(x) for x in self.maps.large}
        away, kept = self.has("offload"), self.has("keep")
        for number, seconds in self.losses.waits.items():
            if number == 1 or seconds <= 0:
                continue
            step = network.steps[number - 1]
            if step.forward:
                for x in away:
                    if self.maps.idle[x][0] <= number:
                        self.add([x], "drop", 0.5 * seconds)
                        self.add([x], "keep", 0.2 * seconds)
                for x in kept:
                    if self.maps.idle[x][0] < number:
                        self.add([x], "drop", 0.3 * seconds)
                        self.add([x], "offload", 0.1 * seconds)
            else:
                for x in (*step.reads, *step.updates):
                    if x.name in self.maps.named and self.fates[x.name] == "offload":
                        self.add([x], "keep", seconds)
                        worth = self.maps.price[x] * x.nbytes < 2 * seconds
                        self.add([x], "drop", (0.9 if worth else 0.3) * seconds)
                for x in away:
                    if self.maps.idle[x][1] <= number:
                        self.add([x], "drop", 0.2 * seconds * cheap[x])
                        self.add([x], "keep", 0.1 * seconds)
                for x in kept:
                    if self.maps.idle[x][1] > number:
                        self.add([x], "offload", 0.2 * seconds)
                        self.add([x], "drop", 0.1 * seconds)
                    if x.name in self.losses.came:
                        for steps in EARLIER:
                            self._begin(x, steps, 0.5 * seconds)
                for x in away:
                    if x.name in self.losses.came and self.losses.came[x.name] <= number:
                        self._begin(x, 1, 0.2 * seconds)
                        self._begin(x, -1, 0.1 * seconds)
            for lead in LEADS:
                self.promise[Change(knob="prefetch", value=InTime(lead))] += 0.3 * seconds

    def _begin(self, x: Tensor, earlier: int, seconds: float) -> None:
        """The copy in of one map begins some steps earlier, all others as they did."""
        came = self.losses.came | {x.name: self.losses.came[x.name] - earlier}
        coming = Late(tuple(sorted(came.items(), key=lambda item: (item[1], item[0]))))
        self.promise[Change(knob="prefetch", value=coming)] += seconds
