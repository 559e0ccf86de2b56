"""The combined policy beside the papers: the tables of docs/combined.md.

    python -m tests.refimpl.combined.campaign                    # every point that is not in ROWS yet; an hour
    python -m tests.refimpl.combined.campaign vgg16/64 others    # those of some cases
    python -m tests.refimpl.combined.campaign --again            # combined alone, at every point of ROWS
    python -m tests.refimpl.combined.campaign --write            # the tables of ROWS into the page

Six cases have twelve budgets each, in equal ratios from `FIRST` to the baseline's least budget; `OTHERS` are single
points.  A paper's cell is its best over all combinations of its own modules.  Every program of the combined policy is
verified, and its time is that of `simulate`.  Chains have the lower bound too.  Seconds of processor time are this
machine's.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from refimpl.combined import COMBINED
from refimpl.combined.papers import best_of, papers
from refimpl.machine import MACHINES, Machine
from refimpl.memory import UNLIMITED
from refimpl.names.least_budget import least_budget
from refimpl.names.networks import build
from refimpl.names.presets import PRESETS
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Setup, plan
from refimpl.studies.grid.over_budget import budgets_between
from refimpl.studies.optimum.bound import floor_seconds, lower_bound
from refimpl.studies.optimum.rotor import is_chain
from refimpl.text import size

ROOT = Path(__file__).resolve().parents[3]
ROWS = ROOT / "docs" / "measurements" / "combined.jsonl"
PAGE = ROOT / "docs" / "combined.md"
GIB = 1 << 30
BUDGETS = 12
#: Case, network/batch on a Titan X → the first budget, GiB.
FIRST = {
    "alexnet/256": 1.1431,
    "vgg16/64": 4.036,
    "vgg16/256": 11.262,
    "googlenet/128": 1.1315,
    "resnet50/64": 1.006,
    "inceptionv4/32": 1.1755,
}
#: Case, network/batch machine → the budget: a share of the baseline's least budget, or bytes.
OTHERS = {
    "vgg11/64 k40c": 0.7,
    "vgg11/64 h100": 0.7,
    "overfeat/128 k40c": 0.6,
    "overfeat/128 h100": 0.6,
    "resnet152/32 titan-x": 2 * GIB,
}
NAMES = ("vDNN", "vDNN++", "SuperNeurons", "AccUDNN")
THREE = ("baseline", *NAMES[:3])  #: all but AccUDNN
FOUR = ("baseline", *NAMES)
DYNAMIC = {"vDNN": "vdnn-dyn", "vDNN++": "vdnnpp-dyn"}  #: paper → the policy that chooses among its setups
SOLVER = 600.0  #: seconds for the bound, on a machine with other work
CLOSED = 1.0005  #: times the floor: no setup can be better


@dataclass(frozen=True)
class Point:
    """One budget of one case."""

    case: str
    budget: int  #: bytes
    network: Network
    machine: Machine
    baseline: float  #: seconds with unlimited memory


# -- measuring ---------------------------------------------------------------------------------------------------------


def points_of(case: str) -> list[Point]:
    """Of a case of `FIRST`, every third budget first, so that an unfinished campaign already shows the whole range."""
    network_name, _, rest = case.partition("/")
    batch, _, machine_name = rest.partition(" ")
    network, machine = build(network_name, int(batch)), MACHINES[machine_name or "titan-x"]
    baseline = papers()["baseline"][0]
    fastest, enough = plan(network, baseline, machine, UNLIMITED), least_budget(network, baseline, machine)
    assert enough
    if case in OTHERS:
        given = OTHERS[case]
        budgets = [int(given * enough) if given < 1 else int(given)]
    else:
        budgets = budgets_between(round(FIRST[case] * GIB), enough, BUDGETS)
        budgets = [budgets[place] for first in range(3) for place in range(first, BUDGETS, 3)]
    return [Point(case, budget, network, machine, fastest.planned_seconds) for budget in budgets]


def slowdown(setups: Sequence[Setup], point: Point) -> list[float | str] | None:
    """The best of some setups, over the baseline with unlimited memory, and its name; None: none fits."""
    best = best_of(setups, point.network, point.machine, point.budget, math.inf)
    return [best.program.planned_seconds / point.baseline, best.setup.name] if best.program else None


def row(point: Point) -> dict[str, Any]:
    """Slow-downs over the baseline with unlimited memory; null where nothing fits."""
    found: dict[str, Any] = {"case": point.case, "budget": point.budget}
    found["floor"] = floor_seconds(point.network, point.machine) / point.baseline
    found["papers"] = dict.fromkeys(papers())
    found["dynamic"] = dict.fromkeys(DYNAMIC)
    for paper in ("baseline", "vDNN", "SuperNeurons", "vDNN++", "AccUDNN"):
        if is_open(found, THREE):  # else no table has the point
            found["papers"][paper] = slowdown(papers()[paper], point)
            if paper in DYNAMIC:
                found["dynamic"][paper] = slowdown([PRESETS[DYNAMIC[paper]].setup], point)
    wanted = is_open(found) and is_chain(point.network)
    bound = lower_bound(point.network, point.machine, point.budget, SOLVER) if wanted else None
    found["bound"] = bound and bound.seconds / point.baseline
    return found | combined(point)


def combined(point: Point) -> dict[str, Any]:
    """The part of a row that the search gives."""
    begun = time.process_time()
    try:
        program = plan(point.network, COMBINED, point.machine, point.budget)
    except DoesNotFit:
        return {"combined": None, "cpu": time.process_time() - begun}
    seconds = round(time.process_time() - begun, 1)
    program.verify()
    assert program.simulate().seconds == program.planned_seconds and program.peak_bytes <= point.budget
    fates = [fate.name for fate in program.fates.values()]
    return {
        "cpu": seconds,
        "combined": program.planned_seconds / point.baseline,
        "by": program.setup.name,
        "fates": {name: fates.count(name) for name in ("keep", "offload", "drop")},
    }


def measure(cases: Iterable[str]) -> None:
    """Append the rows that are not in the file yet."""
    there = {(one["case"], one["budget"]) for one in rows()}
    for case in cases:
        for point in points_of(case):
            if (case, point.budget) not in there:
                line = json.dumps(row(point)) + "\n"
                with ROWS.open("a") as file:
                    file.write(line)


def search_again() -> None:
    """Plan the combined policy again at every point of the file that a paper does not close, after it has changed."""
    lines = rows_of(ROWS)
    points = {(one.case, one.budget): one for case in {one["case"] for one in lines} for one in points_of(case)}
    for one in sorted(lines, key=lambda one: one["cpu"]):  # cheap ones first
        if is_open(one):
            one |= combined(points[one["case"], one["budget"]])
            ROWS.write_text("".join(json.dumps(one) + "\n" for one in lines))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rows() -> list[dict[str, Any]]:
    """In the order of the cases and of the budgets."""
    found = rows_of(ROWS)
    return sorted(found, key=lambda one: ([*FIRST, *OTHERS].index(one["case"]), one["budget"]))


# -- the tables --------------------------------------------------------------------------------------------------------


def with_smaller(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every policy at its best within the budget and the smaller ones: a program for less memory runs in more."""
    rows: list[dict[str, Any]] = []
    for one in found:
        if rows and (before := rows[-1])["case"] == one["case"]:
            best: dict[str, Any] = {"combined": fastest(before["combined"], one["combined"])}
            for kind in ("papers", "dynamic"):
                best[kind] = {name: fastest(before[kind][name], cell) for name, cell in one[kind].items()}
            one = one | best
        rows.append(one)
    return rows


def fastest(*cells: Any) -> Any:
    """None: none fits."""
    return min(filter(None, cells), default=None)


def fitting(one: dict[str, Any], names: Iterable[str]) -> float:
    """The best of some papers; infinite where none fits."""
    return min((one["papers"][name][0] for name in names if one["papers"][name]), default=math.inf)


def is_open(one: dict[str, Any], names: Iterable[str] = FOUR) -> bool:
    """Whether the best of some papers is above the floor, or none of them fits."""
    return fitting(one, names) > one["floor"] * CLOSED


def cell(one: dict[str, Any], paper: str) -> str:
    """A paper's best; † where its dynamic policy does not fit, or takes longer."""
    best, adopted = one["papers"][paper], one["dynamic"].get(paper)
    if not best:
        return "–"
    marked = paper in one["dynamic"] and not (adopted and adopted[0] <= best[0] * (1 + 1e-9))
    return f"{best[0]:.3f}{'†' * marked}"


def of_points(found: list[dict[str, Any]]) -> str:
    """Every open point."""
    lines = [
        [one["case"], size(one["budget"]), *(cell(one, name) for name in NAMES), text_of(one["combined"]), one["cpu"]]
        for one in found
        if one["case"] in FIRST and is_open(one)
    ]
    return table(["case", "budget", *NAMES, "combined", "CPU s"], lines)


def by_case(found: list[dict[str, Any]], chains: bool = False) -> list[tuple[str, list[dict[str, Any]]]]:
    """The points of every case of `FIRST` at which combined fits and some paper does, and of all cases."""
    fit = [one for one in found if one["combined"] and fitting(one, FOUR) < math.inf]
    fit = [one for one in fit if one["case"] in FIRST and (one["bound"] or not chains)]
    cases = dict.fromkeys(one["case"] for one in fit)
    return [*((case, [one for one in fit if one["case"] == case]) for case in cases), ("all", fit)]


def of_cases(found: list[dict[str, Any]]) -> str:
    """What the combined policy gains over the four papers, and over all but AccUDNN."""
    lines = []
    for case, points in by_case(found):
        cells: list[Any] = [case]
        for names in (FOUR, THREE):
            opened = [one for one in points if is_open(one, names) and fitting(one, names) < math.inf]
            gains = [fitting(one, names) / one["combined"] for one in opened]
            cells += [len(opened), sum(gain > 1 + 1e-9 for gain in gains), mean(gains)]
        worse = sum(one["combined"] > fitting(one, FOUR) * (1 + 1e-9) for one in points)
        lines.append([*cells[:3], worse, *cells[3:]])
    head = ["case", "open", "better", "worse", "gain over the four"]
    return table([*head, "open without AccUDNN", "better", "gain over the other three"], lines)


def of_bounds(found: list[dict[str, Any]]) -> str:
    """How far the best paper and the combined policy are from the bound, where the best paper is above the floor."""
    lines = []
    for case, points in by_case(found, chains=True):
        opened = [one for one in points if is_open(one)]
        best = [fitting(one, FOUR) / one["bound"] for one in opened]
        lines.append([case, len(opened), mean(best), mean([one["combined"] / one["bound"] for one in opened])])
    return table(["case", "open", "best paper over the bound", "combined over the bound"], lines)


def of_others(found: list[dict[str, Any]]) -> str:
    """The single points."""
    lines = []
    for one in found:
        if one["case"] in OTHERS:
            best = fitting(one, NAMES)
            paper = next(name for name in NAMES if one["papers"][name] and one["papers"][name][0] == best)
            shown = size(one["budget"]), f"{paper}, {best:.3f}", text_of(one["combined"]), text_of(one["bound"])
            lines.append([one["case"], *shown, one["cpu"]])
    return table(["case", "budget", "best paper", "combined", "bound", "CPU s"], lines)


TABLES: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "points": of_points, "cases": of_cases, "bounds": of_bounds, "others": of_others,
}  # fmt: skip
BLOCK = re.compile(r"(<!-- campaign: (\w+) -->\n\n).*?(?=\n\n)", re.DOTALL)


def written(text: str, found: list[dict[str, Any]]) -> str:
    """A page with the tables of these rows."""
    return BLOCK.sub(lambda block: block[1] + TABLES[block[2]](with_smaller(found)), text)


def table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (head, rule, *lines))


def text_of(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def mean(values: list[float]) -> str:
    """The geometric mean and the largest."""
    if not values:
        return "–"
    return f"{geometric_mean(values):.3f}, at most {max(values):.3f}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(written(PAGE.read_text(), rows()))
    elif sys.argv[1:] == ["--again"]:
        search_again()
    else:
        wanted = sys.argv[1:] or [*FIRST, "others"]
        measure(case for name in wanted for case in (OTHERS if name == "others" else [name]))
