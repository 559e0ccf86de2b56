"""Where a run's processor seconds go, room by room: `make seconds`, or `pytest --seconds`.

A test's seconds are those of its process, with its fixtures; those in which Numba compiled are told apart, and so are
those of the processes that it started and waited for.  A worker's first test has the seconds of collecting, too, about
ten; a process that several tests share, such as the notebooks' kernel, counts for the test during which it ends.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import add
from pathlib import PurePath
from time import process_time
from typing import Any, NamedTuple

import pytest

NAME = "seconds"  #: of the property that a report carries from a worker


class Spent(NamedTuple):
    own: float
    compiling: float
    children: float


def total(spent: Iterable[Spent]) -> Spent:
    return reduce(lambda one, two: Spent(*map(add, one, two)), spent)


class Compiling:
    """The processor seconds in which one of Numba's compilers, for the CPU or for CUDA, was at work."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._begin = 0, 0.0
        from numba.core import event
        from numba.cuda.core import event as cuda_event

        for module, kind in ((event, "numba:compiler_lock"), (cuda_event, "numba-cuda:compiler_lock")):
            methods = {"on_start": lambda _, event: self._start(), "on_end": lambda _, event: self._end()}
            module.register(kind, type("Listener", (module.Listener,), methods)())

    def _start(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._begin = process_time()

    def _end(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += process_time() - self._begin


class Seconds:
    """The plugin, of each worker and of the process that writes the report."""

    def __init__(self) -> None:
        self.compiling = Compiling()
        self.begin = self.now()
        self.rooms: dict[str, list[Spent]] = defaultdict(list)

    def now(self) -> Spent:
        times = os.times()
        return Spent(process_time(), self.compiling.seconds, times.children_user + times.children_system)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report: Any = yield
        if report.when == "teardown":
            now = self.now()
            spent = tuple(after - before for after, before in zip(now, self.begin, strict=True))
            report.user_properties.append((NAME, spent))  # plain values: a worker's report is sent as bytes
            self.begin = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: Any = report.user_properties if report.when == "teardown" else ()
        for name, spent in properties:
            if name == NAME:
                folders = PurePath(report.nodeid.partition("::")[0]).parts[1:-1]
                self.rooms["/".join(folders[:2]) or "tests"].append(Spent(*spent))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        line = "{:<24}{:>7}{:>14}{:>14}{:>17}".format
        terminalreporter.section("processor seconds, by room")
        terminalreporter.write_line(line("room", "tests", "of its own", "compiling", "other processes"))
        rows = {room: total(spent) for room, spent in self.rooms.items()}
        counts = {room: len(spent) for room, spent in self.rooms.items()}
        rows["all"] = total(rows.values())
        counts["all"] = sum(counts.values())
        for room in sorted(rows, key=lambda room: (room == "all", -rows[room].own - rows[room].children)):
            own, compiling, children = rows[room]
            terminalreporter.write_line(
                line(room, counts[room], f"{own - compiling:.1f}", f"{compiling:.1f}", f"{children:.1f}")
            )
