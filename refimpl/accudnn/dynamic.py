"""AccUDNN's policy: it plans what the model chooses, and adopts the fastest program that fits.

The model knows bytes and no addresses, so a plan may fail where the model sees room.  The policy therefore lets the
model choose for less and less of the budget, and plans each choice with best fit, then with fixed addresses
if the setup has an allocator that fixes them.  Where
none fits, everything leaves; where that does not fit either, with the least workspace everywhere and nothing
prefetched.  All of it is our reconstruction (R).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from refimpl.accudnn.carried_out import Capped, Everything, Late, modules_of, steps_of
from refimpl.accudnn.choice import TRIED, Decision, caps_within, choose
from refimpl.accudnn.performance_model import Model
from refimpl.memory import Allocator, BestFit, FirstFit
from refimpl.slots.algorithms import MemoryOptimal
from refimpl.slots.baseline import LayerWise, NoOffload, NoPrefetch
from refimpl.slots.context import Context
from refimpl.slots.errors import AddressesDoNotFit
from refimpl.slots.planner_only import PoolSearch
from refimpl.slots.questions import Prefetch
from refimpl.slots.search import Attempts, Search
from refimpl.slots.setup import FIELDS, Setup
from refimpl.text import counted

if TYPE_CHECKING:
    from refimpl.planner.program import Program

#: Shares of the bytes that are not resident which the model leaves free, for blocks that do not fit their holes: first
#: in long steps, to find one that fits, then between these.
RESERVES = (0.0, 0.05, 0.15, 0.30, 0.02, 0.10, 0.20)
QUICK_RESERVES = (0.0, 0.15)  #: where a hint is all that is wanted
CLOSE = 1.005  #: times the seconds that the model predicts: close enough to stop
MOST_PLANS = 16
LAST_PLANS = 8  #: of these, kept for the last resorts


class Proposal(NamedTuple):
    """A setup to plan, with the model's seconds, if it was chosen by the model, and why."""

    setup: Setup
    predicted: float | None = None
    note: str = ""

    @property
    def counted_first(self) -> bool:
        """An allocator that fixes addresses plans a setup twice."""
        return isinstance(self.setup.allocator, PoolSearch)


class Counted(Attempts):
    """Counts the plans, too."""

    plans = 0

    def propose(self, candidate: Proposal) -> Program | None:
        """A candidate's program, if it fits."""
        program = self.plan(candidate.setup, candidate.predicted, candidate.note)
        counted_alone = program is None and isinstance(self.failure, AddressesDoNotFit)
        self.plans += 1 if counted_alone else 1 + candidate.counted_first
        return program


@dataclass(frozen=True)
class AccUDNN(Search):
    """Its own modules are those of the most frugal candidates."""

    searched: tuple[str, ...] = ("offload", "prefetch", "algorithms", "allocator")
    ranks: tuple[str, ...] = TRIED  #: the orders in which maps are chosen
    reserves: tuple[float, ...] = RESERVES
    guided: bool = True  #: whether the model chooses; if not, only the most frugal candidates are planned
    #: The allocator that fixes addresses beforehand, given `limit=` bytes; None: each choice is planned with best fit.
    fixed: Callable[..., Allocator] | None = field(default=None, repr=False)

    def search(self, attempt: Callable[..., Program], context: Context) -> Program:
        attempts = Counted(attempt)
        model = Model.of(context) if self.guided else None
        if model:
            self._by_the_model(attempts, model, context.budget)
        if attempts.best is None:
            any(map(attempts.propose, self.last_resorts(model)))
        if attempts.best is None:
            raise self.untrainable(attempts.failure, context)
        return dataclasses.replace(attempts.best, tried=tuple(attempts.tried))

    def _by_the_model(self, attempts: Counted, model: Model, budget: int) -> None:
        """Plan what the model chooses for less and less of the budget, until no choice is predicted to be faster."""
        fastest = math.inf  # that the model predicts: seldom more with more memory
        enough_free = 0.0  # share of the budget that has to be free for fixed addresses to be worth a plan
        for reserve in self.reserves:
            room = model.resident + int((budget - model.resident) * (1 - reserve))
            decision = choose(model, room, self.ranks)
            if decision is None or (attempts.best and decision.seconds >= attempts.best.planned_seconds):
                continue
            for candidate in self.carried_out(decision, reserve, room):
                most = MOST_PLANS if attempts.best else MOST_PLANS - LAST_PLANS
                if attempts.plans + 1 + candidate.counted_first > most:
                    continue
                if candidate.counted_first and reserve < enough_free:
                    continue
                program = attempts.propose(candidate)
                if program and program.planned_seconds <= CLOSE * decision.seconds:
                    break
                if not program and isinstance(attempts.failure, AddressesDoNotFit):
                    enough_free = (attempts.failure.asked - budget) / (budget - model.resident) / 2
            fastest = min(fastest, decision.seconds)
            if attempts.best and attempts.best.planned_seconds <= CLOSE * fastest:
                return

    def carried_out(self, decision: Decision, reserve: float, room: int) -> Iterator[Proposal]:
        """A decision as setups, with best fit and with fixed addresses.

        Args:
            decision: what leaves.
            reserve: the share of the bytes that are not resident which the model left free.
            room: bytes of the budget without it.
        """
        offload, prefetch, algorithms = modules_of(decision)
        modules = {"offload": offload, "prefetch": prefetch, "algorithms": algorithms}
        if not decision.coming:
            modules = {"offload": NoOffload(), "prefetch": NoPrefetch(), "algorithms": algorithms}
        note = f"{decision.rank}: {counted(len(decision.coming), 'map')}"
        if decision.caps:
            note += f", {counted(len(decision.caps), 'smaller workspace')}"
        for allocator in (BestFit(), *self._fixed(limit=room)):
            name = f"{reserve:.0%} free, {allocator.name}"
            yield Proposal(self.with_modules(name, **modules, allocator=allocator), decision.seconds, note)

    def last_resorts(self, model: Model | None) -> Iterator[Proposal]:
        """Everything leaves: with the workspaces that have to shrink, then with the least everywhere.

        Where the model sees room and no hole is large enough, it uses less: workspaces shrink and maps are
        prefetched as if the budget were the least that it can train in; where that does not fit, each map on demand.
        """
        if model:
            least = model.least()
            late = Late(steps_of((model, model.candidates), least))
            caps = Capped(tuple((caps_within(model, model.candidates, least) or {}).items()))
            prefetches: dict[str, Prefetch] = {"prefetched": late, "on demand": NoPrefetch()}
            for when, prefetch in prefetches.items():
                modules = {"prefetch": prefetch, "algorithms": caps, "allocator": [*self._fixed(), BestFit()][0]}
                yield Proposal(self.with_modules(f"everything, {when}", **modules))
        allocators = (*self._fixed(), BestFit(), FirstFit())
        for allocator in allocators:
            yield Proposal(self.with_modules(f"{self.least}, {allocator.name}", allocator=allocator))

    def _fixed(self, **limit: int) -> tuple[Allocator, ...]:
        return (self.fixed(**limit),) if self.fixed else ()

    def with_modules(self, name: str, **modules: Any) -> Setup:
        own = {name: getattr(self, name) for name in FIELDS}
        return Setup(f"{self.name}: {name}", **own | modules)

    @property
    def frugal(self) -> Setup:
        return dataclasses.replace(self, guided=False)

    @property
    def quick(self) -> Setup:
        return dataclasses.replace(self, ranks=TRIED[:1], reserves=QUICK_RESERVES)


#: Its own modules are those of its most frugal candidate.
ACCUDNN = AccUDNN(
    "accudnn",
    offload=Everything(),
    liveness=LayerWise(),
    algorithms=MemoryOptimal(),
    least="everything (least)",
    instead="take another preset with offload=accudnn-model and prefetch=accudnn-late",
)
