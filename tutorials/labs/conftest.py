"""The options of the labs' tests, and the points: a test is a criterion, and says what it is worth.

    pytest tutorials/labs/test_a3.py                                    the lab's own file, filled in
    pytest tutorials/labs/test_a3.py --submission mine.py               another file
    pytest tutorials/labs/test_a3.py --submission mine.py --seed 123    cases that the student has not seen

`@pytest.mark.points(30)` is what a criterion is worth; the fixture `award` takes the share that was reached, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from refimpl.cli.parser import error_line
from refimpl.planner import Setup
from refimpl.text import RefimplError
from tutorials.labs.cases import cases
from tutorials.labs.checks import Planned, planned, setup_of

PASS_MARK = 60
Award = Callable[[float, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--submission", metavar="FILE", help="the file to test (default: the lab's own)")
    parser.addoption("--seed", type=int, default=1, metavar="N", help="of the cases (default: those of everybody)")


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--submission")
    if given and not (config.invocation_params.dir / given).is_file():
        raise pytest.UsageError(f"--submission {given}: there is no such file")
    if config.option.tbstyle == "auto":  # `Points` says what failed, a line for each criterion
        config.option.tbstyle, config.option.reportchars = "no", ""
    config.pluginmanager.register(Points(config))


def pytest_itemcollected(item: pytest.Item) -> None:
    item.user_properties += [("of", mark.args[0]) for mark in item.iter_markers("points")]


def submission_of(config: pytest.Config, tests: Path) -> Path:
    """The file that a lab's tests are run on."""
    if given := config.getoption("--submission"):
        return Path(config.invocation_params.dir / given)
    return next(Path(__file__).parent.glob(f"{tests.stem.removeprefix('test_')}_*.py"))


@pytest.fixture(scope="module")
def submission(request: pytest.FixtureRequest) -> Path:
    return submission_of(request.config, request.path)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--seed"))


@pytest.fixture(scope="class")
def setup(request: pytest.FixtureRequest, submission: Path) -> Setup:
    """The setup of a lab of modules, with the submission's; an error of its file is one line."""
    try:
        return setup_of(submission, request.cls.lab)
    except RefimplError as error:
        pytest.fail(error_line(error), pytrace=False)


@pytest.fixture(scope="class")
def plans(request: pytest.FixtureRequest, setup: Setup, seed: int) -> list[Planned]:
    """The submission's plan of every case."""
    return [planned(setup, request.cls.lab, case) for case in cases(request.cls.lab, seed)]


@pytest.fixture
def award(request: pytest.FixtureRequest) -> Award:
    """Give a criterion's points: a share of what it is worth, from 0 to 1, with a line that says why."""
    of = request.node.get_closest_marker("points").args[0]

    def give(share: float, why: str) -> None:
        points = int(of * share + 1e-9)
        request.node.user_properties += [("points", points), ("why", why)]
        if points < of:
            pytest.fail(why, pytrace=False)

    return give


class Points:
    """Shows the points at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self.reports.append(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for file, reports in groupby(self.reports, key=lambda report: report.nodeid.partition("::")[0]):
            terminalreporter.section(f"points of {Path(file).stem.removeprefix('test_').upper()}")
            points = most = 0
            said = ""
            for report in reports:
                found: dict[str, Any] = {"points": 0, "of": 0, "why": reason(report)}
                got, of, why = (dict(found, **dict(report.user_properties))[name] for name in found)
                points, most = points + got, most + of * (not report.skipped)
                name = report.nodeid.rpartition("::test_")[2].replace("_", " ")
                terminalreporter.write_line(f"{name:<11} {got:>3} of {of:<3} {why if why != said else '(as above)'}")
                said = why
            path = submission_of(self.config, Path(file))
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            if yours := [str(number) for number, line in enumerate(lines, 1) if line.endswith("# yours")]:
                where = f"line {', '.join(yours)} of {path.name}"
                terminalreporter.write_line(f"Still yours to write: {where}.  Its text says how, step by step.")
            terminalreporter.write_line(f"{points} of {most} points; {PASS_MARK} are a pass")


def reason(report: pytest.TestReport) -> str:
    """Why a test gave no points: its error's first line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
    return str(text).partition("\n")[0].removeprefix("Failed: ")
