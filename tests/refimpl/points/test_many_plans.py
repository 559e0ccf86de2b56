"""Many plans: each question is asked once, its row is kept, and processes change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from refimpl import files
from refimpl.points.many_plans import Row, RowsError, answers, kept, read
from tests.messages import raises_naming


class Number(NamedTuple):
    value: int

    @property
    def key(self) -> str:
        return f"n{self.value}"

    def fault(self, row: Row) -> str:
        return "" if row.get("square") == self.value**2 else f"square is {row.get('square')}"


def squared(one: Number) -> Row:
    return {"key": one.key, "square": one.value**2}


NUMBERS = [Number(value) for value in (3, 1, 2, 3)]
ROWS = [{"key": f"n{value}", "square": value**2} for value in (3, 1, 2, 3)]


def counting(asked: list[Number], stop: int = 99) -> Callable[[Number], Row]:
    def work(one: Number) -> Row:
        if len(asked) == stop:
            raise KeyboardInterrupt
        asked.append(one)
        return squared(one)

    return work


def test_rows_come_in_the_order_of_the_questions_and_none_is_asked_twice() -> None:
    asked: list[Number] = []
    assert answers(counting(asked), NUMBERS) == ROWS
    assert asked == NUMBERS[:3]


def test_what_was_stopped_goes_on_from_its_file(tmp_path: Path) -> None:
    out, asked = tmp_path / "rows", list[Number]()
    with pytest.raises(KeyboardInterrupt):
        answers(counting(asked, stop=2), NUMBERS, out=out)
    whole = out.read_bytes()
    out.write_bytes(whole + b'{"key": "n2", "squ')  # killed while it wrote
    asked.clear()
    seen: list[Any] = []
    assert answers(counting(asked), NUMBERS, out=out, watch=seen.append) == ROWS
    assert asked == [Number(2)] and seen == ROWS[:3]
    assert out.read_bytes().startswith(whole) and [json.loads(one) for one in out.read_text().splitlines()] == ROWS[:3]


@pytest.mark.parametrize(
    "text", ["{}\n", "[1]\n", "nothing\n", "no line", '{"key": 1}\nnothing\n', "[" * 100_000 + "\n"]
)
def test_a_file_that_is_none_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows"
    path.write_text(text)
    with raises_naming(RowsError, path):
        answers(squared, NUMBERS, out=path)
    assert path.read_text() == text


def test_a_row_that_its_question_refuses_is_named_by_its_line_and_other_rows_are_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text('{"key": "n9", "square": 0}\n{"key": "n1", "square": 2}\n')
    with raises_naming(RowsError, path, "line 2", "square is 2"):
        answers(squared, NUMBERS, out=path)
    assert answers(squared, [Number(2)], out=path) == [ROWS[2]]


@pytest.mark.parametrize("text", ["", "{", '{"key": ', '{"key": "n3", "squa'])
def test_a_file_with_half_a_row_alone_is_filled(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows").write_text(text)
    assert answers(squared, NUMBERS, out=tmp_path / "rows") == ROWS


class OfFile(NamedTuple):
    path: Path

    @property
    def key(self) -> str:
        return self.path.read_text()

    def fault(self, row: Row) -> str:
        return ""


def test_a_row_of_a_file_that_changes_meanwhile_is_not_kept(tmp_path: Path) -> None:
    """Its key would be that of a text which it may not be of."""
    mine, out = OfFile(tmp_path / "mine.py"), tmp_path / "rows"
    mine.path.write_text("old")

    def changing(one: OfFile) -> Row:
        one.path.write_text("new")
        return {"key": one.key, "text": "old"}

    assert answers(changing, [mine], out=out) == [{"key": "new", "text": "old"}]
    assert read(out)[0] == {}


@pytest.mark.skipif(not files.LOCKS, reason="no locks of files")
def test_one_process_writes_a_file_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with kept(path) as (_, keep):
        keep(ROWS[0])
        with raises_naming(RowsError, "another", path):
            answers(squared, NUMBERS, out=path)
    assert answers(squared, NUMBERS, out=path) == ROWS
