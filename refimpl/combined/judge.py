"""The judge: the planner itself.  It counts what it plans, remembers it, and keeps the fastest program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from refimpl.planner import Context, DoesNotFit, Program, Search, Setup, SetupError, TooSlow, Trial
from refimpl.slots.errors import AddressesDoNotFit

#: `attempt(setup, give_up=seconds)` plans within the budget.
Attempt = Callable[..., Program]
#: Called with the plans so far, the most that will be made, and the best seconds.
SearchProgress = Callable[[int, int, float], None]
NOT_BETTER = 1 + 1e-6  #: times the floor: nothing is left to gain


class Judged(NamedTuple):
    """A setup that was planned, and the seconds that the search compares.

    Where no addresses were found, they are those of the program whose bytes were counted, as many times longer as it
    would need more memory: it may lead to one that fits.  No program is kept here: of a deep network it is large.
    """

    setup: Setup
    seconds: float
    fits: bool = True


@dataclass(eq=False)
class Judge:
    """Plans setups, counts the plans, and keeps the fastest program."""

    attempt: Attempt
    floor: float  #: seconds that no policy can beat
    most: int  #: plans at most
    watch: SearchProgress  #: called with every plan
    first: bool = False  #: whether the first program that fits is enough

    def __post_init__(self) -> None:
        self._planned: set[Setup] = set()
        self.count = 0
        self.best: Program | None = None
        self.failure: DoesNotFit | None = None  #: of the last setup that did not fit
        self._misplaced: AddressesDoNotFit | None = None  #: how the last plan failed
        self.seconds = inf  #: of the best
        self.tried: list[Trial] = []  #: every improvement

    @property
    def over(self) -> bool:
        """Whether nothing is left to gain, or no plan is left."""
        enough = self.first and self.best is not None
        return enough or self.count >= self.most or self.at_floor

    @property
    def at_floor(self) -> bool:
        return self.seconds <= self.floor * NOT_BETTER

    def knows(self, setup: Setup) -> bool:
        return setup in self._planned

    def planned(self, setup: Setup, give_up: float = inf) -> Program | None:
        """The program, if it fits and is not sure to take over `give_up` seconds."""
        self.count += 1
        self._planned.add(setup)
        program = self._adopted(lambda: self.attempt(setup, give_up), setup.name)
        self.watch(self.count, self.most, self.seconds)
        return program

    def judged(self, setup: Setup, give_up: float = inf) -> Judged | None:
        """The same, or the program whose bytes fit if they are only counted."""
        if program := self.planned(setup, give_up):
            return Judged(setup, program.planned_seconds)
        if error := self._misplaced:
            return Judged(setup, error.counted_seconds * error.asked / error.budget, False)
        return None

    def searched(self, search: Search, context: Context) -> Program | None:
        """The program that another search adopts."""
        return self._adopted(lambda: search.search(self.attempt, context), search.name)

    def _adopted(self, attempt: Callable[[], Program], name: str) -> Program | None:
        """The program, kept if it is the fastest so far."""
        self._misplaced = None
        try:
            program = attempt()
        except DoesNotFit as error:
            self.failure = error.with_traceback(None)  # whose frames hold what was planned
            self._misplaced = error if isinstance(error, AddressesDoNotFit) else None
            return None
        except (TooSlow, SetupError):
            return None
        if program.planned_seconds < self.seconds:
            self.best, self.seconds = program, program.planned_seconds
            note = f"plan {self.count} of {self.most}"
            self.tried.append(Trial(name, True, program.peak_bytes, program.planned_seconds, note=note))
        return program
