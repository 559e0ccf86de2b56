"""The table of published figures beside ours."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from refimpl.reproduce.evaluation import published_table, to_json, values
from refimpl.reproduce.published import Published, Reproduced


@pytest.mark.parametrize(
    ("published", "ours", "shown"),
    [
        (28, 26.7712, ("28", "26.77")),
        (2189.437, 2189.43710, ("2189.437", "2189.437")),
        (886.230, 886.23046, ("886.23", "886.23")),
        (84, 84, ("84", "84")),
        (224, 1234.0, ("224", "1234")),
        (16, 123456.7, ("16", "123457")),
        (0.88, 0.912345, ("0.88", "0.9123")),
        (0, 0.0, ("0", "0")),
    ],
)
def test_ours_has_the_digits_of_the_published_one(published: float, ours: float, shown: tuple[str, str]) -> None:
    assert values(Published("x", published, "", "P", "test"), ours) == shown


def test_the_table_says_what_is_met_and_by_what_measure() -> None:
    figures = [
        Reproduced(Published("peak", 401, "MiB", "P", "the table", 0.02), 406.125, "how"),
        Reproduced(Published("runs", 84, "", "p", "the table", 0.0), 84, ""),
        Reproduced(Published("moved", 0, "GB", "p", "another", None), 0.5, ""),
        Reproduced(Published("time", 10, "s", "D", "a figure"), 9.99999, ""),
    ]
    table = published_table("Paper", figures, "GB: 2^30 bytes.")
    assert table.title == "Paper: published beside ours"
    assert table.rows == [
        ["peak", "401 MiB", "P", "406.1 MiB", "+1.3%", "missed", "how"],
        ["runs", "84", "p", "84", "+0.0%", "met", ""],
        ["moved", "0 GB", "p", "0.5 GB", "", "missed", ""],
        ["time", "10 s", "D", "10 s", "+0.0%", "met", ""],
    ]
    assert table.note.splitlines() == [
        "GB: 2^30 bytes.",
        "met: within 2%, 0.02 MiB, counts exactly.",
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
    both = published_table("Paper", [Reproduced(wait, 70, ""), Reproduced(Published("x", 1, "", "P", "y"), 1, "")])
    assert both.note.splitlines()[0] == "met: within 2%; above the published figure where that has a >."


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
