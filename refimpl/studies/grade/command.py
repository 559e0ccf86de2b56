"""`refimpl grade`: a student's file, judged criterion by criterion."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from refimpl.cli import shared_options
from refimpl.cli.parser import DONE, WRONG, Fail, Parser, pick, whole
from refimpl.cli.terminal import print_json, progress, say, show_table
from refimpl.report.tables import Column, Table, plain
from refimpl.studies.grade import contest
from refimpl.studies.grade.confined import Limits
from refimpl.studies.grade.criteria import PASS_MARK, Criterion, Grade, grade
from refimpl.studies.grade.drawn_cases import cases
from refimpl.studies.grade.every_lab import LABS, grade_lab
from refimpl.studies.grade.lab_tasks import TASKS
from refimpl.studies.grade.source_tree import MOST_SOURCE
from refimpl.text import contents, counted

OPEN_SEED = 1  #: of the cases that everybody knows


def add(parser: Parser) -> None:
    parser.describe(
        "Grade a file for a lab of the course.  The file is executed in a process of its own with little "
        "time, memory and reach; it plans networks within budgets that are drawn from a seed, and what it hands over "
        "is proved, trained and compared here.  Without --seed the cases are those that everybody knows.  Exit status: "
        f"0 with {PASS_MARK} of 100 points or more, 1 with fewer, 2 wrong use.  docs/course.md says what counts.",
        [
            "refimpl grade my_modules.py --task A3",
            "refimpl grade my_modules.py --task A3 --seed @/root/seed --json",
            "refimpl grade --contest submissions/ --seed @/root/seed",
        ],
    )  # fmt: skip
    parser.add_argument("file", metavar="FILE", nargs="?", help="the submission")
    parser.add_argument("--task", metavar="LAB", help=f"the lab: {', '.join(LABS)}")
    parser.add_argument("--contest", metavar="DIR", help="rank all .py files of a folder by lab A6")
    parser.add_argument(
        "--seed", metavar="N", help="of the hidden cases; @FILE reads it from a file, which the list of processes hides"
    )
    parser.add_argument(
        "--seconds", type=whole(1, 3600), metavar="S", default=Limits.processor,
        help=f"of the processor that the submission may take for all cases (default: {Limits.processor})",
    )  # fmt: skip
    shared_options.json(parser)


def run(options: argparse.Namespace) -> int:
    seed = OPEN_SEED if options.seed is None else seed_of(options.seed)
    limits = replace(Limits(), processor=options.seconds, wall=10.0 + 3 * options.seconds)
    if options.contest is not None:
        if options.file or options.task:
            raise Fail("--contest ranks a folder; leave out FILE and --task")
        return contest_of(options, seed, limits)
    if not options.file or not options.task:
        raise Fail("give a file and its lab, as in: refimpl grade my_modules.py --task A3")
    lab = pick(options.task.upper(), LABS, "lab")
    found = grade_lab(lab, source_of(Path(options.file)), seed, limits)
    if options.json:
        print_json(document(options.file, found))
    else:
        show_table(table(options.file, found))
        verdict = "passed" if found.passed else f"not passed, which takes {PASS_MARK}"
        say(f"{found.points} of {found.of} points: {verdict}")
    return DONE if found.passed else WRONG


def seed_of(given: str) -> int:
    """A whole number, or that of a file."""
    text = contents(given[1:]).strip() if given.startswith("@") else given
    if not text.isdecimal() or len(text) > 40:
        raise Fail(f"--seed {given}: give a whole number, or @FILE with one in it; {secrets.randbelow(10**9)}, say")
    return int(text)


def source_of(path: Path) -> bytes:
    """A submission's bytes."""
    if not path.is_file():
        raise Fail(f"there is no file {path}")
    with open(path, "rb") as file:
        return file.read(MOST_SOURCE + 1)


def contest_of(options: argparse.Namespace, seed: int, limits: Limits) -> int:
    folder = Path(options.contest)
    if not folder.is_dir():
        raise Fail(f"there is no folder {folder}")
    if not (paths := sorted(folder.glob("*.py"))):
        raise Fail(f"{folder} has no .py file")
    task, found = TASKS["A6"], {}
    drawn = cases(task, seed)
    with progress("grading", len(paths)) as advance:
        for path in paths:
            advance(path.stem)
            if path.is_symlink() or not path.is_file() or not os.access(path, os.R_OK):
                why = f"{path.name} is a link, a folder or a pipe, or cannot be read; a submission is a plain file"
                found[path.stem] = Grade(task.name, [Criterion("runs", 0, 100, why)])
                continue
            found[path.stem] = grade(source_of(path), "submission.py", task, drawn, limits)
    ranked = contest.ranked(found, drawn)
    if options.json:
        print_json([document(one.name, one.grade) | {"rank": one.rank, "slow_down": one.slow_down} for one in ranked])
        return DONE
    show_table(contest.table(ranked, drawn))
    return DONE


def document(name: str, found: Grade) -> dict[str, Any]:
    """What --json prints."""
    return {
        "submission": name, "task": found.task, "points": found.points, "of": found.of, "passed": found.passed,
        "criteria": [one._asdict() for one in found.criteria], "slow_downs": found.slow_downs,
    }  # fmt: skip


def table(name: str, found: Grade) -> Table:
    columns: Sequence[Column] = (
        Column("criterion", "name"), Column("points", "points", plain), Column("of", "of", plain),
        Column("", "why", wraps=True),
    )  # fmt: skip
    return Table.of(
        f"{name}, lab {found.task}: {counted(len(found.slow_downs), 'case')} judged", found.criteria, columns
    )
