"""The options of the labs' tests, what they are given, and the mark.

pytest tutorials/labs/test_a3.py -x                                 the lab's own file, filled in, step by step
pytest tutorials/labs/test_a3.py --submission mine.py --seed 7      another file, other cases
pytest tutorials/labs/test_a3.py --class DIR --csv marks.csv        every file of a folder (`classroom.py`)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from refimpl.planner import Program
from refimpl.planner.loop import Planner
from refimpl.text import RefimplError
from tutorials.labs import alike, classroom, gates
from tutorials.labs.curve import PASS_MARK, Mark, reason
from tutorials.labs.lab import Case, Lab, Measured, machine, said_of

GIB = 1 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("labs")
    if group.options:  # a submission in a student's repository brings this file once more
        return
    group.addoption("--submission", metavar="FILE", help="the file to test (default: the lab's own)")
    group.addoption("--seed", default="1", metavar="TEXT", help="of the cases: a number, a name (default: everybody's)")
    group.addoption("--class", dest="class_of", metavar="DIR", help="test every submission of a folder")
    group.addoption("--csv", metavar="FILE", help="with --class: a row for each student and lab")
    group.addoption("--limit", type=float, default=120, metavar="S", help="with --class: seconds of one submission")
    group.addoption(
        "--memory", type=float, metavar="GIB", help="of this process, at most, where the system can limit it"
    )
    group.addoption("--gradescope", metavar="FILE", help="write the mark as Gradescope reads it")


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--submission")
    if given and not (config.invocation_params.dir / given).is_file():
        raise pytest.UsageError(f"--submission {given}: there is no such file")
    if config.getoption("--csv") and config.getoption("class_of") is None:
        raise pytest.UsageError("--csv is the table of a class; add --class DIR")
    for option in ("--csv", "--gradescope"):
        given = config.getoption(option)
        if given and not (config.invocation_params.dir / given).parent.is_dir():
            raise pytest.UsageError(f"{option} {given}: there is no folder {Path(given).parent}; make it first")
    if most := config.getoption("--memory"):
        with suppress(ImportError, ValueError):  # Windows has no `resource`
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (int(most * GIB), int(most * GIB)))
    if config.option.tbstyle == "auto":  # a line for each test says what to do
        config.option.tbstyle, config.option.reportchars = "no", ""
    if not config.pluginmanager.has_plugin("marks of labs"):
        config.pluginmanager.register(Marks(config), "marks of labs")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With --class: the tests are run once for each submission, each in a process of its own."""
    if session.config.getoption("class_of") is None:
        return None
    classroom.run(session)
    return True


def submission_of(config: pytest.Config, tests: Path) -> Path:
    """The file that a lab's tests are run on."""
    if given := config.getoption("--submission"):
        return Path(config.invocation_params.dir / given)
    return next(tests.parent.glob(f"{tests.stem.removeprefix('test_')}_*.py"))


# -- what tests are given ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def submission(request: pytest.FixtureRequest) -> Path:
    return submission_of(request.config, request.path)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--seed"))


@pytest.fixture(scope="module")
def modules(request: pytest.FixtureRequest, submission: Path) -> dict[str, Any]:
    """What the submission puts into the lab's slots; an error of its file is one line."""
    try:
        return lab_of(request).modules(submission)
    except RefimplError as error:
        pytest.fail(said_of(error), pytrace=False)


@pytest.fixture(scope="module")
def measured(request: pytest.FixtureRequest, modules: dict[str, Any], submission: Path, seed: str) -> list[Measured]:
    """What the submission reaches in each case of the seed."""
    lab = lab_of(request)
    return [lab.measured(case, modules, submission) for case in lab.cases(seed)]


@pytest.fixture(scope="module")
def own(request: pytest.FixtureRequest, modules: dict[str, Any], measured: list[Measured], submission: Path) -> str:
    """Why the submission is not its author's own work; an empty sentence is a pass, as of the next two gates."""
    return gates.own_work(lab_of(request), modules, [one.case for one in measured], submission.parent)


@pytest.fixture(scope="module")
def changed(request: pytest.FixtureRequest, modules: dict[str, Any], measured: list[Measured]) -> str:
    return gates.changing(lab_of(request), modules, measured)


@pytest.fixture(scope="module")
def bits(request: pytest.FixtureRequest, modules: dict[str, Any]) -> str:
    return gates.other_bits(lab_of(request), modules)


@pytest.fixture
def planned(request: pytest.FixtureRequest, modules: dict[str, Any]) -> Callable[..., Program]:
    """`planned("tiny-vgg", 16, budget, around="SETUP")`: a proved program of the submission."""

    def made(network: str, batch: int, budget: int | None = None, around: str = "SETUP") -> Program:
        program = lab_of(request).planned(Case("", network, batch, around=around), modules, budget)
        program.verify()
        return program

    return made


@pytest.fixture
def asked(request: pytest.FixtureRequest, modules: dict[str, Any]) -> Callable[..., Planner]:
    """`asked("tiny-vgg", 16, budget)`: a planner that has bound the submission: `.context`, `.offload` and so on."""

    def bound(network: str, batch: int, budget: int | None = None, around: str = "SETUP") -> Planner:
        case, lab = Case("", network, batch, around=around), lab_of(request)
        return Planner(case.built, lab.around[around].replace(**modules), machine(), budget or case.budget)

    return bound


def lab_of(request: pytest.FixtureRequest) -> Lab:
    found: Lab = request.module.LAB
    return found


@pytest.fixture
def marked(request: pytest.FixtureRequest) -> Callable[[Mark], None]:
    """Give the mark; a test that gives less than a pass fails."""

    def give(mark: Mark) -> None:
        decided = [alike.digest(lab_of(request), one.program) for one in mark.measured]
        request.node.user_properties += [("mark", mark.value), ("lines", mark.lines()), ("decided", decided)]
        if mark.value < PASS_MARK:
            pytest.fail(mark.lines()[min(1, len(mark.lines()) - 1)], pytrace=False)

    return give


# -- what is shown -----------------------------------------------------------------------------------------------------


class Marks:
    """Shows at the end what each test that failed asks for, and the mark."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self.reports.append(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        said = ""
        for report in self.reports:
            name = report.nodeid.rpartition("::test_")[2].replace("_", " ")
            given: dict[str, Any] = dict(report.user_properties)
            lines = given.get("lines")
            if lines is not None:
                terminalreporter.section(f"the mark of {Path(report.nodeid.partition('::')[0]).stem[5:].capitalize()}")
                for line in lines:
                    terminalreporter.write_line(line)
            elif report.failed:
                why = reason(report)
                terminalreporter.write_line(f"{name}: {why if why != said else '(as above)'}")
                said = why

    def pytest_sessionfinish(self) -> None:
        if path := self.config.getoption("--gradescope"):
            classroom.write_for_gradescope(Path(self.config.invocation_params.dir / path), self.reports)
