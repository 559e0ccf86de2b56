"""Timing on this computer: what is compared takes turns, and of each the fastest turn counts, or the median one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import Any, TypeVar

Run = Callable[[], Any]
Seconds = Callable[[Run, int], float]  #: of one run, averaged over a number of them in a row
Name = TypeVar("Name", bound=Hashable)

MOST_IN_A_ROW = 200


def replay(launches: Sequence[Any]) -> Run:
    """A run that repeats launches whose arguments are bound."""

    def run() -> None:
        for launch in launches:
            launch.run(None)

    return run


def by(clock: Callable[[], float] = perf_counter) -> Seconds:
    """The seconds that pass on a clock."""

    def seconds(run: Run, times: int) -> float:
        start = clock()
        for _ in range(times):
            run()
        return (clock() - start) / times

    return seconds


def least_in_turns(
    runs: Mapping[Name, Run],
    seconds: Seconds,
    turns: float = inf,
    limit_seconds: float = inf,
    at_least: int = 1,
    row_seconds: float = 0.0,
    counts: Callable[[Sequence[float]], float] = min,
) -> dict[Name, float]:
    """Seconds of every run in its fastest turn: a slower one was disturbed by something else.

    So a ratio of two of them means something even where the machine is busy.  In its first turn everything runs once.

    Args:
        runs: what to time, by name; what has to be compiled is compiled.
        seconds: times a run: `Device.seconds`, `by` a clock, or a function that does more before it starts its clock.
        turns: at most this many.
        limit_seconds: nothing more is started after this time ...
        at_least: ... once everything has had this many turns.
        row_seconds: from the second turn on, a run shorter than this is repeated in a row until it takes as long.
        counts: which of the turns' seconds counts; `statistics.median` says what a run usually takes.

    Returns:
        Seconds by name.
    """
    end = perf_counter() + limit_seconds
    taken: dict[Name, list[float]] = {name: [] for name in runs}
    turn = 0
    while runs and turn < turns:
        for name, run in runs.items():
            if turn >= at_least and perf_counter() > end:
                turns = turn
                break
            repeats = 1 if turn == 0 else max(1, min(MOST_IN_A_ROW, int(row_seconds / min(taken[name]))))
            taken[name].append(max(seconds(run, repeats), 1e-9))
        turn += 1
    return {name: counts(each) for name, each in taken.items()}
