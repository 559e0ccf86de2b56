"""Which maps leave, and which workspaces shrink: trainability first, then efficiency.

The paper says that it swaps "appropriate" data: trainability comes first, then it remedies the loss of efficiency of
other strategies.  Both rules below are our reconstruction (R).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from refimpl.accudnn.performance_model import Candidate, Model
from refimpl.accudnn.schedule import Simulated, scheduled
from refimpl.text import duration

#: Shares of the other candidates that are sent too, to see whether that is faster.
SHARES = (0.0, 0.05, 0.10, 0.20, 0.35, 0.50, 1.0)
FASTER = 0.9995  #: a choice is faster than another if it takes less than this share of its time
NO_STALL = 1.001  #: times the seconds without a stall: nothing is left to gain


def idle(model: Model, one: Candidate) -> float:
    """Seconds in which no step uses the map."""
    return float(model.starts[one.next_use] - model.starts[one.last_use + 1])


def by_idle(model: Model) -> list[Candidate]:
    """The map that is idle longest first; of several the largest."""
    return sorted(model.candidates, key=lambda one: (-idle(model, one), -one.nbytes))


def by_slack(model: Model) -> list[Candidate]:
    """The map first whose copies leave most of its idle time over, for each of its bytes."""
    return sorted(model.candidates, key=lambda one: -(idle(model, one) - one.out_seconds - one.in_seconds) / one.nbytes)


def by_size(model: Model) -> list[Candidate]:
    """The largest map first, for comparison: the policy does not use it."""
    return sorted(model.candidates, key=lambda one: (-one.nbytes, one.last_write))


RANKS: Mapping[str, Callable[[Model], list[Candidate]]] = {"idle": by_idle, "slack": by_slack, "size": by_size}
TRIED = ("idle", "slack")


@dataclass(frozen=True, eq=False)
class Decision:
    """The maps that leave, when they are prefetched, the workspaces that shrink, and the iteration that this makes."""

    model: Model  #: with the smaller workspaces
    coming: Mapping[Candidate, int]  #: map → the step at which its copy in is issued, in that order
    caps: Mapping[int, int]  #: step → bytes of workspace
    run: Simulated
    rank: str = ""

    @property
    def seconds(self) -> float:
        return self.run.seconds

    @property
    def reasons(self) -> dict[Candidate, str]:
        """Why each map leaves."""
        starts, found = self.run.starts, {}
        for one in self.coming:
            waited = self.run.waits.get(one, 0.0)
            hidden = f"{duration(waited)} of its copies do not" if waited else "its copies hide"
            found[one] = f"idle {duration(starts[one.next_use] - starts[one.last_use + 1])}, {hidden}"
        return found


def needed(model: Model, order: Sequence[Candidate], budget: int) -> list[Candidate]:
    """The maps without which the iteration cannot fit: at the fullest step, the first in the order that is idle there.

    Args:
        model: the iteration.
        order: all candidates, the one to send first first.
        budget: bytes.

    Returns:
        Maps in the order in which they were chosen.  Steps that are too full then have no idle map left.
    """
    import numpy as np

    held = model.held()
    names = ("last_use", "next_use", "nbytes")
    last_use, next_use, nbytes = (np.array([getattr(one, name) for one in order]) for name in names)
    here = np.ones(len(order), dtype=bool)
    chosen: list[Candidate] = []
    too_full = held.copy()  # what is looked at: steps without an idle map are left out
    while too_full.size and (fullest := int(too_full.argmax())) >= 0 and too_full[fullest] > budget:
        idle_there = here & (last_use < fullest) & (fullest < next_use)
        first = int(idle_there.argmax()) if order else 0
        if not order or not idle_there[first]:
            too_full[fullest] = 0
            continue
        here[first] = False
        chosen.append(order[first])
        too_full[last_use[first] + 1 : next_use[first]] -= nbytes[first]
    return chosen


def caps_within(model: Model, away: Sequence[Candidate], budget: int) -> dict[int, int] | None:
    """Step → the workspace that it has to shrink to, with these maps away; None where even the least is too much."""
    import numpy as np

    held, caps = model.held(away), {}
    for step in np.flatnonzero(held > budget).tolist():
        cap = int(model.workspace[step] - (held[step] - budget))
        fitting = [workspace for workspace, _ in model.rungs[step] if workspace <= cap] if model.rungs else []
        if not fitting:
            return None
        caps[step] = fitting[0]
    return caps


def choose(model: Model, budget: int, ranks: Iterable[str] = TRIED) -> Decision | None:
    """The fastest choice found; None where the model cannot train within the budget.

    Args:
        model: the iteration.
        budget: bytes.
        ranks: names of the orders that are tried.
    """
    best: Decision | None = None
    for rank in ranks:
        order = RANKS[rank](model)
        must = needed(model, order, budget)
        caps = caps_within(model, must, budget)
        if caps is None:
            return None
        shrunk = model.capped(caps)
        leaving = set(must)
        others = [one for one in order if one not in leaving]
        for share in SHARES if must or caps else SHARES[:1]:
            more = others[: int(len(others) * share)]
            if share and not more:
                continue
            found = scheduled(shrunk, (*must, *more), budget)
            if found and (best is None or found[1].seconds < best.seconds * FASTER):
                best = Decision(shrunk, found[0], caps, found[1], rank)
            if best and best.seconds <= NO_STALL * best.model.without_stall:
                return best
    return best
