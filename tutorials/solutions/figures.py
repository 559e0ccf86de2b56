"""The labs' tables of cases: what the trivial submission, each step of the handout and the solution reach.

    python -m tutorials.solutions.figures a3 --write     make labs/cases/a3.csv again: minutes
    python -m tutorials.solutions.figures                the mark of each step over 20 seeds, from the tables

`steps/NAME.py` says how a lab's cases are drawn, and has the submissions.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from refimpl.memory import UNLIMITED
from refimpl.planner import DoesNotFit
from tutorials.labs.lab import COLUMNS, LABS, Case, Lab

TABLES = sorted(path.stem for path in (LABS / "cases").glob("*.csv"))
TRIES = 4  #: draws of a case, for each that is kept
SEEDS = 20


def cases_of(steps: Any) -> Iterator[Case]:
    """For each part some cases that tell submissions apart, with all figures."""
    lab: Lab = steps.LAB
    for part in steps.PARTS:
        numbers, kept = random.Random(f"{lab.name} {part}"), 0
        for _ in range(TRIES * steps.DRAWS):
            case = steps.draw(part, numbers)
            try:
                zero, full = (lab.figure_of(case, modules)[0] for modules in (steps.ZERO, steps.FULL))
            except DoesNotFit:
                continue
            if zero - full < steps.NEED * full:
                continue
            case = replace(case, zero=zero, full=full)
            points = (lab.measured(case, modules, Path("steps.py")).points for modules in steps.STEPS.values())
            yield replace(case, steps=(*points,))
            if (kept := kept + 1) == steps.DRAWS:
                break


def write(steps: Any) -> None:
    rows = [[*COLUMNS, *steps.STEPS]]
    for case in cases_of(steps):
        budget = str(case.budget) if case.budget < UNLIMITED else ""
        figures = [f"{one:.9g}" for one in (case.zero, case.full)]
        points = [f"{one:.3f}" for one in case.steps]
        rows.append([case.part, case.network, str(case.batch), budget, case.around, *figures, *points])
        print(f"{steps.LAB.name}: {case}", file=sys.stderr)
    with (LABS / "cases" / f"{steps.LAB.name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def spread(lab: Lab) -> list[tuple[str, float, float, float, float]]:
    """For each step its name, its mean mark over the seeds, the deviation, the least and the most."""
    drawn = [lab.cases(str(seed)) for seed in range(1, SEEDS + 1)]
    found = []
    for number, name in enumerate(lab.table()[0]):
        marks = [100 * fmean(case.steps[number] for case in cases) for cases in drawn]
        found.append((name, fmean(marks), pstdev(marks), min(marks), max(marks)))
    return found


def markdown(names: Sequence[str] = TABLES) -> str:
    """The table of docs/course-evidence.md: where every step of every lab is."""
    rows = ["| lab | cases | handed in after the step | mark | deviation | least | most |", "| --- " * 7 + "|"]
    for name in names:
        lab: Lab = importlib.import_module(f"tutorials.labs.test_{name}").LAB
        of = f"{name.capitalize()} | {len(lab.cases('1'))} of {len(lab.table()[1])}"
        for step, *marks in spread(lab):
            rows.append(f"| {of} | {step} | {' | '.join(f'{mark:.1f}' for mark in marks)} |")
            of = " |"
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labs", nargs="*", default=TABLES)
    parser.add_argument("--write", action="store_true", help="measure, and write the table")
    given = parser.parse_args()
    if unknown := [name for name in given.labs if not (LABS / f"test_{name}.py").exists()]:
        parser.error(f"there is no lab {unknown[0]}; there are {', '.join(TABLES)}")
    for name in given.labs:
        if given.write:
            write(importlib.import_module(f"tutorials.solutions.steps.{name}"))
    print(markdown(given.labs), end="")


if __name__ == "__main__":
    main()
