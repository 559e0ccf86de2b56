"""The combined policy beside the papers on the six cases of docs/combined.md, twelve budgets each.

    python -m tests.refimpl.combined.campaign rows.jsonl                  # all cases; hours
    python -m tests.refimpl.combined.campaign rows.jsonl vgg16/64         # one case; rows that are there are kept
    python -m tests.refimpl.combined.campaign rows.jsonl --table          # the rows as tables

The budgets go in equal ratios from the least one of vDNN, vDNN++ and SuperNeurons to the baseline's peak.  Every
program is verified, and its time is that of `simulate`.  Seconds of processor time are this machine's.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from refimpl.combined import COMBINED
from refimpl.combined.papers import best_of, papers
from refimpl.machine import MACHINES
from refimpl.memory import UNLIMITED
from refimpl.network import Network
from refimpl.network.zoo import build
from refimpl.planner import DoesNotFit, plan
from refimpl.planner.context import fastest_seconds
from refimpl.text import size

TITAN_X = MACHINES["titan-x"]
GIB = 1 << 30
BUDGETS = 12
#: Case → the first budget, GiB.
FIRST = {
    "alexnet/256": 1.1431,
    "vgg16/64": 4.036,
    "vgg16/256": 11.262,
    "googlenet/128": 1.1315,
    "resnet50/64": 1.006,
    "inceptionv4/32": 1.1755,
}
CLOSED = 1.0005  #: times the floor: no setup can be better


def budgets(first: float, peak: int) -> list[int]:
    """Bytes, in equal ratios."""
    low = first * GIB
    return [int(low * (peak / low) ** (number / (BUDGETS - 1))) for number in range(BUDGETS)]


def row(case: str, number: int, network: Network, budget: int, baseline: float) -> dict[str, Any]:
    """One budget: slow-downs over the baseline with unlimited memory."""
    found: dict[str, Any] = {"case": case, "number": number, "budget": budget, "papers": {}}
    least = math.inf  # seconds of the best paper so far; vDNN++ comes last, whose pools take long to plan
    for paper in sorted(papers(), key="vDNN++".__eq__):
        best = best_of(papers()[paper], network, TITAN_X, budget, least if paper == "vDNN++" else math.inf).program
        found["papers"][paper] = best and [best.planned_seconds / baseline, best.setup.name]
        least = min(least, best.planned_seconds if best else math.inf)
    begun = time.process_time()
    try:
        program = plan(network, COMBINED, TITAN_X, budget)
    except DoesNotFit:
        return found | {"combined": None, "cpu": time.process_time() - begun}
    found["cpu"] = time.process_time() - begun
    program.verify()
    assert program.simulate().seconds == program.planned_seconds and program.peak_bytes <= budget
    fates = [fate.name for fate in program.fates.values()]
    floor = sum(fastest_seconds(network, TITAN_X)) + TITAN_X.copy_seconds(network.input.nbytes, "in")
    return found | {
        "combined": program.planned_seconds / baseline,
        "floor": floor / baseline,
        "by": program.setup.name,
        "slots": program.setup.slots,
        "fates": {name: fates.count(name) for name in ("keep", "offload", "drop")},
        "tried": [(trial.setup, trial.seconds, trial.note) for trial in program.tried],
    }


def measure(path: Path, cases: list[str]) -> None:
    """Append the rows that are not in the file yet."""
    there = {(one["case"], one["number"]) for one in rows(path)}
    for case in cases:
        name, _, batch = case.partition("/")
        network = build(name, int(batch))
        baseline = plan(network, papers()["baseline"][0], TITAN_X, UNLIMITED)
        for number, budget in sorted(enumerate(budgets(FIRST[case], baseline.peak_bytes)), key=coarse_first):
            if (case, number) not in there:
                found = row(case, number, network, budget, baseline.planned_seconds)
                with path.open("a") as file:
                    file.write(json.dumps(found) + "\n")


def coarse_first(numbered: tuple[int, int]) -> tuple[int, int]:
    """Every third budget first, so that an unfinished campaign already shows the whole range."""
    return numbered[0] % 3, numbered[0]


def rows(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return sorted(found, key=lambda one: ([*FIRST].index(one["case"]), one["number"]))


def text_of(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def tables(found: list[dict[str, Any]]) -> str:
    """Every open point, then every case."""
    names = ("vDNN", "vDNN++", "SuperNeurons", "AccUDNN")
    lines = ["| case | budget | " + " | ".join(names) + " | combined | CPU s |", "| --- " * (len(names) + 4) + "|"]
    cases: defaultdict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for one in found:
        values = [one["papers"][name] and one["papers"][name][0] for name in names]
        cells = [one["case"], size(one["budget"]), *map(text_of, values), text_of(one["combined"]), f"{one['cpu']:.1f}"]
        fitting = [value[0] for value in one["papers"].values() if value]
        if not (fitting and one["combined"]) or min(fitting) > one["floor"] * CLOSED:
            lines.append(f"| {' | '.join(cells)} |")
        if fitting and one["combined"]:
            others = [one["papers"][name][0] for name in ("baseline", *names[:3]) if one["papers"][name]]
            cases[one["case"]].append((min(fitting), min(others, default=math.nan), one["combined"], one["floor"]))
    lines += ["", "| case | open | better | worse | gain over the four | open without AccUDNN | gain over the three |"]
    lines.append("| --- " * 7 + "|")
    every = [point for points in cases.values() for point in points]
    for case, points in [*cases.items(), ("all", every)]:
        opened = [point for point in points if point[0] > point[3] * CLOSED]
        gains = [point[0] / point[2] for point in opened]
        three = [point[1] / point[2] for point in points if point[1] > point[3] * CLOSED]
        better, worse = sum(gain > 1 for gain in gains), sum(point[2] > point[0] * (1 + 1e-9) for point in points)
        cells = [case, len(opened), better, worse, mean(gains), len(three), mean(three)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def mean(values: list[float]) -> str:
    """The geometric mean and the largest."""
    if not values:
        return "–"
    return f"{math.exp(sum(map(math.log, values)) / len(values)):.3f}, at most {max(values):.3f}"


if __name__ == "__main__":
    if "--table" in sys.argv:
        print(tables(rows(Path(sys.argv[1]))))
    else:
        measure(Path(sys.argv[1]), sys.argv[2:] or [*FIRST])
