"""The contest: many submissions on the same cases, ranked by the cases that fit and by their mean slow-down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from refimpl.report.tables import Column, Table, plain
from refimpl.studies.grade.criteria import Grade
from refimpl.studies.grade.drawn_cases import DrawnCase
from refimpl.text import size


@dataclass(frozen=True)
class Ranked:
    """A submission's place."""

    rank: int
    name: str
    grade: Grade
    fits: int  #: cases that fit and are proved
    slow_down: float | None  #: the geometric mean over these, against the baseline with memory enough


def ranked(found: Mapping[str, Grade], cases: Sequence[DrawnCase]) -> list[Ranked]:
    """More cases that fit come first, then less time; equal ones share a rank."""
    rows = []
    for name, grade in found.items():
        slow = [one for case in cases if (one := grade.slow_downs.get(str(case)))]
        rows.append((-len(slow), geometric_mean(slow) if slow else 0.0, name, grade))
    rows.sort(key=lambda row: row[:3])
    keys = [(fits, round(slow, 6)) for fits, slow, _, _ in rows]
    return [
        Ranked(keys.index(key) + 1, name, grade, -fits, slow or None)
        for key, (fits, slow, name, grade) in zip(keys, rows, strict=True)
    ]


def table(rows: Sequence[Ranked], cases: Sequence[DrawnCase]) -> Table:
    """A line a submission, a column a case."""

    def slow_down(case: DrawnCase) -> Column:
        return Column(str(case), lambda row: row.grade.slow_downs.get(str(case)), "{:.2f}".format)

    columns = (
        Column("rank", "rank", plain), Column("submission", "name"),
        Column("points", lambda row: row.grade.points, plain), Column("fits", "fits", plain),
        Column("mean", "slow_down", "{:.3f}".format), *map(slow_down, cases),
    )  # fmt: skip
    budgets = ", ".join(f"{case} {size(case.budget)}" for case in cases)
    note = f"Seconds over those with memory enough; a dash: no proved program.  Budgets: {budgets}."
    return Table.of("contest", rows, columns, note)
