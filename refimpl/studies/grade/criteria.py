"""The judge: what a submission's process handed over, against the grader's own networks, proof, bits and bound.

Of the submission nothing is believed.  Each criterion is one line with its points.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from refimpl.memory import UNLIMITED
from refimpl.planner import Program, plan
from refimpl.planner.verify import Unsafe
from refimpl.studies.grade.confined import Ended, Limits, confined
from refimpl.studies.grade.drawn_cases import DrawnCase, machine
from refimpl.studies.grade.handed_over import NotAProgram, program_of
from refimpl.studies.grade.lab_tasks import BASE, BOUNDED, LabTask
from refimpl.studies.grade.source_tree import parsed
from refimpl.studies.optimum.bound import NoSolver, lower_bound
from refimpl.text import RefimplError, counted, one_line

CLOSE = 1.1  #: as good as the paper's: at most this many times its bytes, and its seconds
STEPS = 2  #: of training
PASS_MARK = 60
#: What every submission may import of the package's own names.
HARMLESS = ("refimpl", *(f"refimpl.{one}" for one in ("Context", "Setup", "Program", "DoesNotFit", "SetupError")))


class Criterion(NamedTuple):
    """One line of a grade."""

    name: str
    points: int
    of: int
    why: str


@dataclass(frozen=True)
class Grade:
    """What a submission got."""

    task: str
    criteria: list[Criterion]
    slow_downs: dict[str, float | None] = field(default_factory=dict)  #: case → seconds over those with memory enough

    @property
    def points(self) -> int:
        return sum(one.points for one in self.criteria)

    @property
    def of(self) -> int:
        """Points that there are."""
        return sum(one.of for one in self.criteria)

    @property
    def passed(self) -> bool:
        return self.points >= PASS_MARK


@dataclass(eq=False)
class JudgedCase:
    """One case: the program that was handed over, if there is one, and what is wrong with it."""

    case: DrawnCase
    task: LabTask
    program: Program | None = None
    unfit: str = ""  #: why the submission itself says that it does not fit
    unproved: str = ""  #: why the grader has no proof

    @property
    def good(self) -> bool:
        return self.program is not None and not self.unproved

    @cached_property
    def seconds(self) -> float:
        assert self.program
        return self.program.simulate().seconds

    @cached_property
    def paper(self) -> Program | None:
        """The paper's program; None where the budget is too small for it."""
        try:
            return plan(self.case.built, self.task.paper, machine(), self.case.budget)
        except RefimplError:
            return None


# -- what the file says ------------------------------------------------------------------------------------------------


def foreign_imports(source: bytes, allowed: Sequence[str]) -> list[str]:
    """Modules that a submission imports and must not: clocks, chance, files, other people's modules of the slots."""
    found: list[str] = []
    for node in ast.walk(parsed(source, NotAProgram)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "refimpl":
            found.append(f"refimpl.{node.attr}")
        if isinstance(node, ast.Attribute) and node.attr == "MODULES":
            found.append("slots.MODULES")
    return sorted({name for name in found if name not in HARMLESS and not covered(name, allowed)})


def covered(name: str, allowed: Sequence[str]) -> bool:
    return any(name == one or name.startswith(one + ".") for one in allowed)


# -- what its process handed over --------------------------------------------------------------------------------------


class Handed(NamedTuple):
    """Of one run of the process."""

    programs: dict[int, list[Any]]  #: case → the programs for it, as values
    why: str  #: what went wrong; empty: nothing
    printed: str
    cannot: bool = False  #: the grader itself could not confine the process


def handed(ended: Ended, count: int) -> Handed:
    """The process's lines; one that is no line of ours ends the reading."""
    programs: dict[int, list[Any]] = {}
    for line in ended.lines:
        try:
            said = json.loads(line)
            if isinstance(said.get("case"), int) and 0 <= said["case"] < count:
                programs.setdefault(said["case"], []).append(said["program"])
            elif "cannot" in said:
                return Handed(programs, str(said["cannot"]), ended.printed, True)
            elif "forbidden" in said or "error" in said:
                return Handed(programs, one_line(str(said.get("forbidden", said.get("error")))), ended.printed)
            elif said.get("done"):
                return Handed(programs, "", ended.printed)
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            return Handed(programs, ended.why or "it writes into the grader's pipe what is no program", ended.printed)
    return Handed(programs, ended.why or "it ended before it had planned every case", ended.printed)


def judged(case: DrawnCase, task: LabTask, values: Any) -> JudgedCase:
    """The grader's own proof of what was handed over."""
    one = JudgedCase(case, task)
    if not isinstance(values, dict) or "instructions" not in values:
        one.unfit = one_line(str(values.get("why", ""))) if isinstance(values, dict) else ""
        one.unfit = one.unfit or "it hands over no program"
        return one
    try:
        program = program_of(values, case.built, machine(), case.budget)
        one.program = program
        program.verify()
        one.program = replace(program, planned_seconds=one.seconds)
    except (Unsafe, NotAProgram) as error:
        one.unproved = one_line(str(error))
    except Exception as error:  # what no proof foresees must not end the grader
        one.unproved = f"the proof breaks off: {type(error).__name__}"
    return one


# -- the criteria ------------------------------------------------------------------------------------------------------


def grade(source: bytes, name: str, task: LabTask, cases: Sequence[DrawnCase], limits: Limits) -> Grade:
    """Run a submission twice, each in a process of its own, and judge what it hands over."""
    try:
        foreign = foreign_imports(source, task.imports)
    except NotAProgram as error:
        return Grade(task.name, [Criterion("runs", 0, 100, str(error))])
    runs = [run(source, name, task, cases, limits, backwards) for backwards in (False, True)]
    first, second = runs
    found = [judged(case, task, first.programs[n][0]) for n, case in enumerate(cases) if n in first.programs]
    good = [one for one in found if one.good]
    why = next((one.why for one in runs if one.why), "")
    said = f" (it printed: {first.printed})" if why and first.printed else ""
    criteria = [
        Criterion(
            "runs", 0 if why else 10, 10, f"{why}{said}" if why else f"{counted(len(cases), 'case')} planned twice"
        ),
        Criterion("own work", 0 if foreign else 5, 5, own(foreign)),
        repeatable(first, second, cases),
        fits(found, cases),
        proved(found, len(cases)),
        bits([one for one in good if one.case.small], sum(case.small for case in cases)),
        as_good("bytes", good, len(cases), lambda one: figure(one, task)),
        as_good("seconds", good, len(cases), seconds),
        bound(good, [case for case in cases if case.network in BOUNDED]),
    ]
    slow = {str(one.case): one.seconds / fastest(one.case) if one.good else None for one in found}
    return Grade(task.name, criteria, slow)


def run(source: bytes, name: str, task: LabTask, cases: Sequence[DrawnCase], limits: Limits, backwards: bool) -> Handed:
    order = sorted(range(len(cases)), reverse=backwards)
    request = {"task": task.name, "cases": [case.values for case in cases], "order": order}
    ended = confined(
        "refimpl.studies.grade.submission", source, name, json.dumps(request).encode(), limits, 1 + backwards
    )
    found = handed(ended, len(cases))
    if found.cannot:
        raise RefimplError(found.why)
    return found


def own(foreign: Sequence[str]) -> str:
    return (
        f"it imports {', '.join(foreign)[:120]}"
        if foreign
        else "it imports no clock, no chance and no module of a paper"
    )


def repeatable(first: Handed, second: Handed, cases: Sequence[DrawnCase]) -> Criterion:
    """The same program for the same case, whatever was planned before it, and in another process."""
    for number, case in enumerate(cases):
        every = [*first.programs.get(number, []), *second.programs.get(number, [])]
        if any(one != every[0] for one in every):
            why = f"{case}: another program the second time; a module keeps something, or reads a clock or chance"
            return Criterion("repeatable", 0, 10, why)
    if not first.programs or not second.programs:
        return Criterion("repeatable", 0, 10, "no program")
    return Criterion("repeatable", 10, 10, "the same programs in another order and in another process")


def fits(found: Sequence[JudgedCase], cases: Sequence[DrawnCase]) -> Criterion:
    fitting = [one for one in found if one.program]
    misfit = next((f"; {one.case}: {one.unfit}" for one in found if not one.program), "")
    return Criterion("fits", 25 * len(fitting) // len(cases), 25, f"{len(fitting)} of {len(cases)}{misfit}"[:240])


def proved(found: Sequence[JudgedCase], count: int) -> Criterion:
    """One program without a proof is one too many."""
    wrong = next((one for one in found if one.unproved), None)
    if wrong:
        return Criterion("proved", 0, 15, f"{wrong.case}: {wrong.unproved}"[:240])
    good = sum(one.good for one in found)
    return Criterion("proved", 15 * good // count, 15, f"{good} of {count}, by the grader's own proof")


def bits(small: Sequence[JudgedCase], count: int) -> Criterion:
    """Trained on the CPU, the weights have the baseline's bits."""
    for one in small:
        assert one.program
        if trained(one.program) != baseline_bits(one.case, tuple(sorted(one.program.algorithms.items()))):
            return Criterion("bits", 0, 10, f"{one.case}: trained, its weights are not the baseline's")
    if not small:
        return Criterion("bits", 0, 10, "no small network fits")
    names = " and ".join(str(one.case) for one in small)
    return Criterion("bits", 10 * len(small) // count, 10, f"{names} trained: the baseline's to the bit")


def trained(program: Program) -> dict[str, bytes]:
    """Every weight and state after a few iterations, on batches that depend on the shapes alone."""
    from refimpl.backend import Trainer

    network, numbers = program.network, np.random.default_rng(0)
    with Trainer(program, backend="cpu", rate=0.01) as trainer:
        for _ in range(STEPS):
            images = numbers.standard_normal(network.data[0].shape).astype(np.float32)
            trainer.step(images, numbers.integers(0, 10, network.batch).astype(np.int32))
        return {name: value.tobytes() for name, value in trainer.state().items()}


@lru_cache(maxsize=16)
def baseline_bits(case: DrawnCase, algorithms: tuple[tuple[str, str], ...]) -> dict[str, bytes]:
    """The same with memory enough, and the same algorithms."""
    return trained(plan(case.built, BASE, machine().with_algorithms(dict(algorithms)), UNLIMITED >> 20))


Compared = tuple[float, float | None]  #: the submission's figure, and the paper's if it fits


def as_good(name: str, good: Sequence[JudgedCase], count: int, of: Callable[[JudgedCase], Compared]) -> Criterion:
    """In how many cases the submission is as good as the paper's module, or fits where that does not."""
    if not good:
        return Criterion(name, 0, 10, "no program")
    pairs = [of(one) for one in good]
    close = sum(theirs is None or ours <= CLOSE * theirs for ours, theirs in pairs)
    ratios = [ours / theirs for ours, theirs in pairs if theirs]
    mean = f"; {sum(ratios) / len(ratios):.2f} × on average" if ratios else ""
    paper = good[0].task.paper_name
    why = f"{close} of {count} at most {CLOSE:g} × those of {paper}, or where that does not fit{mean}"
    return Criterion(name, 10 * close // count, 10, why)


def seconds(one: JudgedCase) -> Compared:
    """Of an iteration, by the machine's model."""
    return one.seconds, one.paper.planned_seconds if one.paper else None


def figure(one: JudgedCase, task: LabTask) -> Compared:
    """The lab's bytes."""
    assert one.program
    return bytes_of(one.program, task), bytes_of(one.paper, task) if one.paper else None


def bytes_of(program: Program, task: LabTask) -> int:
    if task.figure == "peak":
        return program.arena_bytes
    counts = program.counts
    return counts.offloaded_bytes + counts.evicted_bytes + counts.prefetched_bytes + counts.on_demand_bytes


def bound(good: Sequence[JudgedCase], cases: Sequence[DrawnCase]) -> Criterion:
    """The distance from the seconds that no policy can beat: nothing above it 5 points, twice as many none."""
    near = [one for one in good if one.case in cases]
    if not near:
        return Criterion("bound", 0, 5, "no program of a network whose bound takes a moment")
    try:
        floors = [least_seconds(one.case) for one in near]
    except NoSolver as error:
        return Criterion("bound", 0, 0, str(error))
    beyond = [max(0.0, one.seconds / floor - 1) for one, floor in zip(near, floors, strict=True)]
    points = 5 * sum(max(0.0, 1 - one) for one in beyond) / len(cases)
    names = ", ".join(str(one.case) for one in near)
    why = f"{sum(beyond) / len(beyond):.0%} above the least seconds that any policy needs ({names})"
    return Criterion("bound", round(points), 5, why)


@lru_cache(maxsize=64)
def least_seconds(case: DrawnCase) -> float:
    found = lower_bound(case.built, machine(), case.budget)
    assert found  # a program fits
    return found.seconds


@lru_cache(maxsize=64)
def fastest(case: DrawnCase) -> float:
    """Seconds of the baseline with memory enough."""
    return plan(case.built, BASE, machine(), UNLIMITED >> 20).planned_seconds
