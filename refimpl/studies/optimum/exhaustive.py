"""The optimum of small networks, by trial: every map with every fate, for every combination of a few other modules.

The planner plans all of them, so holes, copies and rebuilds count as they are; the result is the optimum of what was
enumerated, and a search that may choose more freely can beat it.  Two short cuts leave the result as it is.  Candidates
are tried in the order of what their rebuilds cost at least; when that alone exceeds the best time, no later one can be
better.  And a plan is given up when it is sure to be slower than the best.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refimpl.accudnn import Late
from refimpl.combined import Fates, InTime, OnceDrained
from refimpl.combined.farthest import FarthestNextUse
from refimpl.combined.fates import Word
from refimpl.combined.file import setup_with
from refimpl.combined.seeds import ADDRESSES, EARLY
from refimpl.machine import Machine
from refimpl.memory import BestFit, BothEnds
from refimpl.network import Network, Tensor
from refimpl.planner import Context, DoesNotFit, Program, Setup, TooSlow, plan
from refimpl.slots.algorithms import FastestThatFits, MemoryOptimal, PerformanceOptimal
from refimpl.slots.baseline import NoCache, NoPrefetch
from refimpl.studies.optimum.bound import floor_seconds, rebuild_seconds

MOST = 8  #: maps; 3 fates each are 6,561 candidates for each combination of the other modules
WORDS: tuple[Word, ...] = ("keep", "offload", "drop")
#: What else is enumerated.  A plan that needs no eviction is the same with a cache that could evict.
KNOBS: Mapping[str, Sequence[Any]] = {
    "algorithms": (FastestThatFits(), OnceDrained(), PerformanceOptimal()),
    "prefetch": (InTime(lead=2.0), Late()),
    "allocator": (BestFit(), BothEnds(), ADDRESSES, EARLY),
    "cache": (FarthestNextUse(),),
}
#: For recomputation alone, to be compared with Rotor's optimum.
RECOMPUTE_ALONE: Mapping[str, Sequence[Any]] = {
    "algorithms": (MemoryOptimal(),),
    "prefetch": (NoPrefetch(),),
    "allocator": (BestFit(), BothEnds()),
    "cache": (NoCache(),),
}

ROUNDING = 1e-12  #: of 1: of sums of seconds

PlanCount = Callable[[int, int], None]  #: called with the number of candidates done, and of all


@dataclass(frozen=True)
class Enumerated:
    """The best of all candidates."""

    program: Program | None  #: None: no candidate fits
    fates: Fates  #: of its maps
    enumerated: tuple[Tensor, ...]  #: the maps that had every fate; the others were kept
    candidates: int
    planned: int  #: of them; the others cannot be better

    @property
    def seconds(self) -> float | None:
        return self.program.planned_seconds if self.program else None


def exhaustive(
    network: Network,
    machine: Machine,
    budget: int,
    words: Sequence[Word] = WORDS,
    knobs: Mapping[str, Sequence[Any]] = KNOBS,
    most: int = MOST,
    watch: PlanCount = lambda done, total: None,
) -> Enumerated:
    """The fastest program of all fates of the largest maps, and all combinations of the knobs.

    Args:
        network: any.
        machine: whose cost model counts.
        budget: bytes of device memory.
        words: the fates to try.
        knobs: slot → its modules to try.
        most: maps whose fates are tried; of a network with more, the smaller ones are kept.
        watch: a progress callback.

    Returns:
        Of programs that are equally fast, the first in the order of enumeration.
    """
    context = Context(network, machine, budget)
    maps = sorted(crossing_maps(network, machine), key=lambda tensor: (-tensor.nbytes, tensor.name))[:most]
    at_least = {tensor.name: rebuild_seconds(tensor, context) for tensor in maps}
    floor = floor_seconds(network, machine)

    def takes(fates: Fates) -> float:
        """Seconds that no program with these fates can do without."""
        return floor + sum(at_least[name] for name in fates.named("drop", "again"))

    candidates = sorted(every(context, maps, words), key=lambda fates: takes(fates))  # equal ones keep their order
    combinations = [*itertools.product(*knobs.values())]
    best: Program | None = None
    chosen = Fates()
    planned = 0
    for done, fates in enumerate(candidates):
        watch(done, len(candidates))
        if best and takes(fates) >= best.planned_seconds * (1 - ROUNDING):
            break
        for combination in combinations:
            setup = candidate(fates, dict(zip(knobs, combination, strict=True)), seams=network.whole is not None)
            planned += 1
            try:
                program = plan(network, setup, machine, budget, best.planned_seconds if best else float("inf"))
            except (DoesNotFit, TooSlow):
                continue
            if best is None or program.planned_seconds < best.planned_seconds:
                best, chosen = program, fates
    return Enumerated(best, chosen, tuple(maps), len(candidates) * len(combinations), planned)


def crossing_maps(network: Network, machine: Machine) -> list[Tensor]:
    """The maps that have a fate."""
    return [tensor for tensor in Context(network, machine).maps_across() if tensor.managed]


def every(context: Context, maps: Sequence[Tensor], words: Sequence[Word]) -> Iterator[Fates]:
    """Every combination of fates; what nothing rebuilds, as the batch, is kept or offloaded."""
    names = [tensor.name for tensor in maps]
    offered = [[word for word in words if word in ("keep", "offload") or context.can_be_rebuilt(t)] for t in maps]
    for combination in itertools.product(*offered):
        yield Fates.of(dict(zip(names, combination, strict=True)))


def candidate(fates: Fates, modules: Mapping[str, Any], seams: bool = False) -> Setup:
    """The setup that is planned for these fates."""
    return setup_with(fates, name="enumerated", seams=seams, **modules)
