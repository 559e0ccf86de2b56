"""The papers' setups: every preset with each choice of algorithms, recomputation, prefetch and pinned memory it has.

`best_of` says which of a paper's setups is the fastest within a budget.  That is the paper's row in `compare` and
`optimum`, its bold line in `pareto`, and what the combined policy is compared with.  The search of the combined policy
begins from these setups.  The dynamic policies of vDNN and vDNN++ adopt one of them, so they are not listed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from math import inf

from refimpl import accudnn
from refimpl.combined.fixed import FixedAddresses
from refimpl.machine import Machine
from refimpl.memory import BothEnds
from refimpl.network import Network
from refimpl.planner import BASELINE, DoesNotFit, Program, Search, Setup, SetupError, TooSlow, plan
from refimpl.slots.algorithms import FastestThatFits, MemoryOptimal, PerformanceOptimal
from refimpl.slots.baseline import NoOffload
from refimpl.superneurons import COST_AWARE, MEMORY_CENTRIC, SPEED_CENTRIC, DynamicWorkspace
from refimpl.superneurons import presets as superneurons
from refimpl.vdnn import LITERAL, WINDOW, Greedy
from refimpl.vdnn import presets as vdnn
from refimpl.vdnnpp import WINDOW as vdnnpp_window
from refimpl.vdnnpp import WINDOW_NO_POOL, OnDemand
from refimpl.vdnnpp import presets as vdnnpp

#: AccUDNN with an allocator that fixes addresses beforehand, which no paper has.
ACCUDNN = dataclasses.replace(accudnn.ACCUDNN, fixed=FixedAddresses)
MEMORY, PERFORMANCE = MemoryOptimal(), PerformanceOptimal()
STORING = vdnnpp.VDNNPP_ALL.pinned  #: vDNN++'s presets have it


@cache
def papers() -> dict[str, tuple[Setup, ...]]:
    """Paper → its setups, those that are planned quickly first; named after the preset and what differs.

    vDNN's and vDNN++'s have both searches for a map to prefetch: that in which a POOL searches, and that in which it
    does not.  Otherwise one fits where the other does not for its search alone.
    """
    kept = vdnn.static("vdnn-none", NoOffload())
    of_vdnn = [
        base.replace(algorithms=one, prefetch=search)
        for base in (kept, vdnn.VDNN_ALL, vdnn.VDNN_CONV)
        for one in (MEMORY, PERFORMANCE, Greedy())
        for search in ((base.prefetch,) if base is kept else (WINDOW, LITERAL))
    ]
    kept = vdnnpp.static("vdnnpp-none", NoOffload(), pinned=STORING)
    of_vdnnpp = [
        base.replace(algorithms=one, pinned=pinned, prefetch=search)
        for base in (kept, vdnnpp.VDNNPP_ALL, vdnnpp.VDNNPP_VDNN_ALL, vdnnpp.VDNNPP_CONV, vdnnpp.VDNNPP_ALTERNATE_CONV)
        for one in (MEMORY, PERFORMANCE, FastestThatFits())
        for pinned in (OnDemand(), STORING)
        for search in ((base.prefetch,) if base is kept else (vdnnpp_window, WINDOW_NO_POOL))
    ]
    of_superneurons: list[Setup] = []
    for one in (MEMORY, PERFORMANCE, DynamicWorkspace()):
        bases = [superneurons.liveness(), superneurons.offload(DynamicWorkspace())]
        for how in (COST_AWARE, SPEED_CENTRIC, MEMORY_CENTRIC):
            bases += [base.replace(recompute=how) for base in (superneurons.recompute(), superneurons.everything())]
        of_superneurons += [base.replace(algorithms=one) for base in bases]
    return {
        "baseline": (BASELINE, BASELINE.replace(algorithms=MEMORY)),
        "vDNN": tuple(of_vdnn),
        "vDNN++": tuple(of_vdnnpp),
        "SuperNeurons": tuple(of_superneurons),
        "AccUDNN": (ACCUDNN,),
    }


@dataclass(frozen=True)
class Tried:
    """A setup that was planned within a budget."""

    setup: Setup
    seconds: float = inf  #: of an iteration; infinite where there is no program
    failure: DoesNotFit | TooSlow | SetupError | None = None  #: why there is none


@dataclass(frozen=True)
class Best:
    """The fastest of several setups within a budget."""

    program: Program | None  #: None: none fits
    tried: list[Tried]  #: all that were planned, the fastest first; equals, and those that fail, as they were given

    @property
    def setup(self) -> Setup:
        """The setup of the program; where none fits, the first that was given."""
        return self.tried[0].setup


def best_of(
    setups: Iterable[Setup],
    network: Network,
    machine: Machine,
    budget: int,
    give_up: float | None = None,
    watch: Callable[[str], None] = lambda name: None,
) -> Best:
    """The fastest of several setups, as of a paper's, within a budget.

    A setup that uses the store is left out where the same setup without it fits: the store saves pinned memory and no
    time.

    Args:
        setups: at least one; of several that are equally fast, the first is the best.
        network: what is trained.
        machine: whose times and sizes count.
        budget: bytes of device memory.
        give_up: seconds; a plan that is sure to take longer, or longer than the best so far, is not finished, and so
            only the best one's seconds are known.  None: all are.
        watch: called with each setup's name before it is planned.
    """
    given: list[Setup] = []
    for setup in setups:
        given += [setup] * (setup not in given)
    best: tuple[float, int, Program] | None = None
    found: dict[int, Tried] = {}  # by place
    for place, setup in sorted(enumerate(given), key=lambda one: one[1].pinned.uses_store):
        watch(setup.name)
        if setup.pinned.uses_store and not isinstance(setup, Search):
            raw = setup.replace(pinned=OnDemand())
            if any(one.setup == raw and not one.failure for one in found.values()):
                continue
        least = inf if give_up is None else min(give_up, best[0] if best else inf)
        try:
            program = plan(network, setup, machine, budget, least)
        except (DoesNotFit, TooSlow, SetupError) as error:
            found[place] = Tried(setup, failure=error)
            continue
        met = program.planned_seconds, place, program
        found[place] = Tried(setup, program.planned_seconds)
        best = met if best is None or met[:2] < best[:2] else best
    tried = [found[place] for place in sorted(found, key=lambda place: (found[place].seconds, place))]
    return Best(best[2] if best else None, tried)


@cache
def planned_quickly() -> tuple[Setup, ...]:
    """The setups that the search plans first: vDNN++'s in a pool as large as the budget, and without the store.

    The store saves pinned memory and no time.
    """
    found = [setup for paper, setups in papers().items() for setup in setups if paper != "vDNN++"]
    raw = [setup for setup in papers()["vDNN++"] if not setup.pinned.uses_store]
    return (*(setup.replace(name=f"{setup.name}, both-ends", allocator=BothEnds()) for setup in raw), *found)


def with_searched_pools() -> list[Setup]:
    """vDNN++'s setups whose time depends on the pool that they search for, which takes eight plans of each."""
    raw = [setup for setup in papers()["vDNN++"] if not setup.pinned.uses_store]
    return [setup for setup in raw if isinstance(setup.algorithms, FastestThatFits)]
