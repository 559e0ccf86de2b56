"""Seconds over budget: every setup of the papers, the policy that combines them, and the bound, at the same budgets.

Points are planned in several processes, and each is written to a file when it is done: a run that was stopped goes on
where it was.  Results do not depend on the number of processes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import refimpl
from refimpl import combined
from refimpl.importing import own_code
from refimpl.machine import Machine
from refimpl.names.largest_batch import attempt
from refimpl.names.least_budget import least_budget
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.points.many_plans import Row, answers
from refimpl.studies.optimum.bound import lower_bound
from refimpl.studies.optimum.setups import Named
from refimpl.text import size

BOUND, COMBINED = "bound", "combined"  #: the curves of the lower bound and of the policy that combines the papers


class Task(NamedTuple):
    """A point of a curve."""

    curve: str  #: a setup's name, `BOUND` or `COMBINED`
    budget: int | None  #: bytes; None: the least budget of the setup


#: Task → seconds of an iteration, or bytes of the least budget; None where nothing fits.
Points = dict[Task, float | None]


@dataclass(frozen=True)
class ParetoCase:
    """The case that all points have in common; every process gets it."""

    network: str
    batch: int
    machine: Machine
    setups: Mapping[str, Named]  #: by name
    time_limit: float  #: seconds of the bound's solver
    effort: int | None  #: of the combined policy's search: plans at most
    seed: int  #: of its draws

    @property
    def key(self) -> str:
        """A hash of all that the points have in common, of the package's version, and of files of one's own."""
        own = own_code.content(" ".join([self.network, self.machine.name, *self.setups]))
        case = [self.header(), repr(self.machine), own, refimpl.__version__]
        return hashlib.sha256(json.dumps(case).encode()).hexdigest()[:16]

    def header(self) -> dict[str, Any]:
        """What every row says of its case."""
        return {
            "network": self.network, "batch": self.batch, "machine": self.machine.name,
            "catalogue": self.machine.catalogue, "link": self.machine.link, "tiers": [*map(str, self.machine.tiers)],
            "effort": self.effort, "seed": self.seed,
        }  # fmt: skip

    def solve(self, network: Network, task: Task) -> float | None:
        """One point; a program that the search adopts is proved safe."""
        if task.budget is None:
            return least_budget(network, self.setups[task.curve].setup, self.machine)
        if task.curve == BOUND:
            bound = lower_bound(network, self.machine, task.budget, self.time_limit)
            return bound.seconds if bound else None
        search = replace(combined.COMBINED, effort=self.effort, seed=self.seed)
        setup = search if task.curve == COMBINED else self.setups[task.curve].setup
        program = attempt(network, setup, self.machine, task.budget)
        if program and setup is search:
            program.verify()
        return program.planned_seconds if program else None


def budgets_between(least: int, most: int, points: int) -> list[int]:
    """Budgets in geometric steps, both ends among them; bytes."""
    if points < 2 or most <= least:
        return [least]
    return [round(least * (most / least) ** (place / (points - 1))) for place in range(points)]


# -- planning them -----------------------------------------------------------------------------------------------------


class CaseTask(NamedTuple):
    """A task with the hash of its case: points of several cases can be in one file."""

    case: str
    task: Task

    def __str__(self) -> str:
        return f"{self.task.curve}, {size(self.task.budget) if self.task.budget else 'the least budget'}"

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps([self.case, *self.task]).encode()).hexdigest()[:16]


class Solver:
    """Solves tasks of one case, in any process; the network is built once in each."""

    def __init__(self, case: ParetoCase) -> None:
        self.case = case

    def __call__(self, asked: CaseTask) -> Row:
        header, (curve, budget) = self.case.header(), asked.task
        value = self.case.solve(self.network, asked.task)
        found = {"least_bytes": value, "seconds": None} if budget is None else {"least_bytes": None, "seconds": value}
        return {"key": asked.key, **header, "curve": curve, "budget_bytes": budget} | found

    @cached_property
    def network(self) -> Network:
        return build(self.case.network, self.case.batch)


def solve(
    case: ParetoCase,
    tasks: Iterable[Task],
    jobs: int,
    out: Path | None,
    watch: Callable[[Row], None] = lambda row: None,
) -> Points:  # fmt: skip
    """The points of the tasks.

    Args:
        case: of all of them.
        tasks: in the order in which they are begun.
        jobs: processes; 1: this one.
        out: the file of points; those that are in it are not solved again.  None: nothing is kept.
        watch: called with each point's row when it is there.
    """
    asked = [CaseTask(case.key, task) for task in dict.fromkeys(tasks)]
    rows = answers(Solver(case), asked, jobs, out, watch)
    return {
        one.task: row["least_bytes" if one.task.budget is None else "seconds"]
        for one, row in zip(asked, rows, strict=True)
    }


# -- what they say -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Seconds at each budget; None where nothing fits."""

    paper: str
    name: str
    seconds: list[float | None]


def curve(paper: str, name: str, budgets: Sequence[int], points: Points) -> Curve:
    return Curve(paper, name, [points.get(Task(name, budget)) for budget in budgets])


def best(curves: Sequence[Curve]) -> Curve:
    """The fastest of several setups at each budget."""
    columns = zip(*(one.seconds for one in curves), strict=True)
    return Curve(curves[0].paper, f"best of {curves[0].paper}", [least(column) for column in columns])


def with_smaller(curve: Curve) -> Curve:
    """The fastest at each budget and all smaller ones: a program for less memory runs in more.

    The budgets of the curve ascend.
    """
    return Curve(curve.paper, curve.name, [least(curve.seconds[: place + 1]) for place in range(len(curve.seconds))])


def least(seconds: Iterable[float | None]) -> float | None:
    return min((one for one in seconds if one is not None), default=None)


@dataclass(frozen=True)
class Gain:
    """A policy against the best of all setups, over the budgets at which some setup fits and none is at the floor."""

    open: int  #: such budgets
    better: int  #: at which the policy is faster by more than rounding
    worse: int
    mean: float  #: the geometric mean of the best setup's seconds over the policy's
    largest: float


ROUNDING = 1e-6  #: of 1


def gain(policy: Curve, papers: Sequence[Curve], floor: float) -> Gain | None:
    """None where no budget is open."""
    pairs = zip(best(papers).seconds, policy.seconds, strict=True)
    ratios = [other / (own or math.inf) for other, own in pairs if other and other > floor * (1 + ROUNDING)]
    if not ratios:
        return None
    return Gain(
        len(ratios),
        sum(ratio > 1 + ROUNDING for ratio in ratios),
        sum(ratio < 1 - ROUNDING for ratio in ratios),
        math.exp(sum(math.log(max(ratio, 1e-9)) for ratio in ratios) / len(ratios)),
        max(ratios),
    )


def distance(policy: Curve, bound: Curve, floor: float) -> float | None:
    """The arithmetic mean of seconds over the bound, where the policy fits and is not at the floor; None: nowhere."""
    pairs = zip(policy.seconds, bound.seconds, strict=True)
    ratios = [own / low for own, low in pairs if own and low and own > floor * (1 + ROUNDING)]
    return sum(ratios) / len(ratios) if ratios else None
