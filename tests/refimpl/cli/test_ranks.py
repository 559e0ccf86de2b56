"""A rank's part of the command with a stand-in for MPI: what it returns, says and raises, and which ranks it tells."""

from __future__ import annotations

import argparse
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from refimpl.backend import RankFailed, RunError
from refimpl.cli import parallel
from refimpl.cli.parser import Fail
from refimpl.machine import here
from refimpl.parallel import communicators
from tests.messages import raises_naming

OPTIONS = argparse.Namespace(parser=SimpleNamespace(prog="refimpl run"))


class OneRank:
    """In place of MPI: a rank of two, which notes what it tells the others."""

    rank, size, together = 0, 2, True
    made: list[Any]

    def __init__(self, prog: str, otherwise: str = "") -> None:
        self.told: list[Any] = [(prog, otherwise)] if otherwise else [prog]
        self.made.append(self)

    def fail(self, why: str, status: int) -> bool:
        self.told.append((why, status))
        return self.together

    def close(self) -> None:
        self.told.append("closed")


@pytest.fixture(params=[0, 1])
def rank(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[OneRank]:
    """The first rank and another one."""
    one = type("ThisRank", (OneRank,), {"rank": request.param, "made": []})
    monkeypatch.setattr(communicators, "Mpi", one)
    monkeypatch.setattr(parallel, "take_share", lambda communicator: communicator.told.append("shares"))
    return one


def ended(rank: type[OneRank], work: Any) -> tuple[int | str, list[Any]]:
    """What the command ends with, a status or a message and its status, and what was told."""
    try:
        result: Any = parallel.as_rank(OPTIONS, work)
    except Fail as error:
        result = f"{error} [{error.exit_status}]"
    return result, rank.made[-1].told


def test_the_first_rank_alone_is_heard(rank: type[OneRank], capsys: pytest.CaptureFixture[str]) -> None:
    def work(options: argparse.Namespace, communicator: Any) -> int:
        print("said")
        print("told", file=sys.stderr)
        return 7 + communicator.rank

    assert ended(rank, work) == (7 + rank.rank, ["refimpl run", "shares", "closed"])
    assert capsys.readouterr() == (("said\n", "told\n") if rank.rank == 0 else ("", ""))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("error", "why", "status"),
    [
        (KeyboardInterrupt(), "interrupted", 130),
        (Fail("no such policy"), "no such policy", 2),
        (RunError("no room"), "no room", RunError.exit_status),
    ],
)
def test_what_ends_a_rank_ends_all(
    rank: type[OneRank], error: BaseException, why: str, status: int, together: bool
) -> None:
    def work(options: argparse.Namespace, communicator: Any) -> int:
        raise error

    rank.together = together
    result, told = ended(rank, work)
    assert told == ["refimpl run", "shares", (why, status), "closed"]
    said = why if together else f"rank {rank.rank}: {why}"
    assert result == (status if rank.rank else f"{said} [{status}]")


def test_another_ranks_failure_is_not_told_again(rank: type[OneRank]) -> None:
    def work(options: argparse.Namespace, communicator: Any) -> int:
        raise RankFailed(1, 3, "no room")

    result, told = ended(rank, work)
    assert told == ["refimpl run", "shares", "closed"] and result == (3 if rank.rank else "rank 1: no room [3]")


def test_a_fault_keeps_its_traceback(rank: type[OneRank], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Fail.__module__], "own_code", lambda: None)  # no file of the user's was executed

    def work(options: argparse.Namespace, communicator: Any) -> int:
        raise ZeroDivisionError("a fault")

    with pytest.raises(ZeroDivisionError):
        parallel.as_rank(OPTIONS, work)
    assert rank.made[-1].told[2:] == [("ZeroDivisionError: a fault", 1), "closed"]


def test_a_command_that_fails_before_it_is_a_rank_tells_the_others(
    rank: type[OneRank], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    monkeypatch.setattr(here, "launched", lambda: None)
    assert not parallel.tell_ranks("refimpl", "why", 2) and rank.made == []
    monkeypatch.setattr(here, "launched", lambda: SimpleNamespace(rank=rank.rank, size=2))
    assert parallel.tell_ranks("refimpl", "why", 2) == (rank.rank > 0)
    assert rank.made[0].told == [("refimpl", "why"), ("why", 2), "closed"]
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace())  # it was one of them
    assert parallel.tell_ranks("refimpl", "why", 2) == (rank.rank > 0) and len(rank.made) == 1
    monkeypatch.delitem(sys.modules, "mpi4py.MPI")

    def missing(*_: Any, **__: Any) -> None:
        raise RunError("no MPI")

    monkeypatch.setattr(communicators, "Mpi", missing)
    assert parallel.tell_ranks("refimpl", "why", 2) is False


def test_several_that_do_not_know_of_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "launched", lambda: None)
    parallel.refuse_without_parallel()
    monkeypatch.setattr(here, "launched", lambda: SimpleNamespace(rank=0, size=3))
    with raises_naming(Fail, 3, "--parallel mpi"):
        parallel.refuse_without_parallel()


def test_the_rank_that_was_started_otherwise_is_named() -> None:
    def agree(*said: str) -> Any:
        return SimpleNamespace(agree=lambda mine: [mine, *said])

    parallel.same_command(agree('{"batch": 4, "policy": "none"}'), {"batch": 4, "policy": "none"})
    with raises_naming(Fail, "rank 2", "batch 8", "batch 4"):
        parallel.same_command(agree('{"batch": 4}', '{"batch": 8}'), {"batch": 4})
    with raises_naming(Fail, "rank 1", "steps 7", "steps None"):
        parallel.same_command(agree('{"batch": 4, "steps": 7}'), {"batch": 4})
