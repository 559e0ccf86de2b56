"""A mark: the mean of the cases' points, 0 to 100 and above, and where it is between nothing and the solution."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pytest

import refimpl
from tutorials.labs.lab import LABS, Measured

PROJECT = Path(refimpl.__file__).parent
PASS_MARK = 60
NEARLY = 0.995  #: points of a case that has lost none
MOST_LOST = 5  #: cases that are named


@dataclass(frozen=True)
class Mark:
    """What a submission gets.  A gate that it does not pass is why it gets nothing."""

    measured: Sequence[Measured]
    steps: Sequence[str]  #: the names of the handout's steps
    gate: str = ""

    @property
    def value(self) -> int:
        return 0 if self.gate else round(100 * fmean(one.points for one in self.measured))

    def you_are_here(self) -> str:
        """The marks of the handout's steps in the same cases, and this one among them."""
        known = [(0, "nothing"), (100, "the solution")]
        known += [
            (round(100 * fmean(one.case.steps[number] for one in self.measured)), name)
            for number, name in enumerate(self.steps)
        ]
        here = sorted([*known, (self.value, "YOU")], key=lambda one: one[0])
        return ", ".join(f"{name} {mark}" for mark, name in here)

    def lines(self) -> list[str]:
        """What is shown at the end of the tests."""
        found = [f"{self.value} of 100; {PASS_MARK} are a pass"]
        if self.gate:
            return [*found, f"0, because {self.gate}"]
        found.append(f"you are here: {self.you_are_here()}")
        lost = sorted((one for one in self.measured if one.points < NEARLY), key=lambda one: one.points)
        for one in lost[:MOST_LOST]:
            found += [f"{100 * one.points:>5.0f}  {one.case}: {one.said}", f"       {one.again}"]
        if len(lost) > MOST_LOST:
            found.append(f"       and {len(lost) - MOST_LOST} more cases below 100")
        return found


def reason(report: pytest.TestReport) -> str:
    """What a failed test says: its error's first line, and where, if it is in the submission."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
    line = str(text).partition("\n")[0]
    line = re.sub(r"^(Failed|AssertionError|NotImplementedError|refimpl\.[.\w]+): ", "", line)
    file = Path(crash.path) if crash else Path()
    theirs = file.parent != LABS or re.match(r"a\d", file.name)  # not the tests', nor the engine's
    return (
        f"{file.name}, line {crash.lineno}: {line}" if theirs and not file.is_relative_to(PROJECT) and crash else line
    )
