"""Ranks that are processes, with a stand-in for MPI: the means, the signals, the guard, and one end for all."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from refimpl.backend import RankFailed, RunError
from refimpl.parallel import communicators
from refimpl.parallel.communicators import Mpi
from tests.messages import lacks, raises_naming
from tests.refimpl.backend.ranks import contract
from tests.refimpl.parallel import stand_in_mpi

linux = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the guard needs Linux's pidfd_open")


class Guard:
    """In place of the guard's process: what it was started with and told."""

    def __init__(self, *words: str) -> None:
        self.words, self.told, self.waited = words, b"", 0
        self.stdin = SimpleNamespace(write=self._write, close=lambda: self._write(b"|"))

    def _write(self, said: bytes) -> None:
        self.told += said

    def wait(self) -> None:
        self.waited += 1

    communicate = wait


@pytest.fixture
def guards(monkeypatch: pytest.MonkeyPatch) -> list[Guard]:
    """Those that were started."""
    made: list[Guard] = []

    def start(*words: str) -> Guard:
        made.append(Guard(*words))
        return made[-1]

    monkeypatch.setattr(communicators, "guarded", start)
    return made


def as_ranks(size: int, work: Callable[[Mpi], Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """`work` as each rank: this thread is the first one, and gets the signals; what each has found or raised."""
    modules, own = stand_in_mpi.modules(size), threading.local()
    monkeypatch.setattr(communicators, "initialised", lambda program, otherwise: modules[own.rank])

    def run(rank: int) -> Any:
        own.rank = rank
        try:
            return work(Mpi("prog"))
        except (Exception, KeyboardInterrupt) as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        others = [pool.submit(run, rank) for rank in range(1, size)]
        return [run(0), *(one.result() for one in others)]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicators, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(communicators, "GRACE_SECONDS", 0.02)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Signals are handled afterwards as they were before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_keep_the_contract(size: int, guards: list[Guard], monkeypatch: pytest.MonkeyPatch) -> None:
    def work(communicator: Mpi) -> tuple[int, int]:
        contract(communicator)
        return communicator.local_rank, communicator.local_size

    assert as_ranks(size, work, monkeypatch) == [(rank, size) for rank in range(size)]


@linux
def test_the_first_rank_starts_the_guard_and_all_is_tidy_at_the_end(
    guards: list[Guard], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def work(communicator: Mpi) -> str:
        if communicator.rank == 0:
            assert signal.getsignal(signal.SIGTERM) != before[1]
        folder = communicator._folder
        assert Path(folder).is_dir()
        communicator.close()
        return folder

    folder, same, also = as_ranks(3, work, monkeypatch)
    assert folder == same == also and not Path(folder).exists()
    (guard,) = guards
    assert guard.words == ("prog", folder, *(f"{rank}:{os.getpid()}" for rank in range(3)))
    assert (guard.told, guard.waited) == (b"done|", 1)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_one_rank_has_no_guard(guards: list[Guard], monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_ranks(1, lambda communicator: communicator.close(), monkeypatch) == [None]
    assert not guards


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_the_third_one_is_raised(
    number: int, guards: list[Guard], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(communicator: Mpi) -> None:
        assert not communicator.interrupted
        for _ in range(2):
            signal.raise_signal(number)
            assert communicator.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)

    assert as_ranks(1, work, monkeypatch) == [None]


@linux
@pytest.mark.usefixtures("guards", "quickly")
def test_a_rank_that_fails_while_it_prepares_stops_the_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one waits for its own work; the third one has done it, and waits for the others."""
    slept = list[bool]()

    def work(communicator: Mpi) -> None:
        try:
            with communicator.preparing():
                if communicator.rank == 0:
                    time.sleep(stand_in_mpi.PATIENCE)
                    slept.append(True)
                if communicator.rank == 1:
                    raise RunError("no room")
        except RunError as error:
            if communicator.rank == 1:
                communicator.fail(str(error), status=3)
            raise

    first, second, third = as_ranks(3, work, monkeypatch)
    assert slept == []
    assert str(second) == "no room"
    for error in (first, third):
        assert isinstance(error, RankFailed) and (error.rank, error.status) == (1, 3)
        assert not lacks(str(error), 1, "no room")


@pytest.mark.usefixtures("guards", "quickly")
@pytest.mark.parametrize("before", [True, False])
def test_ctrl_c_before_the_first_iteration_is_raised_at_once_and_told(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(communicator: Mpi) -> None:
        if communicator.rank == 0 and before:
            signal.raise_signal(signal.SIGINT)
        try:
            with communicator.preparing():
                if communicator.rank == 0:
                    assert not before
                    signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            communicator.fail("interrupted", 130)
            raise

    first, second = as_ranks(2, work, monkeypatch)
    assert isinstance(first, KeyboardInterrupt)
    assert isinstance(second, RankFailed) and (second.rank, second.status) == (0, 130)


@linux
@pytest.mark.usefixtures("guards")
@pytest.mark.parametrize("guarded", [True, False])
def test_a_rank_that_aborts_says_why(
    guarded: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """To the guard, which then sees that it ends; without a guard, on standard error."""
    killed: list[tuple[int, int]] = []

    class Killed(Exception):
        pass

    def kill(process: int, number: int) -> None:
        killed.append((process, number))
        raise Killed

    def work(communicator: Mpi) -> tuple[str, list[int]]:
        monkeypatch.setattr(os, "kill", kill)
        communicator._guarded = guarded
        try:
            communicator.abort("no room")
        except Killed:
            return Path(communicator._folder, "0").read_text(encoding="utf-8"), communicator._world.hub.aborted
        return "", communicator._world.hub.aborted

    assert as_ranks(1, work, monkeypatch) == [("no room", []) if guarded else ("", [1])]
    assert killed == [(os.getpid(), signal.SIGKILL)] * guarded
    assert capfd.readouterr().err == ("" if guarded else "rank 0: no room\n")


# -- the start ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the module `mpi4py.MPI`, and no launcher."""
    for name in ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    made = SimpleNamespace(begun=[], vendor="MPICH", COMM_WORLD=SimpleNamespace(size=3), THREAD_MULTIPLE="multiple")
    made.get_vendor = lambda: (made.vendor, (4, 1))
    made.Is_initialized = lambda: bool(made.begun)
    made.Init_thread = made.begun.append
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=made, rc=SimpleNamespace()))  # type: ignore[arg-type]
    return made


def launched(monkeypatch: pytest.MonkeyPatch, start: str, rank: int, size: int) -> None:
    monkeypatch.setenv(f"{start}_RANK", str(rank))
    monkeypatch.setenv(f"{start}_SIZE", str(size))


def test_mpi_is_initialised_once_with_threads(library: Any, guards: list[Guard]) -> None:
    library.COMM_WORLD.size = 1
    for _ in range(2):
        assert communicators.initialised("prog") is library
    assert library.begun == ["multiple"] and not guards  # a process alone waits for no other
    rc = sys.modules["mpi4py"].rc  # type: ignore[attr-defined]
    assert (rc.initialize, rc.finalize) == (False, True)


@pytest.mark.parametrize("otherwise", ["", "the other command has failed"])
def test_a_guard_waits_beside_a_rank_until_all_have_begun(
    otherwise: str, library: Any, guards: list[Guard], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(monkeypatch, "PMI", 2, 3)
    assert communicators.initialised("prog", otherwise) is library
    (guard,) = guards
    line, seconds = guard.words
    assert float(seconds) == 122  # the ranks do not all speak at once
    assert guard.waited == 1
    if otherwise:
        assert line == f"prog: {otherwise}"
    else:
        assert not lacks(line, "prog", 2, 3, "120 s")


@pytest.mark.parametrize(
    ("vendor", "start", "slurm", "world", "refused"),
    [
        ("MPICH", "PMI", False, 3, False),
        ("Open MPI", "OMPI_COMM_WORLD", False, 3, False),
        ("MPICH", "OMPI_COMM_WORLD", False, 3, True),
        ("Open MPI", "PMI", False, 3, True),
        ("Open MPI", "PMI", True, 3, False),  # Slurm's launcher speaks PMI to every MPI
        ("Open MPI", "PMI", True, 1, True),
        ("MPICH", "PMI", False, 1, True),
    ],
)
def test_the_launcher_of_another_mpi_is_refused(
    vendor: str,
    start: str,
    slurm: bool,
    world: int,
    refused: bool,
    library: Any,
    guards: list[Guard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched(monkeypatch, start, 1, 3)
    if slurm:
        monkeypatch.setenv("SLURM_JOB_ID", "17")
    library.vendor, library.COMM_WORLD.size = vendor, world
    if refused:
        by = "MPICH" if start == "PMI" else "Open MPI"
        with raises_naming(RunError, by, 3, vendor, "mpiexec"):
            communicators.initialised("prog")
    else:
        assert communicators.initialised("prog") is library


def test_without_mpi_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with raises_naming(RunError, "refimpl[mpi]", "mpi4py"):
        communicators.initialised("prog")


# -- pieces of gradients -----------------------------------------------------------------------------------------------


def test_arrays_are_cut_as_if_they_were_one_after_another() -> None:
    pieces = [np.arange(0, 5), np.arange(5, 5), np.arange(5, 12)]
    for start in range(13):
        for end in range(start, 13):
            found = communicators.slices(pieces, start, end)
            assert [number for one in found for number in one] == [*range(start, end)]
            assert all(one.size for one in found)
    assert [list(one) for one in communicators.split_like(np.arange(12), pieces)] == [list(one) for one in pieces]
    assert communicators.split_like(np.empty(0), []) == []
