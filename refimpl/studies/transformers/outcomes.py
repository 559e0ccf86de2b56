"""What is planned: each policy on each transformer, machine and budget, and its largest batch.

An outcome is the row of its point, with three fields more: `policy`, as tables name it; `share`, of the way between the
two budgets, None for the machine's memory and the largest batch; and `kernels_limit`, whether no kernel can index a
larger batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from refimpl.names.largest_batch import least_conceivable
from refimpl.names.least_budget import MIB, needed_by_baseline
from refimpl.names.machines import named
from refimpl.points.many_plans import Row
from refimpl.studies.grid.rows import LARGEST, GridPoint, network_of
from refimpl.studies.transformers.yardsticks import YARDSTICKS

#: Network → images or sequences an iteration, where slow-downs are compared.
NETWORKS = {"vit-b16": 64, "gpt2": 8, "gpt2-medium": 4, "bert-base": 16, "llama3-1b": 2}
MACHINES = ("rtx-3060", "rtx-4090", "a100-80g", "h100")
#: Of the way from what no policy of whole steps can do without to what the baseline needs.
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 0.9)
EFFORT = 40  #: plans that combined makes at most

PAPERS = ("vdnn-all", "vdnn-dyn", "vdnnpp-all", "vdnnpp-dyn", "superneurons", "accudnn")
COMBINED = "combined"
POLICIES = (*YARDSTICKS, *PAPERS, COMBINED)  #: as tables name them, in this order


class Question(NamedTuple):
    """A point of the grid, and the words for it."""

    policy: str
    share: float | None
    point: GridPoint


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
            within: dict[float | None, tuple[str, int | str]] = {None: ("", LARGEST)}
            for share, nbytes in budgets(network, batch, machine, shares).items():
                within[share] = f"{nbytes // MIB}MiB", batch
            found += [
                Question(policy, share, GridPoint(network, setup_of(policy, effort), machine, *one))
                for share, one in within.items()
                for policy in policies
            ]
    return found


def outcomes(asked: Sequence[Question], plan: Callable[[list[GridPoint]], list[Row]]) -> list[Row]:
    """The outcomes, in the order of the questions.  A question that was refused has none: it raises `ValueError`.

    A search finds its largest batch by its setup that needs the least memory; its speed there is the whole search's.

    Args:
        asked: what is planned.
        plan: makes the rows of points.
    """
    rows = plan([one.point for one in asked])
    if refused := [row["why"] for row in rows if row["fits"] is None]:
        raise ValueError(refused[0])
    largest = [
        one.point._replace(batch=row["batch"]) if one.share is None and row["fits"] else None
        for one, row in zip(asked, rows, strict=True)
    ]
    again_at = [point for point in largest if point]
    faster = iter(plan(again_at) if again_at else [])
    found = []
    for one, row, point in zip(asked, rows, largest, strict=True):
        limit = bool(row["largest"] and row["fits"] and row["why"])
        again = next(faster) if point else row
        row = again if again["fits"] else row
        found.append(row | {"policy": one.policy, "share": one.share, "kernels_limit": limit})
    return found


def fastest(found: Sequence[Row], policies: Sequence[str] = POLICIES) -> list[str]:
    """The policies with the least slow-down among outcomes of one network, machine and budget; none where none fits."""
    fit = {one["policy"]: one["slow_down"] for one in found if one["fits"] and one["policy"] in policies}
    least = min(fit.values(), default=0.0)
    return [policy for policy, slow_down in fit.items() if slow_down <= least * (1 + 1e-6)]
