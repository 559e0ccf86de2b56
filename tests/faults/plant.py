"""Faults planted on purpose, one at a time, and which tests catch them.

    python -m tests.faults.plant                     every fault, in copies of this tree
    python -m tests.faults.plant --only softmax      those whose room, file or words have it
    python -m tests.faults.plant --new               those that the table does not have yet
    python -m tests.faults.plant --write             the table into tests/planted_faults.md

A test suite is worth what it catches.  Every room of the project has a file of faults beside this one: a wait left out,
a loop that ends one too early, the wrong producer, a checkpoint that is not checked.  For each the script replaces
`old` by `new` in a copy of the tree, runs the tests named, and stops at the first that fails.  A fault that no test
catches means that some capability has no test.  Each core has a copy of its own.  The test that the table names runs
first, and the others only if it does not fail.  A fault counts as caught if that test passes again without it.

The faults are chosen.  Of the papers' mechanisms, the combined search, the planner, its proof and the allocators all
are here: those that the executor and `verify` are to catch.  Of every other room there is one fault a mechanism: of
the kernels one of each way to be wrong (a border, a sum, a sign, a mask, a barrier, a race, a stale cache), not one a
kernel.  Two faults that the same test catches in the same way are one.

`old` occurs once in `file`.  Where the code has moved, the one other file that has it once is taken.
"""

from __future__ import annotations

import argparse
import os
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
    there = [path for path, text in copy.sources.items() if text.count(fault.old) == 1]
    if named not in there and len(there) != 1:
        return None
    path = named if named in there else there[0]
    return path, copy.sources[path].replace(fault.old, fault.new)


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


# -- the table ---------------------------------------------------------------------------------------------------------


def written() -> dict[str, str]:
    """The table as it is: what caught each fault."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line.startswith("|")][2:]
    rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return {what: cell for _, what, cell in rows}


def table(cells: dict[str, str]) -> Iterator[str]:
    """The page, line by line."""
    caught = sum(cell.startswith("`") for cell in cells.values())
    yield "# Planted faults"
    yield ""
    yield "Written by `make faults`. Each row is one fault, planted alone in a copy of the tree, and the first test"
    yield "that failed. The files of `tests/faults/` say what was replaced by what; `plant.py` there says how the"
    yield "faults were chosen."
    yield f"{caught} of {len(cells)} are caught."
    yield ""
    yield "| room | fault | caught by |"
    yield "| --- | --- | --- |"
    for fault in FAULTS:
        if fault.what in cells:
            yield f"| {fault.room} | {fault.what} | {cells[fault.what]} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="faults whose room, file or words have it")
    parser.add_argument("--new", action="store_true", help="faults that the table does not have yet")
    parser.add_argument("--write", action="store_true", help=f"write the table into {TABLE.relative_to(ROOT)}")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="copies side by side")
    options = parser.parse_args()
    known = {fault.what: cell for fault in FAULTS if (cell := written().get(fault.what))}
    chosen = [fault for fault in FAULTS if options.only in f"{fault.room} {fault.file} {fault.what}"]
    chosen = [fault for fault in chosen if not options.new or fault.what not in known]
    before = {what: cell.strip("`") for what, cell in known.items()}
    with tempfile.TemporaryDirectory(prefix="refimpl-faults-") as folder:
        copies = Copies(ROOT, Path(folder), options.workers)
        outcomes = copies.map(partial(plant, before), chosen)
        copies.map(confirm, [outcomes[i :: options.workers] for i in range(options.workers)])
    missed = [fault.what for fault, one in zip(chosen, outcomes, strict=True) if one.state != "caught"]
    known |= {fault.what: one.cell for fault, one in zip(chosen, outcomes, strict=True)}
    if options.write:
        TABLE.write_text("\n".join(table(known)) + "\n", "utf-8")
    print(f"{len(chosen)} faults" + "".join(f"\n  not caught: {what}" for what in missed))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
