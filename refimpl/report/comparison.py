"""Several setups of one network side by side: the figures that a table and a picture show of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from refimpl.machine import Timeline
from refimpl.planner import DoesNotFit, Program
from refimpl.report.attribution import Attribution
from refimpl.report.figures import traffic
from refimpl.slots.errors import PinnedDoesNotFit

if TYPE_CHECKING:
    from refimpl.machine.possible import MachineSeconds


@dataclass(frozen=True)
class Compared:
    """One setup's figures, or the reason why there are none.  Bytes and seconds of one iteration."""

    name: str
    budget: int
    live_bytes: int = 0  #: managed tensors, unrounded, at their peak
    pool_bytes: int = 0  #: taken: the budget, or less
    peak_bytes: int = 0  #: in use at most
    out_bytes: int = 0  #: copied out, for whatever reason
    in_bytes: int = 0  #: copied in; the batch too
    recomputed_layers: int = 0
    seconds: float = 0.0
    stall: float = 0.0  #: seconds in which no kernel ran
    simulated: bool = True
    least_bytes: int | None = None  #: the least budget tried that fits, if asked for
    possible: MachineSeconds | None = field(default=None, compare=False)  #: seconds on possible machines, if asked for
    misfit: str = ""  #: where and why it does not fit, or why it is refused, a few words; empty if it fits
    paper: str = ""  #: whose best policy this is
    others: tuple[Compared, ...] = ()  #: the paper's other policies
    attribution: Attribution | None = None  #: where the seconds go

    @property
    def fits(self) -> bool:
        return not self.misfit


def compared(name: str, program: Program, timeline: Timeline) -> Compared:
    """The figures of a program."""
    moved = traffic(program)
    return Compared(
        name=name,
        budget=program.budget,
        live_bytes=program.peak.live_bytes,
        pool_bytes=program.pool_bytes,
        peak_bytes=program.peak_bytes,
        out_bytes=sum(copies.nbytes for copies in moved if copies.direction == "copy out"),
        in_bytes=sum(copies.nbytes for copies in moved if copies.direction == "copy in"),
        recomputed_layers=program.counts.recomputed_layers,
        seconds=timeline.seconds,
        stall=timeline.stall,
        simulated=timeline.simulated,
        attribution=Attribution.of(program),
    )


def misfit(name: str, budget: int, error: DoesNotFit) -> Compared:
    """A setup that does not fit the budget, or whose maps do not fit the tiers."""
    where = f"fails at {error.step.title}" if error.step else "fails before the first step"
    if isinstance(error, PinnedDoesNotFit):
        where += ", out of pinned memory"
    elif error.for_holes:
        where += " for want of a hole"
    return Compared(name, budget, misfit=where)


@dataclass(frozen=True)
class Spread:
    """Slow-downs of several setups on the same possible machines."""

    setups: Sequence[Compared]  #: those that fit, the fastest on the model first
    against: MachineSeconds  #: seconds of the baseline, or of the fastest, on each
    seconds: float  #: of the same on the model

    @classmethod
    def of(cls, setups: Sequence[Compared], baseline: tuple[MachineSeconds, float] | None = None) -> Spread | None:
        """Of the setups that were simulated on possible machines; None if none was.

        Args:
            setups: in any order.
            baseline: its seconds on each possible machine, and on the model; None: compare with the fastest.
        """
        known = sorted((one for one in setups if one.possible is not None), key=lambda one: one.seconds)
        if not known or known[0].possible is None:
            return None
        return cls(known, *(baseline or (known[0].possible, known[0].seconds)))

    @property
    def machines(self) -> int:
        return len(self.against)

    def interval(self, setup: Compared) -> tuple[float, float] | None:
        """From the 5th to the 95th percentile of a setup's slow-down."""
        from refimpl.machine.possible import interval

        return None if setup.possible is None else interval(setup.possible / self.against)

    def orders(self) -> list[tuple[Compared, Compared, int]]:
        """Each setup, the next slower one on the model, and the number of machines on which it is the faster one."""
        return [
            (first, second, int((first.possible < second.possible).sum()))
            for first, second in pairwise(self.setups)
            if first.possible is not None and second.possible is not None and first.seconds < second.seconds
        ]


def shortest(setups: Sequence[Compared]) -> float:
    """The least seconds of those that fit; 0 if none does."""
    return min((setup.seconds for setup in setups if setup.fits), default=0.0)
