"""Which tests run a line: a mutant of it can be caught by no other ones, so `make mutants` runs these alone.

    python -m tests.faults.reached [PYTEST'S OPTIONS]   run the suite once under coverage, and keep what each test ran
    python -m tests.faults.reached --at FILE:LINE   the tests that run a line

A line outside of functions, which an import runs, and a line of a kernel, which a compiler reads and Python never runs,
have the tests that run any line of their file.  What a test runs in another process is not seen, and what is computed
once for several tests is seen in the first of them.  This module is a plugin of pytest, too: in each worker it notes
the lines of each test.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".reached"  #: a file of each worker


@dataclass(frozen=True)
class Reached:
    """What each test ran: file → line → tests, without their parameters; and what a test takes."""

    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def kept(cls, folder: Path = KEPT) -> Reached:
        """What all workers of a run noted; empty if there was none."""
        found = cls()
        for path in sorted(folder.glob("*.json")):
            noted = json.loads(path.read_text("utf-8"))
            names = list(noted["seconds"])
            for name, seconds in noted["seconds"].items():
                found.seconds[name] = found.seconds.get(name, 0.0) + seconds
            for file, lines in noted["lines"].items():
                of_file = found.lines.setdefault(file, {})
                for line, tests in lines.items():
                    of_file.setdefault(int(line), set()).update(names[test] for test in tests)
        return found

    def tests(self, file: str, line: int) -> list[str]:
        """The tests that run the statement at a line, the quickest file first; empty where no test runs the file."""
        of_file = self.lines.get(file, {})
        first, last = statement((ROOT / file).read_text("utf-8"), line)
        found = {test for one, tests in of_file.items() if first <= one <= last for test in tests}
        if not found:
            found = {test for tests in of_file.values() for test in tests}
        seconds: dict[str, float] = defaultdict(float)
        for test in found:
            seconds[path_of(test)] += self.seconds[test]
        return sorted(found, key=lambda test: (seconds[path_of(test)], test))

    def __bool__(self) -> bool:
        return bool(self.lines)


def path_of(test: str) -> str:
    return test.partition("::")[0]


def statement(text: str, line: int) -> tuple[int, int]:
    """The first and the last line of the innermost statement at a line, of a compound one its head.

    Outside of functions there are none: (1, 0).
    """
    found, inside = (1, 0), False
    for node in ast.walk(ast.parse(text)):  # outer statements come first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or line
            if line <= last and inside:
                found = node.lineno, last
            inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return found


class Noting:
    """The plugin: coverage's context is the test that runs."""

    def __init__(self, worker: str) -> None:
        import coverage

        self.worker = worker
        self.seconds: dict[str, float] = {}
        self._coverage = coverage.Coverage(data_file=None, source=[str(ROOT / "kernels"), str(ROOT / "refimpl")])
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        name = item.nodeid.partition("[")[0]
        self._coverage.switch_context(name)
        began = process_time()
        result = yield
        self.seconds[name] = self.seconds.get(name, 0.0) + process_time() - began
        self._coverage.switch_context("")
        return result

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        number = {name: index for index, name in enumerate(self.seconds)}
        lines = {
            Path(file).relative_to(ROOT).as_posix(): {
                line: [number[name] for name in names if name] for line, names in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        KEPT.mkdir(exist_ok=True)
        noted = {"seconds": self.seconds, "lines": lines}
        (KEPT / f"{self.worker}.json").write_text(json.dumps(noted), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Each worker notes; the process that started the workers runs no test."""
    worker = getattr(config, "workerinput", {}).get("workerid", "")
    if worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Noting(worker or "alone"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", metavar="FILE:LINE", help="say which tests run it, and run nothing")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    options, chosen = parser.parse_known_args()
    if options.at:
        file, _, line = options.at.partition(":")
        sys.stdout.writelines(f"{test}\n" for test in Reached.kept().tests(file, int(line)))
        return 0
    for path in KEPT.glob("*.json"):
        path.unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.faults.reached", "-n", str(options.workers)]
    return subprocess.run([*command, "--dist", "worksteal", *chosen], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
