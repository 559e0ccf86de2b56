"""Seconds over budget: every setup of the papers, the policy that combines them, and the bound, at the same budgets.

Points are planned in several processes, and each is written to a file when it is done: a run that was stopped goes on
where it was.  Results do not depend on the number of processes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from refimpl import combined
from refimpl.fit.least_budget import least_budget
from refimpl.machine import Machine
from refimpl.machine.files import refuse_unwritable
from refimpl.network import Network
from refimpl.network.zoo import build
from refimpl.planner.largest import attempt
from refimpl.studies import workers
from refimpl.studies.optimum.bound import lower_bound
from refimpl.studies.optimum.setups import Named
from refimpl.text import RefimplError, naming, opened

BOUND, COMBINED = "bound", "combined"  #: the curves of the lower bound and of the policy that combines the papers


class PointsError(RefimplError, ValueError):
    """A file of points that cannot be used."""


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

    def header(self) -> dict[str, Any]:
        """The first line of the file: points of one case are not points of another."""
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


def solve(
    case: ParetoCase, tasks: Iterable[Task], points: Points, jobs: int, keep: Callable[[Task, float | None], None]
) -> None:
    """Add the points of the tasks that have none yet.

    Args:
        case: of all of them.
        tasks: in the order in which they are begun.
        points: what is known; each new point is added.
        jobs: processes; 1: this one.
        keep: called with each point when it is done.
    """
    left = [task for task in dict.fromkeys(tasks) if task not in points]
    for task, value in workers.results(Solver(case), left, jobs):
        points[task] = value
        keep(task, value)


class Solver:
    """Solves tasks of one case, in any process; the network is built once in each."""

    def __init__(self, case: ParetoCase) -> None:
        self.case = case

    def __call__(self, task: Task) -> float | None:
        return self.case.solve(self.network, task)

    @cached_property
    def network(self) -> Network:
        return build(self.case.network, self.case.batch)


# -- keeping them ------------------------------------------------------------------------------------------------------


@contextmanager
def kept(path: Path | None, case: ParetoCase) -> Iterator[tuple[Points, Callable[[Task, float | None], None]]]:
    """The points in a file, and what adds a point to it; without a file none, and nothing.

    A file has a line for its case and one for each point.  A line without an end is left from a run that was killed
    while it wrote, and is rewritten.
    """
    if path is None:
        yield {}, lambda task, value: None
        return
    refuse_unwritable(path)
    points, length = read(path, case) if path.exists() else ({}, 0)
    with naming(path), open(path, "r+" if length else "w", encoding="utf-8") as file:
        if length:
            file.truncate(length)
            file.seek(length)
        else:
            write(file, case.header())
        yield points, lambda task, value: write(file, [task.curve, task.budget, value])


def write(file: TextIO, line: Any) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def read(path: Path, case: ParetoCase) -> tuple[Points, int]:
    """A file's points, and the bytes of its complete lines; raises `PointsError`."""
    with opened(path) as file:
        given = file.read()
    if not given:
        return {}, 0
    try:
        text = given.decode("ascii")
        complete = text[: text.rfind("\n") + 1]
        header, *found = map(json.loads, complete.splitlines())
    except (ValueError, RecursionError):  # no text, not one whole line, or no JSON
        header = None
    if not isinstance(header, dict):
        raise PointsError(f"{path} holds no points of refimpl pareto; name another file")
    if header != case.header():
        differs = [name for name, value in case.header().items() if header.get(name) != value]
        raise PointsError(f"{path} has points of another {' and '.join(differs)}; name another file")
    points: Points = {}
    for number, line in enumerate(found, 2):
        match line:
            case [str(curve), int() | None as budget, int() | float() | None as value] if is_number(value):
                points[Task(curve, budget)] = value
            case _:
                raise PointsError(f"{path}, line {number} is no point; name another file, or remove that line")
    return points, len(complete)


def is_number(value: float | None) -> bool:
    return value is None or (not isinstance(value, bool) and 0 < value <= sys.float_info.max)


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
