"""The guard beside the ranks, on processes that do nothing: what it says, which it ends, and when it is silent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from refimpl.parallel import guard
from tests.messages import lacks

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the guard needs Linux's pidfd_open")

COMMAND = [sys.executable, "-I", "-S", guard.__file__]


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three processes in place of ranks."""
    made = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    yield made
    for one in made:
        one.kill()
        one.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where ranks write why they give up."""
    made = tmp_path / "words"
    made.mkdir()
    return made


def beside(folder: Path, ranks: list[subprocess.Popen[bytes]]) -> subprocess.Popen[str]:
    places = [f"{rank}:{one.pid}" for rank, one in enumerate(ranks)]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*COMMAND, "prog", str(folder), *places], text=True, **pipes)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("first_rank_gone", [True, False])
@pytest.mark.parametrize("why", ["", "no room"])
def test_the_rank_that_ends_first_is_named_and_the_others_end(
    why: str, first_rank_gone: bool, folder: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    watching = beside(folder, sleepers)
    assert watching.stdin is not None
    (folder / "2").write_text("another rank's word")
    if why:
        (folder / "1").write_text(why)
    if first_rank_gone:
        watching.stdin.close()  # which alone says nothing
        watching.stdin = None
    sleepers[1].kill()
    _, said = watching.communicate(timeout=240)
    assert said.count("\n") == 1 and not lacks(said, "prog", 1, 3)
    if why:
        assert f"gave up: {why}" in said and str(sleepers[1].pid) not in said
    else:
        assert not lacks(said, "killed", "SIGKILL", sleepers[1].pid)
    assert [one.wait(240) for one in sleepers] == [-signal.SIGKILL] * 3
    assert not folder.exists()


def test_done_ends_the_guard_alone(folder: Path, sleepers: list[subprocess.Popen[bytes]]) -> None:
    assert beside(folder, sleepers).communicate("done", timeout=240) == (None, "")
    assert [one.poll() for one in sleepers] == [None] * 3
    assert folder.exists()  # the first rank removes it


def in_state(process: int, letters: str) -> None:
    """Wait until the process is in one of these states."""
    while guard.state(process) not in letters:
        time.sleep(0.001)


def test_a_stopped_rank_is_told_once_and_not_where_all_are(
    sleepers: list[subprocess.Popen[bytes]], capfd: pytest.CaptureFixture[str]
) -> None:
    ranks = {rank: one.pid for rank, one in enumerate(sleepers)}
    assert guard.tell_stopped("prog", ranks, set()) == set()
    for rank in (2, 0):
        os.kill(ranks[rank], signal.SIGSTOP)
        in_state(ranks[rank], "T")
    assert guard.tell_stopped("prog", ranks, {0}) == {0, 2}
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and not lacks(said, "prog", "rank 2 of 3", ranks[2], f"kill -CONT {ranks[2]}")
    assert guard.tell_stopped("prog", ranks, {0, 2}) == {0, 2}
    os.kill(ranks[1], signal.SIGSTOP)
    in_state(ranks[1], "T")
    assert guard.tell_stopped("prog", ranks, set()) == {0, 1, 2}
    assert capfd.readouterr().err == ""  # the user has stopped them all
    os.kill(ranks[0], signal.SIGCONT)
    in_state(ranks[0], "S")
    assert guard.tell_stopped("prog", ranks, {0, 1}) == {1, 2}
    assert [line.split()[2] for line in capfd.readouterr().err.splitlines()] == ["2"]


@pytest.mark.parametrize("begun", [True, False])
def test_a_rank_whose_others_do_not_begin_is_ended(begun: bool) -> None:
    """The shell is the rank: it goes on when the guard has ended, unless the guard ends it."""
    rank = subprocess.Popen(
        ["sh", "-c", '"$@"; echo begun', "sh", *COMMAND, "the others are late", "0.05"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if begun:
        assert rank.communicate(timeout=240) == ("begun\n", "")
        assert rank.returncode == 0
    else:
        assert rank.wait(240) == -signal.SIGKILL
        assert rank.communicate() == ("", "the others are late\n")
