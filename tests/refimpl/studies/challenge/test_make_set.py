"""The printed points are written from rows, bounds and entries that are known."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from refimpl.points import workers
from refimpl.studies.challenge import make_set, point_set
from refimpl.studies.challenge.entry import entered
from refimpl.studies.challenge.make_set import PANEL, bound_of, draw, with_best
from refimpl.studies.challenge.point_set import BestKnown, ChallengePoint, case_of
from refimpl.studies.challenge.score import MOST
from refimpl.studies.grid.rows import network_of

TINY = ChallengePoint("tiny-vgg", 32, "titan-x", 4 << 20)
OTHER = ChallengePoint("lenet", 8, "k40c", 2 << 20, 0.5, BestKnown(0.75, "vdnn-all", "aa"))


def test_points_are_kept_where_the_panel_differs_and_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    of_each: list[list[float]] = [
        [1.0, 1.05, 1.0, 1.0, 1.0, 1.0],  # two at the floor
        [1.0, 1.05, 1.001, 1.002, 1.003, 1.05],  # kept
        [1.2, 1.24, 1.2, 1.2, 1.2, 1.2],  # hardly a difference
        [1.2, 1.26, 1.2, 1.2, 1.2, 1.2],  # kept
        [MOST] * 6,  # nothing fits
        [1.2, MOST, 1.2, 1.2, 1.2, 1.2],  # kept: one does not fit
    ]
    offered = [TINY._replace(batch=number) for number in range(len(of_each))]
    asked: list[Any] = []

    def study(wanted: list[Any], jobs: int, work: Any, out: str | None) -> list[dict[str, Any]]:
        asked.extend(wanted)
        assert out == "rows.jsonl" and work is entered
        return [{"fits": one < MOST, "slow_down": one if one < MOST else None} for each in of_each for one in each]

    counts: list[int] = []

    def drawn(seed: str, count: int) -> list[ChallengePoint]:
        counts.append(count)
        return offered

    monkeypatch.setattr(make_set, "drawn", drawn)
    monkeypatch.setattr(make_set, "study", study)
    assert [case.batch for case in draw("rows.jsonl")] == [1, 3, 5]  # fewer than are wanted: all of them
    assert counts == [4 * 67] and [one.setup for one in asked[:6]] == [*PANEL] and asked[6].batch == 1
    monkeypatch.setattr(make_set, "DRAWN", 1)
    assert [case.batch for case in draw("rows.jsonl")] == [1, 3]  # two of three, evenly from the first


def test_a_bound_is_kept_if_it_is_proved_and_asked_of_small_networks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, int, float]] = []
    answers: list[Any] = [SimpleNamespace(seconds=0.25, proved=True), SimpleNamespace(seconds=0.25, proved=False), None]

    def lower_bound(network: Any, machine: Any, budget: int, limit: float) -> Any:
        asked.append((network.name, machine.name, budget, limit))
        return answers[len(asked) - 1]

    monkeypatch.setattr(make_set, "lower_bound", lower_bound)
    assert [bound_of(TINY, 3.0).bound for _ in answers] == [0.25, None, None]
    assert asked == [("tiny-vgg", "titan-x", 4 << 20, 3.0)] * 3
    layers = len(network_of("tiny-vgg", 32).layers)
    for small, calls in ((layers - 1, 3), (layers, 4)):
        monkeypatch.setattr(make_set, "SMALL", small)
        answers.append(None)
        assert bound_of(TINY._replace(bound=1.0), 3.0).bound is None and len(asked) == calls


def row(case: ChallengePoint, setup: str, seconds: float | None) -> dict[str, Any]:
    network, batch, machine, budget = case[:4]
    return {
        "key": f"{case}{setup}", "network": network, "batch": batch, "machine": machine, "budget_bytes": budget,
        "setup": setup, "seconds": seconds, "fits": seconds is not None, "program": setup[:2],
    }  # fmt: skip


ROWS = [
    row(TINY, "vdnn-all", 0.4), row(TINY, "accudnn", 0.3), row(TINY, "combined", 0.35), row(TINY, "baseline", None),
    row(OTHER, "accudnn", 0.8), row(TINY._replace(budget=1), "vdnn-dyn", 0.1),
]  # fmt: skip


def test_the_fastest_row_of_a_point_is_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_set, "read", lambda path: ({one["key"]: one for one in ROWS}, None))
    first, second = with_best([TINY, OTHER], "rows.jsonl")
    assert first == TINY._replace(best=BestKnown(0.3, "accudnn", "ac"))
    assert second == OTHER  # what is known is faster


def test_the_file_is_written_as_the_next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "set.json"
    monkeypatch.setattr(make_set, "FILE", file)
    monkeypatch.setattr(make_set, "printed", lambda: [TINY, OTHER])
    monkeypatch.setattr(make_set, "document", lambda: {"version": 4})
    monkeypatch.setattr(make_set, "read", lambda path: ({one["key"]: one for one in ROWS}, None))
    monkeypatch.setattr(make_set, "lower_bound", lambda *asked: SimpleNamespace(seconds=0.2, proved=True))
    monkeypatch.setattr(make_set, "draw", lambda out: [TINY])
    monkeypatch.setattr(make_set, "prove", lambda path, cases: (cases[1], BestKnown(0.6, path, "bb")))
    monkeypatch.setattr(workers, "results", lambda work, cases, jobs: [(c, work(c)) for c in cases[::-1]])

    def made(*asked: str) -> tuple[int, list[ChallengePoint], str]:
        monkeypatch.setattr(sys, "argv", ["make_set", *asked])
        make_set.main()
        found = json.loads(file.read_text())
        assert found["format"] == point_set.FORMAT and len(file.read_text().splitlines()) == len(found["points"]) + 2
        return found["version"], [*map(case_of, found["points"])], capsys.readouterr().out

    version, cases, said = made()
    assert (version, cases) == (5, [TINY, OTHER]) and said == "2 points, 1 with a bound, 1 with a best program\n"
    assert made("--bounds", "3")[1] == [TINY._replace(bound=0.2), OTHER._replace(bound=0.2)]
    assert made("--rows", "f")[1][0].best == BestKnown(0.3, "accudnn", "ac")
    assert made("--entry", "mine.json")[1] == [TINY, OTHER._replace(best=BestKnown(0.6, "mine.json", "bb"))]
    version, cases, said = made("--draw")
    assert (version, cases) == (1, [TINY]) and said == "1 point, 0 with a bound, 0 with a best program\n"
