"""The bench of the all-reduce: what is run how often, which iteration counts, and the table."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from refimpl.machine import TITAN_X
from refimpl.names.networks import build
from refimpl.studies.bench import reducing
from refimpl.studies.bench.reducing import Reducing


class Ranks:
    """In place of MPI: three ranks, of which this one does as all others."""

    size, interrupted = 3, False

    def __init__(self) -> None:
        self.averaged: list[list[tuple[int, ...]]] = []
        self.summed: list[int] = []
        self.others = "False"

    def mean(self, arrays: list[np.ndarray]) -> Any:
        self.averaged.append([array.shape for array in arrays])
        return lambda: None

    def plain_sum(self, array: np.ndarray) -> Any:
        self.summed.append(4 * len(array))
        return lambda: None

    def agree(self, said: str) -> list[str]:
        return [said, self.others, said]

    def preparing(self) -> Any:
        return nullcontext()


class Iterations:
    """In place of a trainer: its iterations take longer and longer, and then a moment."""

    closed: ClassVar[list[int]] = []

    def __init__(self, program: Any, communicator: Any) -> None:
        self.buckets = len(program.network.reduced)
        self.seconds = iter([3.0, 5.0, 4.0])

    def timeline(self) -> Any:
        seconds = next(self.seconds)
        return SimpleNamespace(seconds=seconds, busy=lambda _: seconds / 2, hidden=lambda _: self.buckets / 10)

    def close(self) -> None:
        self.closed.append(self.buckets)


def test_both_reductions_and_both_iterations_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks: Any = Ranks()
    turns: list[int] = []

    def in_turns(runs: dict[str, Any], seconds: Any, many: int, counts: Any) -> dict[str, float]:
        turns.append(many)
        for run in runs.values():
            run()
        assert counts([1, 9, 2]) == 2
        return {"ours": 0.25, "mpi": 0.125}

    monkeypatch.setattr(reducing, "least_in_turns", in_turns)
    monkeypatch.setattr(reducing, "Trainer", Iterations)
    monkeypatch.setattr(reducing, "machine_named", lambda name: TITAN_X)
    monkeypatch.setattr(reducing, "processor", lambda: "a processor")
    Iterations.closed.clear()
    found = reducing.run(ranks, "tiny-vgg", 2, 3)
    network = build("tiny-vgg", 2)
    overlapped, after = (network.data_parallel(3, *given) for given in ((), (None,)))
    nbytes = sum(parameter.gradient.nbytes for _, _, parameter in network.parameters())
    assert sum(ranks.summed) == nbytes and ranks.summed == overlapped.reduced == found.reduced
    assert [sum(4 * int(np.prod(one)) for one in bucket) for bucket in ranks.averaged] == ranks.summed
    assert turns == [min(500, 1_000_000_000 // nbytes)]
    assert found.name == "tiny-vgg, batch 2 on each of 3 ranks, a processor; medians"
    assert found.gradients == len([*network.parameters()]) and (found.ours, found.mpi, found.ranks) == (0.25, 0.125, 3)
    assert [*found.iterations] == ["beside backward", "after backward"]
    assert [one.seconds for one in found.iterations.values()] == [4.0, 4.0], "the median of three"
    assert Iterations.closed == [len(overlapped.reduced), len(after.reduced)] and len(after.reduced) == 1


def test_the_table_by_hand() -> None:
    timeline: Any = SimpleNamespace(seconds=2.0, busy=lambda _: 1.0, hidden=lambda _: 0.5)
    found = Reducing("a name", [3 << 20, 1 << 20], 12, 2, 0.25, 0.125, {"beside backward": timeline})
    head, rows = found.table()
    assert head == ["what", "median", ""] and rows == [
        ["all-reduce, in rank order", "250 ms", "12 gradients, 4 MiB, 8 MiB on the wire"],
        ["MPI.Allreduce", "125 ms", "the same bytes; ours takes 2.00 × as long"],
        ["iteration, reduced beside backward", "2 s", "reducing 1 s, 500 ms of it beside kernels; 25.0 % waited for"],
    ]


def test_one_that_is_interrupted_ends_all() -> None:
    ranks: Any = Ranks()
    reducing.all_here(ranks)
    assert reducing.seconds_of(ranks, lambda: None, 2) >= 0
    ranks.others = "True"
    with pytest.raises(KeyboardInterrupt):
        reducing.all_here(ranks)
