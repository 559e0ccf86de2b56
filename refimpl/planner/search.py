"""Policies that search: they plan one setup after another and adopt the first, or the best, that will do.

Such a policy stands wherever a setup may: `plan` asks it for its program.  The program says what was tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from refimpl.machine import Machine
    from refimpl.network import Network
    from refimpl.planner.program import Program
    from refimpl.planner.setup import Setup


@dataclass(frozen=True)
class Trial:
    """A setup that was planned, and what came of it."""

    setup: str
    fits: bool
    peak_bytes: int | None = None  #: held by the pool at most, where it fits
    seconds: float | None = None  #: an iteration, as planned
    failure: str = ""  #: where it does not fit, and what is missing

    def __str__(self) -> str:
        return self.setup


class Search(Protocol):
    """What a searching policy offers."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> dict[str, str]:
        """Slot → name of its module, or that it is searched for."""

    def __hash__(self) -> int: ...

    @property
    def frugal(self) -> Setup:
        """The candidate without which nothing is adopted: a budget is enough if this one fits."""

    def module(self, slot: str) -> Any:
        """What all candidates have in a slot; None where that is searched for."""

    def replace(self, **modules: Any) -> Search:
        """The same search with other modules in the slots that it leaves alone; raises `SetupError` for the others."""

    def plan(self, network: Network, machine: Machine, budget: int) -> Program:
        """The program of the setup that was adopted; raises `DoesNotFit` if none will do."""
