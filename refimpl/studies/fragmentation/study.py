"""The study of fragmentation (§3): which heuristic, in which order, leaves how much of a pool to holes.

{best, first, worst fit} × {all from the left, right placement} × {prefetch before dX, dX before prefetch} × policies.
The authors' public code has best fit, with and without right placement, and prefetches before dX (mark S); the paper
evaluates more than its code has, so the rest is our reconstruction (R), and `planned` is an alternative of ours.  All
figures are calculated by replaying an iteration; none is the paper's own.

The order of events is vDNN's, synchronous, unless told otherwise: a layer ends when its copies do.  In vDNN++'s own
order no layer waits for a copy.  With memory enough, all offloaded maps are then freed at the barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refimpl.combined.fixed import fixed_addresses
from refimpl.combined.fixed_pool import fix_addresses
from refimpl.machine import Machine
from refimpl.memory import UNLIMITED, Allocator, BestFit, BothEnds, FirstFit, WorstFit
from refimpl.memory.allocation_trace import PoolSize, Trace, rounded
from refimpl.network import Network
from refimpl.planner import Program, Setup, plan
from refimpl.slots.baseline import BufferAMap, NoOffload
from refimpl.studies.reproduce.vdnnpp import published
from refimpl.vdnnpp.offload import ALL, ALTERNATE_CONV, CONV, OffloadInputsOf
from refimpl.vdnnpp.pool_search import PlacementError, find_pool
from refimpl.vdnnpp.prefetch import WINDOW, WINDOW_LATE
from refimpl.vdnnpp.presets import VDNNPP_ALL, static

PLANNED = "planned"


#: Which hole, and from which end of it.
HEURISTICS: Mapping[str, Allocator] = {
    "best left": BestFit(),
    "best right": BothEnds(),
    "first left": FirstFit(),
    "first right": BothEnds(fit="first"),
    "worst left": WorstFit(),
    "worst right": BothEnds(fit="worst"),
}
AUTHORS = ("best left", "best right")  #: those of the authors' public code (S); all else is ours (R)

POLICIES: Mapping[str, OffloadInputsOf | NoOffload] = {
    "none": NoOffload(),
    "conv": CONV,
    "all": ALL,
    "alternate-conv": ALTERNATE_CONV,
}

Order = Literal["early", "late"]
#: A prefetched map is allocated before the layer's own gradient (the authors' code), or after it.
ORDERS: Mapping[Order, str] = {"early": "prefetch, then dX", "late": "dX, then prefetch"}


@dataclass(frozen=True, eq=False)
class PoolRow:
    """One heuristic's pool for one trace."""

    network: str
    batch: int
    policy: str
    order: Order | None  #: None: nothing is prefetched
    heuristic: str
    mark: str  #: S or R, see `AUTHORS`
    found: PoolSize
    resident_bytes: int  #: rounded, as the pool of a plan holds them
    setup: Setup = field(repr=False)  #: which trains within exactly `budget_bytes`

    @property
    def budget_bytes(self) -> int:
        """The budget with which a plan's pool has exactly the size that was found."""
        return self.resident_bytes + self.found.pool_bytes

    @property
    def replayed(self) -> PoolSize | None:
        """The pool that the authors' code gives for this trace (C)."""
        known = published.POOLS.get((self.network.partition(":")[0], self.batch, self.policy))
        if self.order == "late" or self.heuristic not in AUTHORS or not known:
            return None
        (ideal, *pools), tries = known
        right = self.heuristic == "best right"
        return PoolSize(pools[right], ideal, tries[right])


def document(row: PoolRow) -> dict[str, Any]:
    """A row for JSON: bytes, and `fragmentation` as a share of the ideal."""
    found = row.found
    return {
        "policy": row.policy, "order": row.order, "heuristic": row.heuristic, "mark": row.mark,
        "ideal_bytes": found.ideal_bytes, "pool_bytes": found.pool_bytes, "tries": found.tries,
        "fragmentation": found.fragmentation, "budget_bytes": row.budget_bytes,
    }  # fmt: skip


def setup(policy: str, order: Order | None = "early", join: bool = True) -> Setup:
    """The setup whose iteration is replayed: vDNN++'s, with vDNN's joins (and a pinned buffer a map) or without."""
    if policy not in POLICIES:
        raise PlacementError(f"there is no policy {policy!r} in this study; there are {', '.join(POLICIES)}")
    pinned = BufferAMap() if join else VDNNPP_ALL.pinned
    made = static(f"vdnnpp-{policy}", POLICIES[policy], None, pinned, BothEnds())
    if isinstance(made.offload, OffloadInputsOf):
        made = made.replace(prefetch=WINDOW if order == "early" else WINDOW_LATE)
    return made.replace(join=join)


def cases(policies: Sequence[str] = tuple(POLICIES)) -> list[tuple[str, Order | None]]:
    """Policy and order of every trace of a study; where nothing leaves, there is no order to choose."""
    return [(policy, order) for policy in policies for order in ((None,) if policy == "none" else ORDERS)]


def study(
    network: Network, machine: Machine, policies: Sequence[str] = tuple(POLICIES), join: bool = True
) -> Iterator[PoolRow]:
    """The rows, one by one: for every policy and order each of the HEURISTICS, then `planned`."""
    for policy, order in cases(policies):
        program = plan(network, setup(policy, order, join), machine, UNLIMITED)
        events = program.allocation_trace()
        for heuristic in (*HEURISTICS, PLANNED):
            yield row_of(program, events, policy, order, heuristic)


def row_of(program: Program, events: Trace, policy: str, order: Order | None, heuristic: str) -> PoolRow:
    """One heuristic on the trace of a program that was planned with memory enough."""
    found: PoolSize
    if heuristic == PLANNED:
        found = fixed = fix_addresses(events)
        allocator: Allocator = fixed_addresses(program, fixed)
    else:
        allocator = HEURISTICS[heuristic]
        found = find_pool(events, allocator)
    resident = sum(rounded(tensor.nbytes) for tensor in program.network.resident)
    made = program.setup.replace(allocator=allocator)
    network, mark = program.network, "S" if heuristic in AUTHORS and order != "late" else "R"
    return PoolRow(network.name, network.batch, policy, order, heuristic, mark, found, resident, made)


def least(rows: Sequence[PoolRow], with_planned: bool = False) -> PoolRow:
    """The row with the smallest pool, the first of several."""
    return min((row for row in rows if with_planned or row.heuristic != PLANNED), key=lambda row: row.found.pool_bytes)
