"""A lab of modules: the slots that a submission fills, the setups around it, and cases whose figures are known.

A case is a network, a batch and a budget.  A lab's cases are in `cases/NAME.csv`, several for each *part*: a network
and a share of the way from the least budget to the largest.  A seed takes one of each part.  Each row has the figures
of the trivial submission and of the solution, and the points of the steps between, so that no solution is needed for
marks.  `python -m tutorials.solutions.figures` makes the files.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from refimpl.cli.parser import error_line
from refimpl.importing import own_code
from refimpl.machine import Machine
from refimpl.memory import UNLIMITED
from refimpl.names.machines import named
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import BASELINE, DoesNotFit, Program, Setup, SetupError, plan
from refimpl.planner.verify import Unsafe
from refimpl.slots.algorithms import FastestThatFits
from refimpl.slots.baseline import LayerWise
from refimpl.studies.program_file import document
from refimpl.text import duration, size

LABS = Path(__file__).parent
COLUMNS = ("part", "network", "batch", "budget", "around", "zero", "full")  #: of a table of cases, before the steps
MACHINE = "titan-x:own"  #: with the project's own kernels, so that a program can be run, too
MOST = 1.2  #: points of a case: what beats the solution has more than 1
HALF = 0.5  #: of the points, for a program that fits a larger budget alone

#: Nothing is released before the end of the iteration.
PLAINEST = BASELINE.replace(name="lab", algorithms=FastestThatFits())
#: Each tensor is released after its last use; nothing is moved or dropped.
LAYER_WISE = PLAINEST.replace(liveness=LayerWise())


class Refused(Unsafe):
    """What a submission may not do, in the lab's words: its mark is 0."""

    exit_status = 1  # type: ignore[assignment]  # not a fault of the project

    def __str__(self) -> str:
        return self.message


def said_of(error: BaseException) -> str:
    """An error of a submission as one line."""
    return str(error) if isinstance(error, Refused) else error_line(error)


@lru_cache(maxsize=1)
def machine() -> Machine:
    """The machine of all labs."""
    return named(MACHINE)


@lru_cache(maxsize=64)
def network_of(name: str, batch: int) -> Network:
    return build(name, batch)


def most_live(program: Program) -> int:
    """The most bytes that a step has on the device."""
    return program.network.resident_bytes + max(row.live_bytes + row.workspace_bytes for row in program.rows)


@dataclass(frozen=True)
class Case:
    """What is planned, and what is known of it."""

    part: str
    network: str
    batch: int
    budget: int = UNLIMITED  #: bytes
    around: str = "SETUP"  #: the setup around the submission: its name in the lab's test file
    zero: float = 0.0  #: the trivial submission's figure: no points
    full: float = 0.0  #: the solution's: 1 point
    steps: tuple[float, ...] = ()  #: points of what is handed in after each step of the handout

    @property
    def built(self) -> Network:
        return network_of(self.network, self.batch)

    def points(self, figure: float) -> float:
        """On the line through 0 at `zero` and 1 at `full`."""
        return min(MOST, max(0.0, (self.zero - figure) / (self.zero - self.full)))

    def __str__(self) -> str:
        batch = f"({self.batch})" if self.batch else ""
        budget = f" in {size(self.budget)}" if self.budget < UNLIMITED else ""
        return f"{self.network}{batch}{budget}{f', {self.around}' if self.around != 'SETUP' else ''}"


@dataclass(frozen=True, eq=False)
class Measured:
    """What a submission reaches in a case."""

    case: Case
    points: float = 0.0
    said: str = ""  #: the figure beside those that are known, or why it has no figure
    unsafe: str = ""  #: what the proof found: then the whole mark is 0
    program: Program | None = None
    again: str = ""  #: the command that shows this case


@dataclass(frozen=True, eq=False)
class Lab:
    """What a lab asks, and how a program is measured."""

    name: str  #: as in "a3": of its files
    slots: tuple[str, ...]  #: that the submission fills
    around: Mapping[str, Setup]  #: by name in `test_NAME.py`
    figure: Callable[[Program], float] = field(default=lambda program: program.planned_seconds)  #: less is better
    unit: Callable[[float], str] = duration
    again: tuple[float, ...] = ()  #: times the budget, where nothing fits it: for half of the points
    anything: bool = False  #: also modules of the project
    trained: Case = Case("", "lenet", 16)  #: what is trained on the CPU

    def table(self) -> tuple[tuple[str, ...], list[Case]]:
        """The steps of the handout, and every case."""
        return table_of(LABS / "cases" / f"{self.name}.csv")

    def cases(self, seed: str) -> list[Case]:
        """One case of each part: the same for the same seed."""
        numbers = random.Random(f"{self.name} {seed}")
        return [numbers.choice([*cases]) for _, cases in groupby(self.table()[1], key=lambda case: case.part)]

    def modules(self, path: Path) -> dict[str, Any]:
        """What the submission puts into the slots.

        Raises:
            RefimplError: the file cannot be executed, a name is missing, or is no module of its slot.
        """
        module = own_code.executed(str(path), path.stat().st_mtime_ns)
        if missing := [slot for slot in self.slots if not hasattr(module, slot)]:
            raise SetupError(
                f"the file has no {' and no '.join(missing)}; write, as in the lab's file, {missing[0]} = …"
            )
        found = {slot: getattr(module, slot) for slot in self.slots}
        for around in self.around.values():
            around.replace(**found)
        return found

    def planned(self, case: Case, modules: Mapping[str, Any], budget: int | None = None) -> Program:
        setup = self.around[case.around].replace(name="submission", **modules)
        return plan(case.built, setup, machine(), case.budget if budget is None else budget)

    def figure_of(self, case: Case, modules: Mapping[str, Any]) -> tuple[float, Program | None]:
        """What is judged, of the case's own budget.

        Raises:
            DoesNotFit: there is no program.
        """
        program = self.planned(case, modules)
        return self.figure(program), program

    def measured(self, case: Case, modules: Mapping[str, Any], path: Path) -> Measured:
        """Plan a case with the submission's modules, and prove the program."""
        again = self.command(case, path)
        try:
            figure, program, note = self.reached(case, modules)
            if program is not None:
                program.verify()
        except DoesNotFit as error:
            return Measured(case, said=str(error), again=again)
        except Unsafe as error:
            return Measured(case, said=said_of(error), unsafe=f"{case}: {said_of(error)}", again=again)
        except Exception as error:  # whatever the submission's modules raise
            return Measured(case, said=error_line(error), again=again)
        beside = f"{self.unit(figure)}; the solution {self.unit(case.full)}, the trivial one {self.unit(case.zero)}"
        points = case.points(figure) * (HALF if note else 1)
        return Measured(case, points, f"{note}{beside}", "", program, again)

    def reached(self, case: Case, modules: Mapping[str, Any]) -> tuple[float, Any, str]:
        """Figure and program; where nothing fits the budget, of the first larger one that does, and a note of it."""
        try:
            return *self.figure_of(case, modules), ""
        except DoesNotFit:
            for times in self.again:
                with suppress(DoesNotFit):
                    program = self.planned(case, modules, int(times * case.budget))
                    return self.figure(program), program, f"it fits {times} × the budget alone: "
            raise

    def decided(self, program: Any) -> object:
        """All that was decided: what is moved, dropped and released, when, and at which addresses."""
        return document(program)

    def once_more(self, case: Case, modules: Mapping[str, Any], program: Any) -> bool:
        """Whether a case has the same program again."""
        return self.decided(self.planned(case, modules, program.budget)) == self.decided(program)

    def command(self, case: Case, path: Path) -> str:
        """The command that draws the submission's program of a case."""
        setup = f"tutorials/labs/test_{self.name}.py:{case.around}"
        filled = " ".join(f"--set {slot}={path}:{slot}" for slot in self.slots)
        budget = f"--budget {case.budget}B " if case.budget < UNLIMITED else ""
        return f"refimpl view {case.network} --batch {case.batch} {budget}--machine {MACHINE} --policy {setup} {filled}"


def table_of(path: Path) -> tuple[tuple[str, ...], list[Case]]:
    with path.open(encoding="utf-8", newline="") as file:
        (*head,), *rows = csv.reader(file)
    return tuple(head[len(COLUMNS) :]), [
        Case(
            part, network, int(batch), int(budget or UNLIMITED), around, float(zero), float(full), (*map(float, steps),)
        )
        for part, network, batch, budget, around, zero, full, *steps in rows
    ]
