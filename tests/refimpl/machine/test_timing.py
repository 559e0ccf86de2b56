"""Runs take turns, the fastest turn of each counts, and time that is up ends the turns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import inf
from statistics import median

import pytest

from refimpl.machine import timing
from refimpl.machine.timing import by, least_in_turns, replay


class ScriptedClock:
    """A clock that is given what each run takes, turn by turn, and notes the order and the repeats."""

    def __init__(self, **taken: list[float]) -> None:
        self.taken, self.noted = taken, list[tuple[str, int]]()

    def seconds(self, run: Callable[[], str], times: int) -> float:
        self.noted.append((run(), times))
        return self.taken[run()].pop(0)


RUNS = {"a": lambda: "a", "b": lambda: "b"}


def test_runs_take_turns_and_the_fastest_turn_counts_or_the_median() -> None:
    for counts, found in ((min, {"a": 1.0, "b": 4.0}), (median, {"a": 2.0, "b": 5.0})):
        clock = ScriptedClock(a=[3.0, 1.0, 2.0], b=[5.0, 6.0, 4.0])
        assert least_in_turns(RUNS, clock.seconds, turns=3, counts=counts) == found  # type: ignore[arg-type]
        assert clock.noted == [("a", 1), ("b", 1)] * 3


def test_a_short_run_is_repeated_in_a_row_after_its_first_turn() -> None:
    clock = ScriptedClock(a=[0.01, 0.02, 0.005], b=[1e-12, 1.0, 1.0])
    assert least_in_turns(RUNS, clock.seconds, turns=3, row_seconds=0.1)["b"] == 1e-9  # never nothing
    assert clock.noted == [("a", 1), ("b", 1), ("a", 10), ("b", timing.MOST_IN_A_ROW), ("a", 10), ("b", 200)]


@pytest.mark.parametrize("at_least", [1, 2])
def test_time_that_is_up_ends_the_turns_after_the_first(monkeypatch: pytest.MonkeyPatch, at_least: int) -> None:
    moments = count()
    monkeypatch.setattr(timing, "perf_counter", lambda: float(next(moments)))
    clock = ScriptedClock(a=[1.0] * 9, b=[1.0] * 9)
    least_in_turns(RUNS, clock.seconds, inf, limit_seconds=1.5, at_least=at_least)
    assert len(clock.noted) == 2 * at_least + 1  # the clock is read before each further run: 1, and then 2


def test_a_run_takes_its_share_of_what_passes_on_the_clock() -> None:
    now, ran = [100.0], list[int]()

    def run() -> None:
        ran.append(1)
        now[0] += 0.5 * len(ran)

    assert by(lambda: now[0])(run, 3) == (0.5 + 1.0 + 1.5) / 3
    assert by(lambda: now[0])(run, 1) == 2.0


def test_a_replay_makes_every_launch_in_order() -> None:
    class Launch:
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, stream: None) -> None:
            made.append(self.name)

    made: list[str] = []
    again = replay([Launch("a"), Launch("b")])
    again()
    again()
    assert made == ["a", "b", "a", "b"]
