"""Lab A2: a script with too few waits and too many.  The submission is read, and never executed.

The script is that of `refimpl export`.  Between its launches and copies the student moves the records and waits, and
nothing else.  The grader puts them into its own programs, of batches drawn from a seed, and proves these.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

from refimpl.backend.no_waits import uses
from refimpl.backend.script import identifier, written_out
from refimpl.memory import UNLIMITED
from refimpl.names import presets
from refimpl.planner import Copy, Launch, Program, Record, Wait, plan
from refimpl.planner.instructions import Instruction
from refimpl.planner.verify import Unsafe
from refimpl.studies.grade.criteria import Criterion, Grade, baseline_bits, fastest, trained
from refimpl.studies.grade.drawn_cases import DrawnCase, machine
from refimpl.studies.grade.source_tree import parsed
from refimpl.text import counted, one_line

NETWORK, BATCH = "lenet", 32  #: of the script; the hidden cases have other batches
DRAWN, LEAST, MOST = 2, 16, 96  #: batches: how many, from and to
FUNCTION = "train_step"
EACH = 5  #: points that a wait too many costs


class NotTheScript(ValueError):
    """The submission is not the lab's script: one line."""


@dataclass(frozen=True)
class Mark:
    """A record or a wait of a script."""

    after: int  #: launches and copies before it
    kind: str  #: record or wait
    event: str
    stream: str


# -- reading -----------------------------------------------------------------------------------------------------------


def read(source: bytes) -> tuple[list[str], list[Mark]]:
    """The statements of `train_step` but for its records and waits, and these.

    Raises:
        NotTheScript: it is no Python, or has no such function.
    """
    tree = parsed(source, NotTheScript)
    body = next((node.body for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == FUNCTION), None)
    if body is None:
        raise NotTheScript(f"the file has no function {FUNCTION}")
    plain: list[str] = []
    marks: list[Mark] = []
    works = 0
    for node in body:
        if mark := mark_of(node, works):
            marks.append(mark)
            continue
        works += isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        plain.append(ast.unparse(node))
    return plain, marks


def mark_of(node: ast.stmt, works: int) -> Mark | None:
    """`event["name"].wait(stream)`, if it is that."""
    match node:
        case ast.Expr(
            ast.Call(
                ast.Attribute(ast.Subscript(ast.Name("event"), ast.Constant(str(name))), "record" | "wait" as kind),
                [ast.Name(stream)],
                [],
            )
        ):
            return Mark(works, kind, name, stream)
    return None


# -- programs ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def planned(case: DrawnCase) -> Program:
    """vDNN's own program, with a join after every layer that moves something."""
    return plan(case.built, presets.vdnn_all.setup, machine(), case.budget)


def script(program: Program) -> str:
    return written_out(program, "refimpl export lenet --policy vdnn-all")


def with_marks(program: Program, marks: Sequence[Mark]) -> Program:
    """The program with these records and waits, and none of its own."""
    streams = {identifier(name): number for number, name in enumerate(program.streams)}
    made: list[Instruction] = []
    recorded: dict[str, int] = {}
    waiting = list(marks)
    works = step = 0

    def place() -> None:
        while waiting and waiting[0].after <= works:
            mark = waiting.pop(0)
            if mark.stream not in streams:
                raise NotTheScript(f"there is no stream {mark.stream[:40]!r}; the script has {', '.join(streams)}")
            if mark.kind == "record":
                recorded[mark.event] = sum(isinstance(it, Record) for it in made)
                made.append(Record(step, streams[mark.stream], recorded[mark.event]))
            elif mark.event in recorded:
                made.append(Wait(step, streams[mark.stream], recorded[mark.event]))
            else:
                raise NotTheScript(f"{mark.stream} waits for {mark.event[:60]!r}, which nothing has recorded before")

    place()
    for it in program.instructions:
        if not isinstance(it, Record | Wait):
            made.append(it)
        if isinstance(it, Launch | Copy):
            works, step = works + 1, it.step
            place()
    return replace(program, instructions=made)


def waits(marks: Sequence[Mark]) -> int:
    return sum(mark.kind == "wait" for mark in marks)


def unsafe(case: DrawnCase, marks: Sequence[Mark]) -> str:
    """What is wrong with the marks in a case; empty: they are proved."""
    try:
        with_marks(planned(case), marks).verify()
    except (Unsafe, NotTheScript) as error:
        return one_line(str(error))
    return ""


def fewest(cases: Sequence[DrawnCase]) -> list[Mark]:
    """The least number of waits with which every case is safe.

    A wait orders all earlier work of one stream before all later work of another.  Two accesses that clash need one at
    a place between them, across the end of an iteration, too, since it is repeated.  So this is the task of stabbing
    arcs of a circle with the fewest points.  There are two streams, so no chain of waits does what no single one does.
    """
    arcs: dict[tuple[str, str], set[tuple[int, int]]] = {}
    length = 0
    for program in map(planned, cases):
        works = [(it, [*uses(it)]) for it in program.instructions if isinstance(it, Launch | Copy)]
        streams, length = [*map(identifier, program.streams)], len(works)
        for (first, (one, its)), (second, (other, theirs)) in combinations(enumerate(works), 2):
            if one.stream != other.stream and any(a.clashes(b) for a in its for b in theirs):
                ends = streams[one.stream], streams[other.stream]
                arcs.setdefault(ends, set()).add((first, second))
                arcs.setdefault(ends[::-1], set()).add((second, first + length))
    marks: list[Mark] = []
    for (awaited, waiting), found in sorted(arcs.items()):
        for place in stabbed(found, length):
            event = f"{awaited} {place}"
            marks += [Mark(place, "record", event, awaited), Mark(place, "wait", event, waiting)]
    return sorted(marks, key=lambda mark: mark.after)


def stabbed(arcs: Collection[tuple[int, int]], length: int) -> list[int]:
    """The fewest points with one in every arc (start, end] of a circle: for each first point, the earliest ends."""

    def points(first: int) -> Iterator[int]:
        yield first
        rest = [(start, end) if start >= first else (start + length, end + length) for start, end in arcs]
        last = first
        for start, end in sorted(rest, key=lambda arc: arc[1]):
            if not (start < last <= end or start < first + length <= end):
                last = end
                yield end % length

    return min(([*points(end % length)] for _, end in sorted(arcs)), key=len)


# -- the grade ---------------------------------------------------------------------------------------------------------


def script_cases(seed: int) -> list[DrawnCase]:
    """The script's own batch, and drawn ones."""
    drawn = random.Random(f"A2 {seed}").sample(range(LEAST, MOST), DRAWN)
    return [DrawnCase(NETWORK, batch, UNLIMITED >> 20, True) for batch in (BATCH, *drawn)]


def grade_script(source: bytes, cases: Sequence[DrawnCase]) -> Grade:
    """Judge a repaired script; nothing of it is executed."""
    try:
        plain, marks = read(source)
        expected, _ = read(script(planned(cases[0])).encode())
        if plain != expected:
            changed = next((one for one, other in zip(plain, expected, strict=False) if one != other), "its length")
            raise NotTheScript(f"only records and waits may change, and this did: {changed[:120]}")
    except NotTheScript as error:
        return Grade("A2", [Criterion("runs", 0, 100, one_line(str(error)))])
    wrong = next((f"{case}: {why}" for case in cases if (why := unsafe(case, marks))), "")
    runs = Criterion("runs", 10, 10, "the script, with records and waits of its own")
    if wrong:
        rest = [Criterion("proved", 0, 50, wrong[:300]), Criterion("bits", 0, 10, "no proof")]
        return Grade("A2", [runs, *rest, Criterion("fewest", 0, 30, "no proof")])
    programs = [with_marks(planned(case), marks) for case in cases]
    least, count = waits(fewest(cases)), waits(marks)
    same = all(trained(one) == its_bits(case, one) for case, one in zip(cases, programs, strict=True))
    criteria = [
        runs,
        Criterion("proved", 50, 50, f"{counted(len(cases), 'batch')}, by the grader's own proof"),
        Criterion("bits", 10 * same, 10, "trained: the baseline's to the bit" if same else "not the baseline's"),
        Criterion("fewest", max(0, min(30, 30 - EACH * (count - least))), 30, f"{count} waits; {least} are enough"),
    ]
    slow = [one.simulate().seconds / fastest(case) for case, one in zip(cases, programs, strict=True)]
    return Grade("A2", criteria, {str(case): times for case, times in zip(cases, slow, strict=True)})


def its_bits(case: DrawnCase, program: Program) -> dict[str, bytes]:
    return baseline_bits(case, tuple(sorted(program.algorithms.items())))
