"""Faults planted on purpose, one at a time, and which tests catch them.

    python -m tests.faults.plant                     every fault, in copies of this tree
    python -m tests.faults.plant --only softmax      those whose room, file or words have it
    python -m tests.faults.plant --new               those that the table does not have yet
    python -m tests.faults.plant --against TREE      another tree and its own tests too
    python -m tests.faults.plant --write             the table into tests/planted_faults.md

A test suite is worth what it catches.  Every room of the project has a file of faults beside this one: a wait left out,
a loop that ends one too early, the wrong producer, a checkpoint that is not checked.  For each the script replaces
`old` by `new` in a copy of the tree, runs the tests named, and stops at the first that fails.  A fault that no test
catches means that some capability has no test.  Each core has a copy of its own.  The test that the table names runs
first, and the others only if it does not fail.

A fault counts as caught if that test passes again without it.

`old` occurs once in `file`.  Where the code has moved, the one other file that has it once is taken, and the table says
which.  Of the tests named, those that a tree does not have are left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults import (
    backend,
    cli,
    course,
    kernels,
    machine,
    memory,
    names_and_fit,
    network,
    papers,
    planner,
    report,
    studies,
    torch_room,
)
from tests.faults.copies import ROOT, Copies, Copy, short
from tests.faults.fault import Fault

TABLE = ROOT / "tests" / "planted_faults.md"
PATIENCE = 600  #: seconds for the tests of one fault
ROOMS = (
    kernels,
    network,
    memory,
    machine,
    planner,
    papers,
    backend,
    report,
    names_and_fit,
    studies,
    cli,
    torch_room,
    course,
)
FAULTS: tuple[Fault, ...] = tuple(fault for room in ROOMS for fault in room.FAULTS)


# -- planting ----------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What became of a fault in one tree."""

    state: str  #: "caught", or why not
    by: str = ""  #: the test that failed
    options: tuple[str, ...] = ()  #: of pytest, that it ran with
    seconds: float = 0.0

    @property
    def cell(self) -> str:
        return f"`{short(self.by)}`" if self.state == "caught" else f"**{self.state}**"


def place_of(fault: Fault, copy: Copy) -> tuple[Path, str] | None:
    """Where the fault goes, and the file's text with it: the file named, or the only other one that has `old`."""
    named = copy.place / fault.file
    for old, new in ((fault.old, fault.new), *fault.or_else):
        there = [path for path, text in copy.sources.items() if text.count(old) == 1]
        if named in there or len(there) == 1:
            path = named if named in there else there[0]
            return path, copy.sources[path].replace(old, new)
    return None


def plant(before: Mapping[str, str], copy: Copy, fault: Fault) -> Outcome:
    """Plant a fault, run its tests until one fails, and take it out again.

    Args:
        before: the test that caught each fault the last time, by the fault's words.
    """
    found = place_of(fault, copy)
    if found is None:
        return Outcome("not planted: its text is not there once")
    began = time.monotonic()
    words = fault.tests.split()
    tests = [word for word in words if word.startswith("tests/") and copy.has(word)]
    options = [word for word in words if not word.startswith("tests/")]
    state, by = "none of its tests is there", ""
    with copy.with_text(*found):
        if first := caught_before(before.get(fault.what, ""), copy, tests):
            state, by = first_failure(copy, [first, *options])
        if state != "caught" and tests:
            state, by = first_failure(copy, [*tests, *options, *([] if fault.slow else ["-m", "not slow"])])
    one = Outcome(state, by, tuple(options), time.monotonic() - began)
    print(f"{fault.room}: {fault.what}: {one.state} {short(one.by)} ({one.seconds:.0f} s)", flush=True)
    return one


def caught_before(name: str, copy: Copy, tests: list[str]) -> str | None:
    """The test that the table names, if its file is still among those of the fault."""
    stem, _, name = name.partition("::")
    named = [copy.place / test.partition("::")[0] for test in tests]
    files = {file for path in named for file in ([path] if path.is_file() else path.rglob("test_*.py"))}
    found = [file for file in files if file.stem == stem]
    return f"{found[0].relative_to(copy.place)}::{name}" if len(found) == 1 and name else None


def first_failure(copy: Copy, arguments: list[str]) -> tuple[str, str]:
    """Run tests until one fails: "caught" and its name, or what happened instead."""
    run = copy.run(["-x", *arguments], PATIENCE)
    if run.status is None:
        return f"no test failed within {PATIENCE} s", ""
    if run.status == 1 and run.failed:
        return "caught", run.failed[0]
    return ("not caught" if run.status == 0 else f"pytest ended with {run.status}"), ""


def confirm(copy: Copy, outcomes: list[Outcome]) -> None:
    """Without any fault, the tests that failed pass.  A fault whose test fails without it, too, is not caught."""
    caught = [one for one in outcomes if one.state == "caught"]
    for options in {one.options for one in caught}:
        alike = [one for one in caught if one.options == options]
        run = copy.run([*sorted({one.by for one in alike}), *options], PATIENCE)
        for one in alike:
            if run.status not in (0, 1):
                one.state = f"not caught: without the fault, pytest ended with {run.status}"
            elif one.by in run.failed:
                one.state = "not caught: without the fault, too, the test fails"


def outcomes_in(root: Path, folder: Path, faults: list[Fault], workers: int, before: dict[str, str]) -> list[Outcome]:
    """What becomes of each fault in a tree, several side by side."""
    copies = Copies(root, folder, workers)
    outcomes = copies.map(partial(plant, before), faults)
    copies.map(confirm, [outcomes[i::workers] for i in range(workers)])
    return outcomes


# -- the table ---------------------------------------------------------------------------------------------------------


def suite(root: Path) -> str:
    """The name of a tree's suite in the table: of another tree, the commit that is checked out there."""
    if root == ROOT:
        return "this suite"
    done = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return f"the suite at {done.stdout.strip() or root.name}"


def written() -> dict[str, dict[str, str]]:
    """The table as it is: for each suite the cell of each fault."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    titles = [title.removeprefix("caught by (").removesuffix(")") for title in head[2:]]
    return {title: {row[1]: row[i] for row in rows if row[i]} for i, title in enumerate(titles, 2)}


def table(columns: dict[str, dict[str, str]]) -> Iterator[str]:
    """The page, line by line."""
    yield "# Planted faults"
    yield ""
    yield "Written by `make faults`; a column of another tree by `make faults AGAINST=TREE`, and kept until that is run"
    yield "again. Each row is one fault, planted alone in a copy of the tree, and the first test that failed."
    yield "The files of `tests/faults/` say what was replaced by what."
    yield ""
    for title, cells in columns.items():
        planted = [cells[fault.what] for fault in FAULTS if fault.what in cells]
        caught = sum(cell.startswith("`") for cell in planted)
        yield f"- {title}: {caught} of {len(planted)} caught"
    yield ""
    yield "| room | fault | " + " | ".join(f"caught by ({title})" for title in columns) + " |"
    yield "| --- " * (2 + len(columns)) + "|"
    for fault in FAULTS:
        if any(row := [column.get(fault.what, "") for column in columns.values()]):
            yield f"| {fault.room} | {fault.what} | {' | '.join(row)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="faults whose room, file or words have it")
    parser.add_argument("--new", action="store_true", help="faults that the table does not have yet")
    parser.add_argument("--against", type=Path, metavar="TREE", help="plant them in this tree too, for its own tests")
    parser.add_argument("--write", action="store_true", help=f"write the table into {TABLE.relative_to(ROOT)}")
    parser.add_argument("--check", action="store_true", help="only say which faults could not be planted")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="copies side by side")
    options = parser.parse_args()
    columns, missed = written(), []
    known = columns[suite(ROOT)] if options.new else {}
    chosen = [fault for fault in FAULTS if options.only in f"{fault.room} {fault.file} {fault.what}"]
    chosen = [fault for fault in chosen if fault.what not in known]
    for root in [ROOT, *([options.against.resolve()] if options.against else [])]:
        cells = columns.setdefault(suite(root), {})
        with tempfile.TemporaryDirectory(prefix="refimpl-faults-") as folder:
            if options.check:
                copy = Copy(root, Path(folder) / "0")
                missed += [f"{fault.file}: {fault.what}" for fault in chosen if place_of(fault, copy) is None]
                continue
            before = {what: cell.strip("`") for what, cell in cells.items()}
            outcomes = outcomes_in(root, Path(folder), chosen, options.workers, before)
        missed += [fault.what for fault, one in zip(chosen, outcomes, strict=True) if one.state != "caught"]
        cells |= {fault.what: one.cell for fault, one in zip(chosen, outcomes, strict=True)}
    if options.write:
        TABLE.write_text("\n".join(table(columns)) + "\n", "utf-8")
    print(f"{len(chosen)} faults" + "".join(f"\n  not {'planted' if options.check else 'caught'}: {w}" for w in missed))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
