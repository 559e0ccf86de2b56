"""The score of a setup: how much slower it is than the best that could be, and how much of the set it fits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import geometric_mean
from typing import Any, NamedTuple

from refimpl.points.many_plans import Row
from refimpl.report.tables import Column, Table, percent
from refimpl.studies.challenge.entry import beats
from refimpl.studies.challenge.point_set import ChallengePoint, as_json, version

MOST = 10.0  #: times slower: what a point counts that does not fit, and the most that any point counts
NOTE = (
    "score: the geometric mean of seconds over the bound where one is known, else over the best that is known, of "
    "drawn points over the baseline with memory enough; lower is better.  A point that does not fit counts as "
    f"{MOST:g} ×, and so does a slower one.  All times are simulated."
)


def factor(case: ChallengePoint, row: Row) -> float:
    """What a point counts: 1 is as good as can be."""
    if not row["fits"]:
        return MOST
    reference = case.reference
    return float(min(MOST, row["seconds"] / reference if reference else row["slow_down"]))


class PartScore(NamedTuple):
    """A setup on some of the points."""

    points: int
    fits: int
    score: float  #: the geometric mean of the factors


class Score(NamedTuple):
    """A setup on all points."""

    setup: str
    whole: PartScore
    printed: PartScore
    drawn: PartScore
    planning_seconds: float  #: of the processor
    better: list[tuple[ChallengePoint, Row]]  #: points where the best that was known is beaten


def part(pairs: Sequence[tuple[ChallengePoint, Row]]) -> PartScore:
    factors = [factor(case, row) for case, row in pairs]
    mean = geometric_mean(factors) if factors else math.nan
    return PartScore(len(pairs), sum(row["fits"] is True for _, row in pairs), mean)


def score(setup: str, pairs: Sequence[tuple[ChallengePoint, Row]]) -> Score:
    """Of one setup's rows, each with its case."""
    known = [(case, row) for case, row in pairs if case.best is not None]
    return Score(
        setup,
        part(pairs),
        part(known),
        part([(case, row) for case, row in pairs if case.best is None]),
        math.fsum(row["planning_seconds"] or 0.0 for _, row in pairs),
        [(case, row) for case, row in known if row["fits"] and case.best and beats(row["seconds"], case.best.seconds)],
    )


def table(scores: Iterable[Score], seed: int) -> Table:
    """A line a setup, the best first."""
    ordered = sorted(scores, key=lambda one: one.whole.score)
    columns = (
        Column("setup", "setup"), Column("score", lambda one: one.whole.score, "{:.3f}".format),
        Column("fits", lambda one: one.whole.fits / one.whole.points, percent),
        Column("printed", lambda one: one.printed.score, "{:.3f}".format),
        Column("drawn", lambda one: one.drawn.score, "{:.3f}".format),
        Column("planning, s", "planning_seconds", "{:.0f}".format),
    )  # fmt: skip
    points = ordered[0].whole.points if ordered else 0
    return Table.of(f"challenge, set {version()}, {points} points, seed {seed}", ordered, columns, NOTE)


def by_network(pairs: Sequence[tuple[ChallengePoint, Row]]) -> Table:
    """Where one setup is good and where it is not: a line a network."""
    names = list(dict.fromkeys(case.network for case, _ in pairs))
    parts = [(name, part([pair for pair in pairs if pair[0].network == name])) for name in names]
    columns = (
        Column("network", lambda one: one[0]), Column("score", lambda one: one[1].score, "{:.3f}".format),
        Column("fits", lambda one: f"{one[1].fits} of {one[1].points}"),
    )  # fmt: skip
    return Table.of("by network", sorted(parts, key=lambda one: -one[1].score), columns)


def plain(one: Score) -> dict[str, Any]:
    """As values that JSON can hold."""
    return {
        "setup": one.setup, **{name: getattr(one, name)._asdict() for name in ("whole", "printed", "drawn")},
        "planning_seconds": one.planning_seconds,
        "better": [
            as_json(case) | {"seconds": row["seconds"], "program": row["program"]} for case, row in one.better
        ],
    }  # fmt: skip
