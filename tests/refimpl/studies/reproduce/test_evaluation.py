"""The table of published figures beside ours."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from refimpl.studies.reproduce.evaluation import Tally, published_table, summary_table, to_json, values
from refimpl.studies.reproduce.published import Published, Reproduced


def test_ours_has_the_digits_of_the_published_one() -> None:
    for published, ours, shown in (
        (28, 26.7712, "26.77"), (2189.437, 2189.4371, "2189.437"), (84, 84, "84"), (16, 123456.7, "123457"),
        (0.88, 0.912345, "0.9123"), (0, 0.0, "0"),
    ):  # fmt: skip
        assert values(Published("x", published, "", "P", "test"), ours) == (f"{published}", shown)


def test_the_table_says_what_is_met_and_by_what_measure() -> None:
    figures = [
        Reproduced(Published("peak", 401, "MiB", "P", "the table", 0.02), 406.125, "how"),
        Reproduced(Published("runs", 84, "", "p", "the table", 0.0), 84, ""),
        Reproduced(Published("moved", 0, "GB", "p", "another", None), 0.5, ""),
        Reproduced(Published("time", 10, "s", "D", "a figure"), 9.99999, ""),
        Reproduced(Published("share", 50, "%", "D", "a figure", 1.0, of="time"), 51, ""),
    ]
    table = published_table("Paper", figures, "GB: 2^30 bytes.")
    assert table.title == "Paper: published beside ours"
    assert table.rows == [
        ["peak", "401 MiB", "P", "406.1 MiB", "+1.3%", "missed", "how"],
        ["runs", "84", "p", "84", "+0.0%", "met", ""],
        ["moved", "0 GB", "p", "0.5 GB", "", "missed", ""],
        ["time", "10 s", "D", "10 s", "+0.0%", "met", ""],
        ["share", "50 %", "D", "51 %", "+2.0%", "met", ""],
    ]
    assert table.note.splitlines() == [
        "GB: 2^30 bytes.",
        "met: within 2%, 0.02 MiB, 1 percentage point, counts exactly.",
        "P: the table.",
        "p, recalled and not checked again: the table; another.",
        "D, read off its figures: a figure.",
    ]


def test_more_than_is_met_from_there_on() -> None:
    wait = Published("wait", 60, "ms", "p", "a figure", above=True)
    table = published_table("Paper", [Reproduced(wait, ours, "") for ours in (60.0, 60.1, 600.0)])
    assert [row[1] for row in table.rows] == ["> 60 ms"] * 3
    assert [row[5] for row in table.rows] == ["missed", "met", "met"]
    assert table.note.splitlines()[0] == "met: above the published figure where that has a >."


def test_what_is_published_as_enough_is_met_by_less() -> None:
    """It is close from above, and at any distance from below; a loss of 0 may be negative."""
    memory = Published("from 24 GB", 8, "GB", "P", "a figure", at_most=True)
    table = published_table("Paper", [Reproduced(memory, ours, "") for ours in (3.0, 8.1, 8.3)])
    assert [(row[1], row[5]) for row in table.rows] == [("≤ 8 GB", said) for said in ("met", "met", "missed")]
    assert table.note.splitlines()[0] == "met: within 2%; at or below it where it has a ≤."
    loss = Published("accuracy lost", 0, "%", "P", "a figure", 0.5, at_most=True, of="counts")
    assert [Reproduced(loss, ours, "").met for ours in (-2.0, 0.5, 0.6)] == [True, True, False]


def test_a_tally_has_counts_and_the_medians_of_bytes_and_of_time() -> None:
    figures = [
        Reproduced(Published("total", 100, "GB", "P", "x"), 101, ""),
        Reproduced(Published("saved", 50, "%", "P", "x", of="bytes"), 40, ""),
        Reproduced(Published("peak", 100, "MiB", "P", "x"), 90, ""),
        Reproduced(Published("moved", 0, "GB", "P", "x"), 7, ""),  # no share of 0
        Reproduced(Published("speed", 2, "×", "P", "x", of="time"), 3, ""),
        Reproduced(Published("wait", 60, "ms", "P", "x", above=True), 600, ""),  # more than: met, and no deviation
        Reproduced(Published("again", 2, "×", "P", "x", of="time", in_medians=False), 3, ""),
        Reproduced(Published("runs", 14, "", "P", "x"), 14, ""),
    ]
    tally = Tally.of("Paper", figures)
    assert (tally.figures, tally.met, tally.missed) == (8, 3, 5)
    assert tally.bytes_figures == 3 and tally.bytes_apart == pytest.approx(0.1)
    assert tally.time_figures == 1 and tally.time_apart == pytest.approx(0.5)
    assert tally.lines() == "Published figures: 3 of 8 met.  Median deviation: 10.0% of 3 in bytes, 50.0% of 1 in time."
    assert summary_table([tally]).rows == [["Paper", "8", "3", "5", "3", "10.0%", "1", "50.0%"]]
    counts = Tally.of("Paper", figures[-1:])
    assert counts.lines() == "Published figures: 1 of 1 met."
    assert summary_table([counts]).rows == [["Paper", "1", "1", "0", "0", "–", "0", "–"]]


@dataclass(frozen=True)
class Inner:
    seconds: float

    @property
    def rate(self) -> float:
        return 1 / self.seconds


@dataclass(frozen=True)
class Outer:
    runs: tuple[Inner, ...]
    named: dict[str, Inner | None]


def test_json_has_the_fields_and_the_properties_at_every_depth() -> None:
    run = {"seconds": 0.5, "rate": 2.0}
    found = to_json(Outer((Inner(0.5),), {"a": Inner(0.5), "b": None}))
    assert found == {"runs": [run], "named": {"a": run, "b": None}}
