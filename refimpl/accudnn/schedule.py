"""When the offloaded maps are prefetched: as late as the deadlines allow, no earlier than memory allows.

A quick simulation of planner and clock says what that costs.  The paper calls its swapping "dynamic" and says no more;
all of this is our reconstruction (R).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refimpl.accudnn.performance_model import Candidate, Model

if TYPE_CHECKING:
    import numpy as np

ROUNDS = 3  #: of scheduling by the stalls that the round before had
AS_FAST = 1.002  #: times the best round's seconds: a later round is taken, as its prefetches hold memory for less time


def late(deadlines: Sequence[float], copies: Sequence[float]) -> list[float]:
    """When each copy in begins, at the latest: copies in the order of their deadlines, one after another.

    Args:
        deadlines: when each copy has to be done, ascending, seconds.
        copies: how long each takes, seconds.
    """
    begins: list[float] = []
    later = float("inf")
    for deadline, seconds in zip(reversed(deadlines), reversed(copies), strict=True):
        later = min(deadline, later) - seconds
        begins.append(later)
    return begins[::-1]


def triggers(model: Model, away: Iterable[Candidate], budget: int, starts: np.ndarray) -> dict[Candidate, int]:
    """Map → the step at whose begin its copy in is issued: as late as the deadlines allow, unless memory is short.

    Args:
        model: the iteration.
        away: the maps that leave.
        budget: bytes.
        starts: when each step starts, seconds.
    """
    ordered = sorted(away, key=lambda one: one.next_use)
    begins = late([starts[one.next_use] for one in ordered], [one.in_seconds for one in ordered])
    by_time = {one: bisect_right(starts, begin) - 1 for one, begin in zip(ordered, begins, strict=True)}
    return with_room(model, by_time, budget)


def with_room(model: Model, wanted: Mapping[Candidate, int], budget: int) -> dict[Candidate, int]:
    """Map → the first step from the wanted one on from which there is room for it, in the order of the deadlines.

    A prefetch that took room which a later step needs would make the plan fail.  A map that is fetched at the very step
    that needs it makes that step wait.
    """
    ordered = sorted(wanted, key=lambda one: one.next_use)
    held = model.held(ordered).tolist()
    found: dict[Candidate, int] = {}
    for one in ordered:
        step, first, room = one.next_use, max(wanted[one], one.last_use + 1), budget - one.nbytes
        while step > first and held[step - 1] <= room:
            step -= 1
            held[step] += one.nbytes
        found[one] = step
    return found


@dataclass(frozen=True, eq=False)
class Simulated:
    """The seconds of a simulated iteration."""

    seconds: float
    starts: np.ndarray  #: of each step, stalls included; the last place is the end of the last step
    waits: Mapping[Candidate, float] = field(default_factory=dict)  #: map → seconds that a step waited for its copies


@dataclass(eq=False)
class Progress:
    """How far a simulated iteration is."""

    budget: int  #: bytes
    now: float  #: seconds
    held: int  #: bytes
    draining: deque[tuple[float, Candidate]] = field(default_factory=deque)  #: copies out that hold bytes, by their end
    waits: dict[Candidate, float] = field(default_factory=dict)  #: map → seconds that a step waited for its copies

    def wait(self, end: float, one: Candidate) -> None:
        """Until the end of a map's copy."""
        if end > self.now:
            self.waits[one] = self.waits.get(one, 0.0) + end - self.now
            self.now = end

    def free_drained(self) -> None:
        """Free the maps whose copies out are done."""
        while self.draining and self.draining[0][0] <= self.now:
            self.held -= self.draining.popleft()[1].nbytes

    def allocate(self, nbytes: int) -> bool:
        """Wait for the oldest copies out until the bytes fit; whether they do."""
        while self.held + nbytes > self.budget:
            if not self.draining:
                return False
            end, one = self.draining.popleft()
            self.held -= one.nbytes
            self.wait(end, one)
        self.held += nbytes
        return True


def simulate(model: Model, coming: Mapping[Candidate, int], budget: int) -> Simulated | None:
    """One iteration with these maps away; None where a step does not fit the budget.

    In each step: copies in are issued, each if it finds room, and begin when the map's copy out is done; what the step
    reads is waited for; what it writes is allocated, and where that does not fit, it waits for the oldest copy out that
    still holds bytes.

    Args:
        model: the iteration.
        coming: the maps that leave, and the step at which the copy in of each is issued, in that order.
        budget: bytes.
    """
    import numpy as np

    leaving, released, needed, issued = (defaultdict[int, list[Candidate]](list) for _ in range(4))
    for one, step in coming.items():
        leaving[one.last_write].append(one)
        released[one.last_use].append(one)
        needed[one.next_use].append(one)
        issued[step].append(one)
    seconds, workspace = model.seconds.tolist(), model.workspace.tolist()
    arriving, dying = model.arriving.tolist(), model.dying.tolist()
    at = Progress(budget, model.upload, model.resident + arriving[0])
    in_free, out_free = model.upload, 0.0  # when the streams of the copies are free
    out_end: dict[Candidate, float] = {}
    in_end: dict[Candidate, float] = {}
    starts = [at.now]
    for step in range(1, model.steps + 1):
        began = at.now
        at.free_drained()
        for one in issued.get(step, ()):
            if at.held + one.nbytes <= budget:
                at.held += one.nbytes
                in_end[one] = in_free = max(in_free, began, out_end[one]) + one.in_seconds
        for one in needed.get(step, ()):
            if one not in in_end:
                if not at.allocate(one.nbytes):
                    return None
                in_end[one] = in_free = max(in_free, at.now, out_end[one]) + one.in_seconds
        if not at.allocate(arriving[step] + workspace[step]):
            return None
        for one in needed.get(step, ()):
            at.wait(in_end[one], one)
        starts.append(at.now)
        at.now += seconds[step]
        at.held -= workspace[step]
        for one in leaving.get(step, ()):
            out_end[one] = at.now
            if one.out_seconds:
                out_end[one] = out_free = max(out_free, at.now) + one.out_seconds
        for one in released.get(step, ()):
            if out_end[one] > at.now:
                at.draining.append((out_end[one], one))
            else:
                at.held -= one.nbytes
        at.held -= dying[step]
    return Simulated(max(at.now, out_free), np.array([*starts, at.now]), at.waits)


def scheduled(model: Model, away: Iterable[Candidate], budget: int) -> tuple[dict[Candidate, int], Simulated] | None:
    """When the maps are prefetched, and the iteration's seconds; None where it does not fit.

    A stall moves all later deadlines, so the maps are scheduled again with the starts that were simulated: they come
    back later, and leave more room for the addresses of other blocks.
    """
    away = tuple(away)
    starts = model.starts
    best: tuple[dict[Candidate, int], Simulated] | None = None
    for _ in range(ROUNDS):
        coming = triggers(model, away, budget, starts)
        if best and coming == best[0]:  # as it was: so would the iteration be
            break
        run = simulate(model, coming, budget)
        if run is None:
            break
        if best is None or run.seconds < AS_FAST * best[1].seconds:
            best = coming, run
        if not run.waits:
            break
        starts = run.starts
    return best
