"""Tables: at most 100 columns, nothing cut off, and the figures in them right."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refimpl
from refimpl import report
from refimpl.names.networks import build
from refimpl.planner import DoesNotFit, plan
from refimpl.report.comparison import Compared, Spread, compared, misfit, shortest
from refimpl.report.tables import (
    WIDTH,
    Column,
    Table,
    compare_table,
    in_units,
    plan_table,
    steps_table,
    summary_table,
    tried_table,
)
from refimpl.text import size
from tests.refimpl.modules import machine, setup
from tests.refimpl.report.programs import ALL, SMALL, baseline, evicting, timeline


def fits_and_is_whole(table: Table) -> str:
    text = table.text()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert all(len(row) == len(table.head) for row in table.rows)
    assert table.numbers | set(table.wraps) <= set(table.head)
    assert "…" not in text, "something is cut off"
    for row in table.rows[:100]:
        for name, cell in zip(table.head, row, strict=True):
            if name not in table.wraps:
                assert cell.strip() in text
    return text


@pytest.mark.parametrize("make", ALL)
def test_the_tables_of_a_plan(make) -> None:
    program, line = make(), timeline(make)
    text = fits_and_is_whole(plan_table(program, line, baseline_seconds=line.seconds / 2))
    assert "2.00 × the baseline's" in text and "(simulated)" in text
    assert len(fits_and_is_whole(steps_table(program, line)).splitlines()) >= len(program.network.steps)


def test_a_plans_figures() -> None:
    program, line = evicting(), timeline(evicting)
    rows = {row[0].strip(): row[1] for row in plan_table(program, line).rows}
    assert rows["peak"] == size(program.peak_bytes)
    assert rows["live, at most"] == size(program.peak.live_bytes)
    assert rows["rebuilt"] == str(program.counts.recomputed_layers)
    assert rows["copy out, evicted"] == size(program.counts.evicted_bytes)


@pytest.mark.parametrize("name", ["vgg16", "googlenet:superneurons"])
def test_a_networks_layers(name) -> None:
    network = build(name)
    table = summary_table(network)
    fits_and_is_whole(table)
    assert len(table.rows) == len(network.layers) + 2  # the input, and the total
    parameters = [int(row[3].replace(",", "") or 0) for row in table.rows]
    assert sum(parameters[:-1]) == parameters[-1] == network.parameter_count


def several() -> list[Compared]:
    found = [compared(make.__name__, make(), timeline(make)) for make in SMALL]
    with pytest.raises(DoesNotFit) as caught:
        plan(baseline().network, setup(), machine(), 1 << 20)
    return [*found, misfit("more than fits", caught.value.budget, caught.value)]


def test_setups_side_by_side() -> None:
    setups = several()
    table = compare_table("several programs", setups)
    text = fits_and_is_whole(table)
    assert [row[1] for row in table.rows] == ["yes"] * len(SMALL) + ["no"]
    least = min(setup.seconds for setup in setups if setup.fits)
    assert shortest(setups) == least
    for row, one in zip(table.rows, setups[:-1], strict=False):
        assert row[2] == size(one.peak_bytes) and row[8] == f"{one.seconds / least:.2f} ×"
    assert "does not fit: it fails" in text and "The pool is all of the budget." in table.note
    smaller = dataclasses.replace(setups[0], pool_bytes=setups[0].budget - 512)
    table = compare_table("one of them in a smaller pool", [smaller, *setups[1:]])
    assert table.head[1:3] == ["pool", "peak"]
    assert table.rows[0][1:3] == [size(smaller.pool_bytes), size(smaller.peak_bytes)]


def test_possible_machines_and_papers_have_their_sentences() -> None:
    """How often the order of two rows is the model's, and why a paper's other policies are not its row."""
    rows = several()
    spans = [np.linspace(0.9 - 0.1 * k, 1.0 + 0.2 * k, 21) for k in range(len(rows))]
    possible = [
        dataclasses.replace(one, possible=one.seconds * span) for one, span in zip(rows[:-1], spans, strict=False)
    ]
    assert possible[0].possible is not None
    spread = Spread.of([*possible, rows[-1]], (possible[0].possible, 0.5))
    note = compare_table("possible", [*possible, rows[-1]], 0.5, spread).note
    assert "5 to 95 %" in note and " is faster than " in note
    missing = [Compared(name, 512, misfit="is too large") for name in ("no", "nor this")]
    papers = [dataclasses.replace(one, paper=f"paper of {one.name}") for one in rows[:2]]
    papers[0] = dataclasses.replace(papers[0], others=(rows[2], *missing))
    note = compare_table("papers", papers).note
    assert "no and nor this are too large" in note and f"{rows[2].name} takes" in note


@given(st.lists(st.lists(st.text("ab ", max_size=40), min_size=3, max_size=3), max_size=5), st.integers(28, 130))
def test_no_word_is_lost_at_any_width(rows, width) -> None:
    table = Table("", ["one", "two", "three"], rows, frozenset({"two"}), ("three",))
    lines = [line for line, _ in table.lines(width)]
    assert max(map(len, lines)) <= width
    letters = "".join(cell for row in rows for cell in row)
    shown = "".join(lines)
    assert shown.count("a") == letters.count("a") and shown.count("b") == letters.count("b")


@pytest.mark.parametrize("path", sorted(Path(report.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_the_room_knows_no_paper(path) -> None:
    assert not re.search("vdnn|superneurons|accudnn", path.read_text(encoding="utf-8"), re.IGNORECASE)


@dataclass(frozen=True)
class Drawn:
    name: str
    bytes: int | None


def test_a_table_from_columns_and_rows() -> None:
    columns = (
        Column("who", "name", wraps=True), Column("MiB", "bytes", in_units(1 << 20)),
        Column("twice", lambda row: row.name * 2),
    )  # fmt: skip
    rows = [Drawn("a", 3 << 19), Drawn("b", None)]
    table = Table.of("title", rows, columns, "note")
    assert table == Table(
        "title", ["who", "MiB", "twice"], [["a", "1.5", "aa"], ["b", "–", "bb"]], frozenset({"MiB"}), ("who",), "note"
    )
    turned = Table.side_by_side("title", ["first", "second"], rows, columns)
    assert turned.rows == [["who", "a", "b"], ["MiB", "1.5", "–"], ["twice", "aa", "bb"]]


def test_what_a_model_predicted_is_shown_where_one_did() -> None:
    """AccUDNN's model predicts what its search tries; vDNN's dynamic policy has no model."""
    network = build("tiny-vgg", 32)
    for policy, columns in (("accudnn", {"predicted", "chosen"}), ("vdnn-dyn", set())):
        program = refimpl.plan(network, policy, "titan-x", 0.8)
        assert {"predicted", "chosen"} & set(tried_table(program).head) == columns
        assert (columns != set()) == any(trial.predicted for trial in program.tried)
