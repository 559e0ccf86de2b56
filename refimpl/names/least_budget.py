"""The least budget of a setup, and the setups that fit where one does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from refimpl.machine import Machine
from refimpl.memory.allocation_trace import TraceEvent, replay
from refimpl.memory.base import GRANULARITY
from refimpl.names.advice import may_advise
from refimpl.names.largest_batch import attempt, least_conceivable, unlimited
from refimpl.names.modules import MODULES
from refimpl.names.presets import PRESETS, baseline
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program, Search, Setup, SetupError, plan
from refimpl.slots.errors import PinnedDoesNotFit, PoolDoesNotFit
from refimpl.slots.planner_only import PoolSearch
from refimpl.text import size

MIB = 1 << 20
SMALL = 128 * MIB  #: what a small network needs is told to less than 1 MiB
STEPS = 128  #: in a budget
TRIED = (*range(1, 25), 32, 40, 52, 64)  #: steps below a budget: pools that are tried where holes are in the way


# -- the least budget --------------------------------------------------------------------------------------------------


def least_budget(network: Network, setup: Setup, machine: Machine, unit: int = MIB) -> int | None:
    """The smallest budget tried that fits: bytes, a multiple of `unit`; None where pinned memory is too small for any.

    A setup that searches for its pool knows the least.  Elsewhere fitting is not monotone (a larger pool can fail where
    a smaller one fits), so a smaller budget that was not tried may do too.  The peak of an unlimited plan is tried
    first: where nothing is evicted and no hole is lost, it is the answer, and elsewhere the answer is near.  Where
    bytes drained meanwhile, that peak without them is tried before it; the answer of a search is near this one.
    """
    setup = setup.frugal
    least = least_conceivable(network, setup)

    try:
        plan(network, setup, machine, least)
    except PoolDoesNotFit as error:
        return -(-error.asked // unit) * unit
    except DoesNotFit:
        pass
    try:
        roomy = unlimited(network, setup, machine)
    except PinnedDoesNotFit:
        return None
    replayed = resident_and_allocations(roomy) if moves_nothing(setup) else None

    @cache
    def fits(units: int) -> bool:
        if replayed is not None:
            return replay(replayed, setup.allocator.open(units * unit)) is None
        return attempt(network, setup, machine, units * unit) is not None

    too_small = least // unit - 1  # in units, as all that follows
    enough, without_draining = (-(-peak // unit) for peak in (roomy.peak_bytes, undrained_peak(roomy)))
    if without_draining < enough and (fits(without_draining) or isinstance(setup, Search)):
        enough = without_draining
    further = 1
    while not fits(enough):
        too_small, enough, further = enough, enough + further, 2 * further
    if enough - 1 > too_small and not fits(enough - 1):
        return enough * unit
    while enough - too_small > 1:
        middle = (enough + too_small) // 2
        if fits(middle):
            enough = middle
        else:
            too_small = middle
    return enough * unit


def moves_nothing(setup: Setup) -> bool:
    """Whether its plan in a pool is known from that in another one: the same blocks come and go, and none drains."""
    searches = isinstance(setup, Search) or isinstance(setup.allocator, PoolSearch)
    return setup.fixed_order and "offload" not in setup.offload.offers and not searches


def resident_and_allocations(program: Program) -> list[TraceEvent]:
    """A program's allocations and frees; its resident tensors come first."""
    resident = [TraceEvent(-1 - number, tensor.nbytes) for number, tensor in enumerate(program.network.resident)]
    return [*resident, *program.allocation_trace()]


@lru_cache(maxsize=8)
def needed_by_baseline(network: Network, machine: Machine) -> int:
    """Bytes that plain training needs: the least budget of the preset `baseline`.  Shares are shares of it.

    To 1 MiB, of a small network to 512 bytes.
    """
    setup = baseline()
    unit = MIB if unlimited(network, setup, machine).peak_bytes >= SMALL else GRANULARITY
    found = least_budget(network, setup, machine, unit)
    assert found is not None  # its unlimited plan has had pinned memory enough
    return found


def undrained_peak(program: Program) -> int:
    """The most bytes that a step holds, without those of released tensors whose copies may still run."""
    return program.network.resident_bytes + max(row.live_bytes + row.workspace_bytes for row in program.rows)


# -- other setups ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alternative:
    """A setup that fits where another one did not."""

    changes: dict[str, str]  #: slot (or "policy") → module (or preset)
    seconds: float  #: an iteration on that machine, as planned


@dataclass(frozen=True)
class Remedies:
    """The alternatives to a setup that does not fit."""

    budget_bytes: int
    least_bytes: int | None  #: the least budget of that setup, or a smaller pool that fits; None: none is enough
    cheapest: Alternative | None  #: of the other setups that fit, the fastest

    def __str__(self) -> str:
        if self.least_bytes is None:
            needs = "No budget is enough."
        elif self.least_bytes <= self.budget_bytes:
            smaller = f"{self.least_bytes // MIB}MiB" if self.least_bytes % MIB == 0 else str(self.least_bytes)
            needs = f"A smaller pool fits, with other holes: --budget {smaller}."
        else:
            needs = f"It needs {size(self.least_bytes)} (--budget {self.least_bytes // MIB}MiB)."
        if self.cheapest is None:
            return needs
        changes = self.cheapest.changes.items()
        options = " ".join(f"--policy {name}" if slot == "policy" else f"--set {slot}={name}" for slot, name in changes)
        return f"{needs} Within {size(self.budget_bytes)}, {options} fits."


def remedies(network: Network, setup: Setup, machine: Machine, budget: int) -> Remedies:
    """The alternatives to a `setup` that does not fit into `budget` bytes.

    Setups that search for a pool, which takes several plans, are asked only where no other setup fits.
    """
    found: list[Alternative] = []

    seams = setup.cut(network).whole is not None
    others = [*alternatives(setup, seams)] if least_conceivable(network, setup) <= budget else []
    for search in (False, True):
        for changes, other in others:
            if isinstance(other.allocator, PoolSearch) is not search:
                continue
            try:
                program = attempt(network, other.quick, machine, budget)
            except SetupError:  # it never uses one of the machine's tiers
                continue
            if program is not None:
                found.append(Alternative(changes, program.planned_seconds))
        if found:
            break
    cheapest = min(found, key=lambda alternative: alternative.seconds, default=None)
    least = least_budget(network, setup, machine)
    if least and least > budget:
        least = smaller_pool(network, setup, machine, budget) or least
    return Remedies(budget, least, cheapest)


def smaller_pool(network: Network, setup: Setup, machine: Machine, budget: int) -> int | None:
    """The largest pool tried below the budget that fits, in bytes; None: none fits, or not for its holes.

    Best fit and its like place blocks by the holes that there are, and in a smaller pool these are others.
    """
    unit = MIB if budget >= SMALL else GRANULARITY
    for steps in TRIED:
        pool: int = budget * (STEPS - steps) // STEPS // unit * unit
        try:
            plan(network, setup.frugal, machine, pool)
        except DoesNotFit as error:
            if not error.for_holes:
                break
        else:
            return pool
    return None


def alternatives(setup: Setup, seams: bool) -> Iterator[tuple[dict[str, str], Setup]]:
    """The same setup with another liveness, other algorithms, or both; then the other presets, with its `seams`."""
    for liveness in MODULES["liveness"].values():
        for algorithms in MODULES["algorithms"].values():
            wanted = {"liveness": liveness, "algorithms": algorithms}
            changed = {slot: module for slot, module in wanted.items() if module != setup.module(slot)}
            if not changed:
                continue
            try:
                other = setup.replace(**changed)
            except SetupError:
                continue
            yield {slot: module.name for slot, module in changed.items()}, other
    for name, preset in PRESETS.items():
        if name not in (setup.preset, "combined") and may_advise(name):  # combined takes as long as a hundred others
            changes = {"policy": name} | ({"seams": "yes"} if seams else {})
            yield changes, dataclasses.replace(preset.setup, seams=seams)
