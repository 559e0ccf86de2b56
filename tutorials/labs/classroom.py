"""A class: every submission of a folder is tested in a process of its own, as many at a time as there are cores.

A submission is a file of the folder, or in the folder of a student the file with the lab's name (`ada/a3_mine.py`, at
any depth).  A process that does not end in time is killed; whatever happens to one, the others have their rows.  A
process is no sandbox: a submission can read and write what you can.
"""

from __future__ import annotations

import ast
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl.text import counted, harmless, one_line
from tutorials.labs.curve import reason

RUN = 12  #: kinds of nodes of a syntax tree that are compared together
MEMORY = 4  #: GiB of a submission's process, where the system can limit it
PAPERS = ("vdnn", "vdnnpp", "superneurons", "accudnn", "combined", "slots")


@dataclass
class Row:
    """What became of a submission."""

    student: str
    lab: str
    mark: int = 0
    passed: int = 0  #: tests
    tests: int = 0
    seconds: float = 0.0
    said: str = ""  #: the first message
    like: str = ""  #: the submission of this class that its text is most like
    like_the_project: str = ""


# -- all submissions of a folder ---------------------------------------------------------------------------------------


def run(session: pytest.Session) -> None:
    """Test them, show a row each, and write the table after every row."""
    config = session.config
    here = Path(config.invocation_params.dir)
    tests = sorted({item.path for item in session.items})
    tasks = [(path, name, file) for path in tests for name, file in submissions(here / config.option.class_of, path)]
    if not tasks:
        raise pytest.UsageError(f"--class {config.option.class_of}: no .py file in it, and none of a student's folder")
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    rows: list[Row] = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        waiting = [pool.submit(tested, *task, config) for task in tasks]
        try:
            for done in as_completed(waiting):
                rows.append(row := done.result())
                reporter.write_line(
                    f"{len(rows):>3} of {len(tasks)}  {row.lab:<4}{row.student:<24.24}{row.mark:>4}"
                    f"{row.passed:>4} of {row.tests:<3}{row.seconds:>6.1f} s  {row.said}"
                )
                write_table(config, here, rows)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    compare(rows, tasks)
    write_table(config, here, rows)
    alike = [row for row in rows if row.like or row.like_the_project]
    for row in alike:
        like = " and ".join(one for one in (row.like, row.like_the_project) if one)
        reporter.write_line(f"{row.lab} {row.student}: its text is like {like}")
    reporter.write_line(
        f"{counted(len(rows), 'submission')}; a text that is like another's is a question, not an answer"
    )


def submissions(folder: Path, tests: Path) -> Iterator[tuple[str, Path]]:
    """(student, file) of a lab, by name."""
    lab = tests.stem.removeprefix("test_")
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.suffix != ".py":
            for found in sorted(path.rglob(f"{lab}_*.py"))[:1]:
                yield path.name, found
        elif path.suffix == ".py":
            yield path.stem, path


def tested(tests: Path, student: str, path: Path, config: pytest.Config) -> Row:
    """Run a lab's tests on one submission."""
    row = Row(printable(student), tests.stem.removeprefix("test_"))
    if not path.is_file():
        row.said = f"{printable(path.name)} is not a file"
        return row
    seed = student if config.option.seed == "each" else config.option.seed
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        options = [f"--submission={path.absolute()}", f"--seed={seed}", f"--gradescope={results}", f"--memory={MEMORY}"]
        status = ended(["-m", "pytest", str(tests), *options, "-q", "-p", "no:cacheprovider"], config.option.limit)
        row.seconds = time.monotonic() - began
        try:
            found = json.loads(results.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {"tests": []}
        if not found["tests"]:
            late = f"it did not end within {config.option.limit:g} s" if status is None else ""
            row.said = late or f"its process ended with status {status}, and no result"
            return row
    row.mark, row.tests = found["score"], len(found["tests"])
    row.passed = sum(test["status"] == "passed" for test in found["tests"])
    row.said = printable(next((test["output"] for test in found["tests"] if test["status"] != "passed"), ""))
    return row


def ended(arguments: Sequence[str], limit: float) -> int | None:
    """Exit status of a Python process; None: it was killed, with its children, because it took too long."""
    devnull = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=devnull, stdout=devnull, stderr=devnull, start_new_session=True
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()


def printable(text: str) -> str:
    """A line that neither a terminal nor a spreadsheet takes for a command."""
    text = one_line(harmless(text, keep=""))
    return f"'{text}" if text[:1] in "=+-@" and text else text


def write_table(config: pytest.Config, here: Path, rows: list[Row]) -> None:
    if config.option.csv is None:
        return
    with (here / config.option.csv).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow([one.name.replace("_", " ") for one in fields(Row)])
        table.writerows(sorted((*astuple(row)[:5], f"{row.seconds:.1f}", *astuple(row)[6:]) for row in rows))


# -- likeness of texts -------------------------------------------------------------------------------------------------


def compare(rows: Sequence[Row], tasks: Sequence[tuple[Path, str, Path]]) -> None:
    """Name for each submission the most alike of its lab and of the project, where more than half of it is the same."""
    ours = Path(refimpl.__file__).parent
    for tests in {tests for tests, _, _ in tasks}:
        lab = tests.stem.removeprefix("test_")
        known = set[int]().union(*(shapes(path) for path in tests.parent.glob(f"{lab}_*.py")))
        texts = {printable(student): shapes(path) - known for one, student, path in tasks if one == tests}
        project = {
            f"{path.parent.name}/{path.name}": shapes(path) for paper in PAPERS for path in (ours / paper).glob("*.py")
        }
        solutions = tests.parent.parent / "solutions"
        project |= {f"solutions/{path.name}": shapes(path) for path in solutions.glob(f"{lab}_*.py")}
        for row in rows:
            if row.lab == lab and (mine := texts.get(row.student)):
                row.like = most_alike(mine, {name: one for name, one in texts.items() if name != row.student})
                row.like_the_project = most_alike(mine, project)


def most_alike(mine: set[int], others: dict[str, set[int]]) -> str:
    share, name = max(((len(mine & one) / len(mine), name) for name, one in others.items()), default=(0.0, ""))
    return f"{name} {share:.0%}" if share >= 0.6 else ""


def shapes(path: Path) -> set[int]:
    """Runs of kinds of nodes in the functions of a file, without names and values; empty where it is not Python."""
    try:
        tree = ast.parse(path.read_bytes()) if path.is_file() else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[int] = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        kinds = [
            type(one).__name__ for part in function.body for one in ast.walk(part) if not isinstance(one, ast.Load)
        ]
        found |= {hash((*kinds[at : at + RUN],)) for at in range(len(kinds) - RUN + 1)}
    return found


# -- Gradescope --------------------------------------------------------------------------------------------------------


def write_for_gradescope(path: Path, reports: Sequence[pytest.TestReport]) -> None:
    """The mark and every test, as Gradescope's `results.json`."""
    tests: list[dict[str, Any]] = []
    mark, lines = 0, list[str]()
    for report in reports:
        given: dict[str, Any] = dict(report.user_properties)
        mark, lines = given.get("mark", mark), given.get("lines", lines)
        name = report.nodeid.rpartition("::test_")[2].replace("_", " ")
        tests.append({"name": name, "status": report.outcome, "output": reason(report) if report.failed else ""})
    path.write_text(json.dumps({"score": mark, "output": "\n".join(lines), "tests": tests}, indent=1), encoding="utf-8")
