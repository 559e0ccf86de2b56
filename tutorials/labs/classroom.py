"""A class: every submission of a folder is tested in a process of its own, as many at a time as there are cores.

A submission is a file of the folder, or in the folder of a student the file with the lab's name (`ada/a3_mine.py`, at
any depth).  A process that does not end in time is killed; whatever happens to one, the others have their rows.  A
process is no sandbox: a submission can read and write what you can.
"""

from __future__ import annotations

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

from refimpl.text import counted, harmless, one_line
from tutorials.labs import alike
from tutorials.labs.curve import reason

MEMORY = 4  #: GiB of a submission's process, where the system can limit it


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
    decides_as: str = ""  #: modules of the project that have its program in every case


# -- all submissions of a folder ---------------------------------------------------------------------------------------


def run(session: pytest.Session) -> None:
    """Test them, show a row each, and write the table after every row."""
    config = session.config
    here = Path(config.invocation_params.dir)
    labs = {item.path: item.module.LAB for item in session.items}  # type: ignore[attr-defined]
    tasks = [(path, *one) for path in sorted(labs) for one in submissions(here / config.option.class_of, path)]
    if not tasks:
        raise pytest.UsageError(f"--class {config.option.class_of}: no .py file in it, and no student's folder")
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    rows: list[Row] = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        waiting = {pool.submit(tested, *task, config): task for task in tasks}
        try:
            for done in as_completed(waiting):
                row, decided = done.result()
                tests, student, _ = waiting[done]
                row.decides_as = alike.decides_as(labs[tests], seed_of(student, config), decided)
                rows.append(row)
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
    for row in rows:
        if like := " and ".join(filter(None, (row.like, row.like_the_project))):
            reporter.write_line(f"{row.lab} {row.student}: its text is like {like}")
        if row.decides_as:
            reporter.write_line(f"{row.lab} {row.student}: it decides as {row.decides_as} on all cases")
    reporter.write_line(f"{counted(len(rows), 'submission')}; what is alike is a question, not an answer")


def compare(rows: Sequence[Row], tasks: Sequence[tuple[Path, str, Path]]) -> None:
    """Name for each submission the most alike text of its lab and of the project."""
    for tests in {tests for tests, _, _ in tasks}:
        lab = tests.stem.removeprefix("test_")
        given = set[int]().union(*(alike.shapes(path) for path in tests.parent.glob(f"{lab}_*.py")))
        texts = {printable(student): alike.shapes(path) - given for one, student, path in tasks if one == tests}
        project = alike.texts_of_the_project(lab)
        for row in rows:
            if row.lab == lab and (mine := texts.get(row.student)):
                row.like = alike.most_alike(mine, {name: one for name, one in texts.items() if name != row.student})
                row.like_the_project = alike.most_alike(mine, project)


def submissions(folder: Path, tests: Path) -> Iterator[tuple[str, Path]]:
    """(student, file) of a lab, by name."""
    lab = tests.stem.removeprefix("test_")
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.suffix != ".py" and not path.name.startswith("."):
            yield path.name, min(path.rglob(f"{lab}_*.py"), default=path / f"{lab}_*.py")
        elif path.suffix == ".py":
            yield path.stem, path


def seed_of(student: str, config: pytest.Config) -> str:
    return student if config.option.seed == "each" else str(config.option.seed)


def tested(tests: Path, student: str, path: Path, config: pytest.Config) -> tuple[Row, list[str]]:
    """Run a lab's tests on one submission: its row, and what it decides in each case."""
    row = Row(printable(student), tests.stem.removeprefix("test_"))
    if not path.is_file():
        row.said = f"there is no file {printable(path.name)}"
        return row, []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        options = [f"--submission={path.absolute()}", f"--seed={seed_of(student, config)}", f"--memory={MEMORY}"]
        command = ["-m", "pytest", str(tests), *options, f"--gradescope={results}", "-q", "-p", "no:cacheprovider"]
        status = ended(command, config.option.limit)
        row.seconds = time.monotonic() - began
        decided: list[str] = []
        try:
            found = json.loads(results.read_text(encoding="utf-8"))
            failed = [printable(test["output"]) for test in found["tests"] if test["status"] != "passed"]
            decided += found["extra_data"]["decided"]
            row.mark, row.tests, row.said = int(found["score"]), len(found["tests"]), next(iter(failed), "")
            row.passed = row.tests - len(failed)
        except Exception:  # there is no file, or the submission wrote it
            row.tests = 0
        if not row.tests:
            late = f"it did not end within {config.option.limit:g} s" if status is None else ""
            row.said = late or f"its process ended with status {status}, and no result"
    return row, decided


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


# -- Gradescope --------------------------------------------------------------------------------------------------------


def write_for_gradescope(path: Path, reports: Sequence[pytest.TestReport]) -> None:
    """The mark and every test, as Gradescope's `results.json`."""
    tests: list[dict[str, Any]] = []
    given: dict[str, Any] = {"mark": 0, "lines": [], "decided": []}
    for report in reports:
        given |= dict(report.user_properties)
        name = report.nodeid.rpartition("::test_")[2].replace("_", " ")
        tests.append({"name": name, "status": report.outcome, "output": reason(report) if report.failed else ""})
    found = {"score": given["mark"], "output": "\n".join(given["lines"]), "tests": tests}
    path.write_text(json.dumps(found | {"extra_data": {"decided": given["decided"]}}, indent=1), encoding="utf-8")
