"""Random faults, one at a time, and which tests catch them: a measure of the suite that its author cannot choose.

    python -m tests.faults.mutants --seed 7 --count 140        (make mutants SEED=7)
    python -m tests.faults.mutants --seed 7 --only planner     of the files whose path has the word
    python -m tests.faults.mutants --seed 7 --list             draw them, and run nothing

A mutant is one small change of one line of `kernels/` or `refimpl/`: another comparison, operator or number, a
condition turned round, a statement left out, two arguments exchanged.  Lines are drawn first, so that a line full of
numbers is no likelier than any other; lines with a planted fault are left out, since a test was written for each.

The fast tests of the mutant's room run first, those of the file's own test first of all, then the slow ones of the
room, then the fast tests of all rooms, and then the slow ones.  A mutant is caught by a test that fails, takes too long
or ends the process, and that passes without the mutant.  No mutant is made of what cannot change a result: annotations,
decorators, assertions, the words of messages, imports for annotations, and how much a cache keeps.  Others that change
nothing a user can see, such as a run before a measurement, do count: read the list of those not caught.

Where `python -m tests.faults.reached` has noted which tests run which lines, only the tests that run the mutant's line
are tried: the others cannot see it.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.copies import PACKAGES, ROOT, Copies, Copy, short
from tests.faults.plant import FAULTS
from tests.faults.reached import Reached, path_of

LIMITED = ("--limit", "60")  #: processor seconds of a test
PATIENCE = 7200  #: seconds of a run of pytest


@dataclass(frozen=True)
class Mutant:
    """In `file`, `new` takes the place of the characters from `start` to `end`."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    code: str  #: the line as it is

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}:{self.line}: {old[:60]} → {new[:60] or 'nothing'}   in: {self.code}"


# -- what can be changed -----------------------------------------------------------------------------------------------

COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip
OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SYMMETRIC = ("max", "min", "maximum", "minimum")  #: functions, and NumPy's, whose arguments may be exchanged


class Source:
    """A file's text and the places where it can be changed."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self.lines = text.splitlines(keepends=True)
        self._begins = [0]
        for line in self.lines:
            self._begins.append(self._begins[-1] + len(line))
        self.mutants = [one for node in code(ast.parse(text)) for one in self._of(node)]

    def _at(self, line: int, column: int) -> int:
        """The character at a line and a column of bytes, as the parser counts them."""
        return self._begins[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def _span(self, node: ast.AST) -> tuple[int, int]:
        where: ast.expr = node  # type: ignore[assignment]
        assert where.end_lineno is not None and where.end_col_offset is not None
        return self._at(where.lineno, where.col_offset), self._at(where.end_lineno, where.end_col_offset)

    def _made(self, start: int, end: int, new: str) -> Mutant:
        line = self.text.count("\n", 0, start) + 1
        return Mutant(self.file, line, start, end, self.text[start:end], new, self.lines[line - 1].strip())

    def _between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[Mutant]:
        """The operator between two operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        if self.text.count(old, start, end) == 1:
            at = self.text.index(old, start, end)
            yield self._made(at, at + len(old), new)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            for left, right, operator in zip([node.left, *node.comparators], node.comparators, node.ops, strict=False):
                yield from self._between(left, right, *COMPARISONS[type(operator)])
        elif isinstance(node, ast.BoolOp):
            first, second, *_ = node.values
            yield from self._between(first, second, *OPERATORS[type(node.op)])
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield from self._between(node.left, node.right, *OPERATORS[type(node.op)])
        elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            old, new = OPERATORS[type(node.op)]
            yield from self._between(node.target, node.value, f"{old}=", f"{new}=")
            yield self._made(*self._span(node), "pass")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self._made(self._span(node)[0], self._span(node.operand)[0], "")
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
            start, end = self._span(node.test)
            yield self._made(start, end, f"not ({self.text[start:end]})")
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            yield self._made(*self._span(node), repr(another(node.value)))
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
                yield self._made(*self._span(node.func), FUNCTIONS[node.func.id])
            symmetric = ast.unparse(node.func).split(".")[-1] in SYMMETRIC
            if len(node.args) > 1 and not symmetric and not any(isinstance(one, ast.Starred) for one in node.args[:2]):
                yield self._exchanged(*node.args[:2])
        elif isinstance(node, (ast.Raise, ast.Break, ast.Continue)) or removable(node):
            yield self._made(*self._span(node), "pass")

    def _exchanged(self, first: ast.expr, second: ast.expr) -> Mutant:
        (start, middle), (again, end) = self._span(first), self._span(second)
        new = self.text[again:end] + self.text[middle:again] + self.text[start:middle]
        return self._made(start, end, new)


def another(value: float) -> float:
    """A constant in place of this one: the other truth, the next number, or twice as much."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else 2 * value or 1.0


def removable(node: ast.AST) -> bool:
    """Whether it is a statement without which the names that others read are still there."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def code(node: ast.AST) -> Iterator[ast.AST]:
    """What computes: no annotations nor imports for them, no decorators, no texts of messages, no assertions."""
    if isinstance(node, (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, ast.keyword) and node.arg in ("strict", "maxsize"):  # zip checks; a cache computes again
        return
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from code(child)


def planted(file: str, text: str) -> set[int]:
    """The lines of a file that have a planted fault."""
    found: set[int] = set()
    for fault in FAULTS:
        if fault.file == file and fault.old in text:
            first = text.count("\n", 0, text.index(fault.old)) + 1
            found |= {*range(first, first + fault.old.count("\n") + 1)}
    return found


def drawn(root: Path, seed: int, count: int, only: str = "") -> list[Mutant]:
    """Mutants on different lines: a line is drawn first, then what to change in it."""
    lines: dict[tuple[str, int], list[Mutant]] = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            file, text = path.relative_to(root).as_posix(), path.read_text("utf-8")
            taken = planted(file, text)
            for one in Source(file, text).mutants if only in file else ():
                if one.line not in taken and one.new != one.old:
                    lines.setdefault((one.file, one.line), []).append(one)
    chance = random.Random(seed)
    return [chance.choice(lines[where]) for where in chance.sample(sorted(lines), min(count, len(lines)))]


# -- which tests -------------------------------------------------------------------------------------------------------


def room_tests(file: str, has: Callable[[str], bool]) -> list[str]:
    """A file's own tests, then those of its room."""
    inside, stem = Path("tests", file).parent, Path(file).stem
    own = [f"{inside}/test_{stem}.py", f"{inside}/test_{inside.name}.py"]
    while not has(str(inside)):
        inside = inside.parent
    room = Path(*inside.parts[: 2 if file.startswith("kernels") else 3])
    if room == Path("tests/refimpl"):  # a file of no room
        return [path for path in (f"{room}/test_{stem}.py", f"{room}/test_public_names.py") if has(path)]
    return [*dict.fromkeys(path for path in (*own, str(inside), str(room)) if has(path))]


@dataclass
class Outcome:
    mutant: Mutant
    stage: str = ""  #: whose tests caught it
    by: str = ""
    seconds: float = 0.0


#: Which tests run one after another: whose, with what beside the room's, and the marks.
STAGES = (
    ("fast tests of the room", False, "not slow"),
    ("slow tests of the room", False, "slow"),
    ("other fast tests", True, "not slow"),
    ("slow tests", True, "slow"),
)


def stage_tests(everything: bool, room: list[str], reached: list[str]) -> list[str]:
    """What pytest is told to run: the room or all rooms; of tests that run a line, those of the room or all others."""
    if not reached:
        return ["tests"] if everything else room
    return [test for test in reached if path_of(test).startswith(tuple(room)) != everything]


def tried(stages: int, reached: Reached, anyway: set[str], copy: Copy, mutant: Mutant) -> Outcome:
    """Run the tests of the first stages on a mutant, until one fails.

    Args:
        stages: how many.
        reached: which tests run which lines; empty: not known.
        anyway: the tests that have failed without a mutant, too: they are left out from then on.
    """
    path, one = copy.place / mutant.file, Outcome(mutant)
    text = copy.sources[path]
    spoilt = text[: mutant.start] + mutant.new + text[mutant.end :]
    room, of_line = room_tests(mutant.file, copy.has), reached.tests(mutant.file, mutant.line)
    for stage, everything, marks in STAGES[:stages]:
        tests = stage_tests(everything, room, of_line)
        while tests and not one.stage:
            left_out = [f"--deselect={test}" for test in sorted(anyway)]
            these = [*tests, "-x", "-m", marks, *LIMITED, *left_out]
            with copy.with_text(path, spoilt):
                run = copy.run(these, PATIENCE)
            one.seconds += run.seconds
            if run.status in (0, 5):  # 5: there are no such tests
                break
            test = run.failed[0] if run.failed else ""
            if not test and copy.run(these, PATIENCE).status not in (0, 5):  # no test was named: pytest itself ended
                sys.exit(f"pytest fails without a mutant, too, and names no test: {' '.join(these)[:2000]}")
            if test and test not in anyway:
                again = copy.run([test, *LIMITED], PATIENCE)
                one.seconds += again.seconds
                if again.status != 0:
                    anyway.add(test)
                    continue
            one.stage, one.by = stage, short(test) or f"pytest ended with {run.status}"
    print(f"{one.stage or 'NOT CAUGHT'} {one.by} ({one.seconds:.0f} s): {mutant}", flush=True)
    return one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--count", type=int, default=140, metavar="N")
    parser.add_argument("--only", default="", metavar="WORD", help="files whose path has it")
    parser.add_argument(
        "--stages", type=int, default=len(STAGES), metavar="N", help="1: the fast tests of the room alone"
    )
    parser.add_argument("--list", action="store_true", help="draw them, and run nothing")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="copies side by side")
    options = parser.parse_args()
    mutants = drawn(ROOT, options.seed, options.count, options.only)
    if not mutants:
        parser.error(f"no file that mutants are drawn of has {options.only!r} in its path")
    if options.list:
        print("\n".join(map(str, mutants)))
        return 0
    with tempfile.TemporaryDirectory(prefix="refimpl-mutants-") as folder:
        anyway: set[str] = set()
        work = partial(tried, options.stages, Reached.kept(), anyway)
        outcomes = Copies(ROOT, Path(folder), options.workers).map(work, mutants)
    caught = Counter(one.stage for one in outcomes)
    print(
        f"{len(outcomes)} mutants of seed {options.seed}, {sum(one.seconds for one in outcomes):.0f} processor seconds"
    )
    for stage, _, _ in STAGES[: options.stages]:
        print(f"  caught by {stage}: {caught[stage]} ({caught[stage] / len(outcomes):.0%})")
    for test in sorted(anyway):
        print(f"  left out, since it fails without a mutant, too: {test}")
    missed = [one.mutant for one in outcomes if not one.stage]
    print(f"  not caught: {len(missed)} ({len(missed) / len(outcomes):.0%})")
    for mutant in missed:
        print(f"    {mutant}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
