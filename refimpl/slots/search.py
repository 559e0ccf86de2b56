"""A setup that searches: it plans candidates in a fixed order and adopts the first that fits the budget.

The candidate that needs least memory is planned first: where even that does not fit, the network cannot be trained
within the budget.  It is adopted where no other candidate fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from refimpl.slots.baseline import NoOffload
from refimpl.slots.context import Context
from refimpl.slots.errors import DoesNotFit, SetupError
from refimpl.slots.module_text import module_text
from refimpl.slots.setup import FIELDS, SLOTS, Setup

if TYPE_CHECKING:
    from refimpl.planner.program import Program


@dataclass(frozen=True)
class Search(Setup):
    """Its own modules are those of the most frugal candidate; in the slots `searched` each candidate has others."""

    least: str = ""  #: the name of the most frugal candidate
    candidates: tuple[Setup, ...] = field(default=(), repr=False)  #: in the order in which they are tried
    searched: tuple[str, ...] = ("offload", "algorithms")
    instead: str = ""  #: advice for a choice of one's own, as in "take vdnn-all or vdnn-conv"

    def search(self, attempt: Callable[..., Program], context: Context) -> Program:
        """The program of the adopted setup, with the table of all that were tried; raises `DoesNotFit`.

        Args:
            attempt: plans a setup within the budget, or raises `DoesNotFit`.
            context: the network, the machine and the budget.
        """
        attempts = Attempts(attempt)
        frugal = attempts.plan(self.frugal)
        if frugal is None:
            raise self.untrainable(attempts.failure, context)
        planned = (attempts.plan(self._as_set(candidate)) for candidate in self.candidates)
        return dataclasses.replace(next(filter(None, planned), frugal), tried=tuple(attempts.tried))

    def untrainable(self, failure: DoesNotFit | None, context: Context) -> DoesNotFit:
        """The error where not even the most frugal candidate fits."""
        assert failure is not None
        failure.who = f"{context.network.name} is untrainable by {self.name}: even {self.least}"
        return failure

    def _as_set(self, candidate: Setup) -> Setup:
        """A candidate with this setup's modules in the slots that are not searched."""
        own = {name: getattr(self, name) for name in FIELDS if name not in self.searched}
        if isinstance(candidate.offload, NoOffload):
            del own["prefetch"]  # nothing is fetched
        return candidate.replace(name=f"{self.name}: {candidate.name}", **own)

    @classmethod
    def over(cls, name: str, frugal: Setup, *candidates: Setup, instead: str) -> Search:
        """A search named `name`: `frugal` decides whether the network can be trained, then `candidates` in order."""
        own = {name: getattr(frugal, name) for name in FIELDS}
        return cls(name, **own, least=frugal.name, candidates=candidates, instead=instead)

    @property
    def frugal(self) -> Setup:
        """The candidate that needs least memory: a budget is enough if this one fits."""
        return Setup(f"{self.name}: {self.least}", **{name: getattr(self, name) for name in FIELDS})

    def module(self, slot: str) -> Any:
        """The module that all candidates have in a slot; None where it is searched for."""
        return None if slot in self.searched else super().module(slot)

    def replace(self, **modules: Any) -> Setup:
        """The same search with other modules in the slots that it leaves alone; raises `SetupError` for the others."""
        for slot in modules:
            if slot in self.searched:
                raise SetupError(f"{self.name} chooses {' and '.join(self.searched)} itself; {self.instead}")
        return super().replace(**modules)

    @property
    def slots(self) -> dict[str, str]:
        return {slot: "searched" if slot in self.searched else module_text(self.module(slot)) for slot in SLOTS}


class Attempts:
    """The candidates planned so far, and the fastest program of them.  `attempt` plans a setup within the budget."""

    def __init__(self, attempt: Callable[..., Program]) -> None:
        self._attempt = attempt
        self.tried: list[Trial] = []
        self.best: Program | None = None
        self.failure: DoesNotFit | None = None  #: of the last one that did not fit

    def plan(self, candidate: Setup, predicted: float | None = None, note: str = "") -> Program | None:
        """A candidate's program, if it fits.

        Args:
            candidate: its name is the search's, a colon and its own.
            predicted: seconds of the iteration by the search's own model, if it has one.
            note: how the candidate was chosen.
        """
        name = candidate.name.partition(": ")[2]
        try:
            program = self._attempt(candidate)
        except DoesNotFit as error:
            failure = f"{error.where}: {error.missing} missing"
            self.tried.append(Trial(name, False, predicted=predicted, note=note, failure=failure))
            self.failure = error.with_traceback(None)  # whose frames hold what was planned
            return None
        self.tried.append(Trial(name, True, program.peak_bytes, program.planned_seconds, predicted, note))
        if self.best is None or program.planned_seconds < self.best.planned_seconds:
            self.best = program
        return program


@dataclass(frozen=True)
class Trial:
    """A setup that was planned by a search, and the result."""

    setup: str
    fits: bool
    peak_bytes: int | None = None  #: the most that was in use, if it fits
    seconds: float | None = None  #: an iteration, as planned
    predicted: float | None = None  #: its seconds by the search's own model, if it has one
    note: str = ""  #: how the search chose it
    failure: str = ""  #: the step that does not fit, and the missing bytes

    def __str__(self) -> str:
        return self.setup
