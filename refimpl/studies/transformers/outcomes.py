"""What is planned, and what came of it: each policy on each transformer, machine and budget, and its largest batch.

The plans are rows of `refimpl.studies.grid`, so that a file keeps them and a stopped study goes on.  An outcome is what
the page shows of a row.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from io import StringIO
from math import exp, log
from pathlib import Path

from refimpl.names.largest_batch import least_conceivable
from refimpl.names.least_budget import MIB, needed_by_baseline
from refimpl.names.machines import named
from refimpl.points.many_plans import Row
from refimpl.studies.grid.grid import study
from refimpl.studies.grid.rows import LARGEST, GridPoint, network_of
from refimpl.studies.transformers.yardsticks import YARDSTICKS

#: Network → images or sequences an iteration, where slow-downs are compared.
NETWORKS = {"vit-b16": 64, "gpt2": 8, "gpt2-medium": 4, "bert-base": 16, "llama3-1b": 2}
MACHINES = ("rtx-3060", "rtx-4090", "a100-80g", "h100")
#: Of the way from what no policy can do without to what the baseline needs.
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 0.9)
EFFORT = 40  #: plans that combined makes at most

PAPERS = ("vdnn-all", "vdnn-dyn", "vdnnpp-all", "vdnnpp-dyn", "superneurons", "accudnn")
COMBINED = "combined"
POLICIES = (*YARDSTICKS, *PAPERS, COMBINED)  #: as tables name them, in this order


@dataclass(frozen=True)
class Outcome:
    """A policy on a network and a machine: within a budget, or with the largest batch."""

    network: str
    machine: str
    policy: str
    share: float | None  #: of the way between the two budgets; None: the machine's memory and the largest batch
    budget_bytes: int
    batch: int
    fits: bool
    slow_down: float | None  #: over the baseline with memory enough; None: it does not fit, as for what follows
    moved_bytes: int | None  #: both ways
    again: int | None  #: forward steps that run again
    peak_bytes: int | None
    kernels_limit: bool = False  #: of a largest batch: no kernel can index the next one, and memory could be left


@dataclass(frozen=True)
class Question:
    """A point of the grid, and the words for it."""

    policy: str
    share: float | None
    point: GridPoint

    def answer(self, row: Row, faster: Row | None = None) -> Outcome:
        """Its outcome.  A question that was refused has none: it raises `ValueError`.

        Args:
            row: of its point.
            faster: of the largest batch, the row of the policy's whole search at that batch.
        """
        if row["fits"] is None:
            raise ValueError(str(row["why"]))
        limited = bool(row["largest"] and row["fits"] and row["why"])
        row = faster or row
        copied = ("offloaded_bytes", "prefetched_bytes", "on_demand_bytes", "evicted_bytes")
        moved = sum(row[name] for name in copied) if row["fits"] else None
        return Outcome(
            self.point.network, self.point.machine, self.policy, self.share, row["budget_bytes"], row["batch"],
            row["fits"], row["slow_down"], moved, row["again"], row["peak_bytes"], limited,
        )  # fmt: skip


def setup_of(policy: str, effort: int = EFFORT) -> str:
    """A policy as `refimpl compare --with` takes it."""
    return f"combined effort={effort}" if policy == COMBINED else YARDSTICKS.get(policy, policy)


def budgets(network: str, batch: int, machine: str, shares: Sequence[float] = SHARES) -> dict[float, int]:
    """Share → bytes, a multiple of 1 MiB; those alone that the machine has."""
    built, on = network_of(network, batch), named(machine)
    least, most = least_conceivable(built), needed_by_baseline(built, on)
    found = {share: -int(-(least + share * (most - least)) // MIB) * MIB for share in shares}
    return {share: nbytes for share, nbytes in found.items() if nbytes <= on.memory_bytes}


def questions(
    networks: dict[str, int],
    machines: Sequence[str] = MACHINES,
    shares: Sequence[float] = SHARES,
    policies: Sequence[str] = POLICIES,
    effort: int = EFFORT,
) -> list[Question]:
    """Network by network, machine by machine: the largest batches, then the budgets."""
    found: list[Question] = []
    for network, batch in networks.items():
        for machine in machines:
            setups = {policy: setup_of(policy, effort) for policy in policies}
            found += [
                Question(policy, None, GridPoint(network, setup, machine, "", LARGEST))
                for policy, setup in setups.items()
            ]
            found += [
                Question(policy, share, GridPoint(network, setup, machine, f"{nbytes // MIB}MiB", batch))
                for share, nbytes in budgets(network, batch, machine, shares).items()
                for policy, setup in setups.items()
            ]
    return found


def outcomes(
    asked: Sequence[Question], jobs: int = 1, out: Path | None = None, watch: Callable[[Row], None] = lambda row: None
) -> list[Outcome]:
    """The outcomes, in the order of the questions.

    A search finds its largest batch by its setup that needs the least memory; its speed there is the whole search's.
    """
    rows = study(wanted=[one.point for one in asked], jobs=jobs, out=out, watch=watch)
    found = {row["key"]: row for row in rows}
    at_largest = {
        one: one.point._replace(batch=found[one.point.key]["batch"])
        for one in asked
        if one.share is None and found[one.point.key]["fits"]
    }
    again = study(wanted=[*at_largest.values()], jobs=jobs, out=out, watch=watch) if at_largest else []
    faster = {row["key"]: row for row in again if row["fits"]}
    speed = {one: faster[point.key] for one, point in at_largest.items() if point.key in faster}
    return [one.answer(found[one.point.key], speed.get(one)) for one in asked]


# -- what they say -----------------------------------------------------------------------------------------------------


def mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    found = [log(value) for value in values]
    return exp(sum(found) / len(found))


def fastest(found: Sequence[Outcome], policies: Sequence[str] = POLICIES) -> list[str]:
    """The policies with the least slow-down among outcomes of one network, machine and budget; none where none fits."""
    fit = {one.policy: one.slow_down for one in found if one.slow_down is not None and one.policy in policies}
    least = min(fit.values(), default=0.0)
    return [policy for policy, slow_down in fit.items() if slow_down <= least * (1 + 1e-6)]


# -- a file of them ----------------------------------------------------------------------------------------------------


def written(found: Sequence[Outcome]) -> str:
    """As CSV, a line an outcome."""
    text = StringIO()
    lines = csv.DictWriter(text, [field.name for field in fields(Outcome)], lineterminator="\n")
    lines.writeheader()
    for one in found:
        slow_down = None if one.slow_down is None else round(one.slow_down, 5)
        flags = {name: int(getattr(one, name)) for name in ("fits", "kernels_limit")}
        lines.writerow(asdict(one) | flags | {"slow_down": slow_down})
    return text.getvalue()
