"""A setup that searches: it plans candidates in a fixed order and adopts the first that fits the budget.

The candidate that needs least memory is planned first: where even that does not fit, the network cannot be trained
within the budget.  It is adopted where no other candidate fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from refimpl.planner.baseline import NoOffload
from refimpl.planner.context import PlanContext
from refimpl.planner.errors import DoesNotFit
from refimpl.planner.program import Program, Trial
from refimpl.planner.setup import FIELDS, SLOTS, Setup, SetupError, called


@dataclass(frozen=True)
class Search(Setup):
    """Its own modules are those of the most frugal candidate; in the slots `searched` each candidate has others."""

    least: str = ""  #: the name of the most frugal candidate
    candidates: tuple[Setup, ...] = field(default=(), repr=False)  #: in the order in which they are tried
    searched: tuple[str, ...] = ("offload", "algorithms")
    instead: str = ""  #: advice for a choice of one's own, as in "take vdnn-all or vdnn-conv"

    def search(self, attempt: Callable[[Setup], Program], context: PlanContext) -> Program:
        """The program of the adopted setup, with the table of all that were tried; raises `DoesNotFit`.

        Args:
            attempt: plans a setup within the budget, or raises `DoesNotFit`.
            context: the network, the machine and the budget.
        """
        tried: list[Trial] = []
        try:
            adopted = try_out(self.frugal, attempt, tried)
        except DoesNotFit as error:
            error.who = f"{context.network.name} is untrainable by {self.name}: even {self.least}"
            raise
        for candidate in self.candidates:
            try:
                adopted = try_out(self._as_set(candidate), attempt, tried)
                break
            except DoesNotFit:
                continue
        return dataclasses.replace(adopted, tried=tuple(tried))

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
        return {slot: "searched" if slot in self.searched else called(self.module(slot)) for slot in SLOTS}


def try_out(
    candidate: Setup,
    attempt: Callable[[Setup], Program],
    tried: list[Trial],
    predicted: float | None = None,
    note: str = "",
) -> Program:
    """Plan a candidate and add the result to the table; raises `DoesNotFit`.

    Args:
        candidate: its name is the search's, a colon and its own.
        attempt: plans a setup within the budget.
        tried: the table.
        predicted: seconds of the iteration by the search's own model, if it has one.
        note: how the candidate was chosen.
    """
    name = candidate.name.partition(": ")[2]
    try:
        program = attempt(candidate)
    except DoesNotFit as error:
        failure = f"{error.where}: {error.missing} missing"
        tried.append(Trial(name, False, predicted=predicted, note=note, failure=failure))
        raise
    tried.append(Trial(name, True, program.peak_bytes, program.planned_seconds, predicted, note))
    return program
