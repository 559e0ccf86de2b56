"""How the ranks of data-parallel training meet; `refimpl.backend.alone` has the protocol, and the one rank alone.

    Threads   threads of one process: short and obvious, the twin that every test compares with
    Mpi       processes started by mpiexec or by a cluster's launcher

The mean of a gradient is ((g_0 + g_1) + … + g_(n-1)) · float32(1/n) on every rank: summed in the order of ranks.
So it does not depend on how gradients are cut into buckets, on the library, or on which message comes first.  Each rank
owns an n-th of the numbers: it gets them from all others, sums, and gives the mean to all others.  A ring sends as many
bytes, but sums every n-th in another order.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

import numpy as np

from refimpl.backend.alone import Communicator
from refimpl.backend.run_errors import RankFailed, RunError
from refimpl.machine import here
from refimpl.parallel import guard

CHUNK = 1 << 14  #: numbers summed at once: they stay in the processor's cache
LONGEST_EAGER = 2000  #: numbers of the longest message that MPICH sends eagerly; two are faster than a longer one
MOST_GATHERED = 1 << 18  #: gradients of at most as many numbers are gathered in one message
POLL_SECONDS = 0.1  #: seconds between two looks whether another rank has failed
GRACE_SECONDS = 1.0  #: seconds in which a rank may still find what the other one failed with
PATIENCE = 120.0  #: seconds that a rank waits for the others, a process only until all have begun

Result = TypeVar("Result")


def shares(count: int, ranks: int) -> list[int]:
    """The index where each rank's share of `count` numbers begins; last, where the last one ends."""
    return [count * rank // ranks for rank in range(ranks + 1)]


def bytes_sent(nbytes: int, own: int, ranks: int) -> int:
    """Bytes that a rank sends: its part of the others' shares, then the mean of its own to each of them."""
    return nbytes - own + (ranks - 1) * own


# -- threads -----------------------------------------------------------------------------------------------------------


class Meeting:
    """The meeting point of the threads of one process: a barrier, and a place for what they exchange."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=PATIENCE)
        self.given: list[Any] = [None] * size


class Threads(Communicator):
    """One of several ranks in one process."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.size, self._meeting = rank, len(meeting.given), meeting

    @classmethod
    def of(cls, size: int) -> list[Threads]:
        """All ranks of a new meeting."""
        meeting = Meeting(size)
        return [cls(rank, meeting) for rank in range(size)]

    def mean(self, gradients: Sequence[np.ndarray]) -> Callable[[], None]:
        count = sum(gradient.size for gradient in gradients)
        start, end = shares(count, self.size)[self.rank : self.rank + 2]

        def reduce() -> None:
            of_ranks = self._all(np.concatenate([gradient.ravel() for gradient in gradients]))
            total = of_ranks[0].copy()
            for other in of_ranks[1:]:
                total += other
            total *= np.float32(1 / self.size)
            self.sent_bytes += bytes_sent(total.nbytes, 4 * (end - start), self.size)
            for gradient in gradients:
                gradient.reshape(-1)[:], total = total[: gradient.size], total[gradient.size :]

        return reduce

    def _exchange(self, word: str) -> list[str]:
        return self._all(word)

    def _all(self, mine: Any) -> list[Any]:
        meeting = self._meeting
        try:
            meeting.given[self.rank] = mine
            meeting.barrier.wait()
            found = list(meeting.given)
            meeting.barrier.wait()  # all have seen it
        except threading.BrokenBarrierError:
            raise RankFailed(self.rank, 1, "another rank has ended") from None
        return found

    def abort(self, why: str) -> None:
        self._meeting.barrier.abort()


def in_threads(size: int, work: Callable[[Communicator], Result]) -> list[Result]:
    """Run `work` as each of `size` ranks; its results by rank.  Raises the error of the first rank to fail."""

    def run(communicator: Threads) -> Result:
        try:
            return work(communicator)
        except BaseException as error:
            communicator.abort(str(error))
            raise

    with ThreadPoolExecutor(size) as pool:
        ranks = [pool.submit(run, communicator) for communicator in Threads.of(size)]
    errors = [error for rank in ranks if (error := rank.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, RankFailed)):
        raise error
    return [rank.result() for rank in ranks]


# -- MPI ---------------------------------------------------------------------------------------------------------------


class Mpi(Communicator):
    """One of several processes.

    Signals that stop a process are noted: the ranks agree on them once an iteration.  Before the first one they are
    raised at once, and the other ranks are told.  A process that is killed cannot say so: the launcher ends the others,
    and a guard (`refimpl.parallel.guard`) says which one it was.

    Args:
        program: the command's name, for what the guard says.
        otherwise: what it says if other ranks do not begin; that, if it is empty.
    """

    def __init__(self, program: str = "refimpl", otherwise: str = "") -> None:
        MPI = self._mpi = initialised(program, otherwise)
        world = MPI.COMM_WORLD
        self.rank, self.size = world.rank, world.size
        self._world, self._reduces, self._words, self._failures = world, world.Dup(), world.Dup(), world.Dup()
        machine = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = machine.rank, machine.size  #: among the ranks of this machine
        self._signals, self._preparing, self._told = 0, False, False
        self._telling: list[Any] = []
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        self._guard: subprocess.Popen[bytes] | None = None
        self._folder = world.bcast(tempfile.mkdtemp(prefix="refimpl-") if self.rank == 0 else None)
        places = world.allgather((socket.gethostname(), os.getpid()))
        self._guarded = places[self.rank][0] == places[0][0] and hasattr(os, "pidfd_open")
        if self.rank == 0 and self._guarded and self.size > 1:
            here = [f"{rank}:{pid}" for rank, (host, pid) in enumerate(places) if host == places[0][0]]
            self._guard = guarded(program, self._folder, *here)
        world.Barrier()

    # -- the mean ------------------------------------------------------------------------------------------------------

    def mean(self, gradients: Sequence[np.ndarray]) -> Callable[[], None]:
        """Both exchanges are made ready once, as persistent requests for a message a gradient.

        Small gradients are put side by side first: copying them takes less than many messages.
        """
        rank, size, reduces = self.rank, self.size, self._reduces
        if size == 1:
            return lambda: None
        flat = [gradient.reshape(-1) for gradient in gradients]
        count = sum(piece.size for piece in flat)
        gather: Callable[[], object] = lambda: None  # noqa: E731
        scatter = gather
        if len(flat) > 1 and count <= MOST_GATHERED:
            gathered = np.empty(count, np.float32)
            gather = partial(np.concatenate, flat, out=gathered)
            scatter = partial(copy_all, split_like(gathered, flat), flat)
            flat = [gathered]
        bounds = shares(count, size)
        pieces = [slices(flat, start, end) for start, end in pairwise(bounds)]
        sent_bytes = bytes_sent(4 * count, 4 * (bounds[rank + 1] - bounds[rank]), size)
        once = size == 2 and count <= CHUNK
        if once:  # each sums everything: as many bytes, in one exchange instead of two
            pieces = [flat, flat]
        own = pieces[rank]
        received = [split_like(np.empty(sum(one.size for one in own), np.float32), own) for _ in range(size)]
        received[rank] = own
        others = [(rank + step) % size for step in range(1, size)]
        to_owners = [reduces.Recv_init(one, other, tag) for other in others for tag, one in messages(received[other])]
        to_owners += [reduces.Send_init(one, other, tag) for other in others for tag, one in messages(pieces[other])]
        from_owners = [reduces.Recv_init(one, other, tag) for other in others for tag, one in messages(pieces[other])]
        from_owners += [reduces.Send_init(one, other, tag) for other in others for tag, one in messages(own)]
        chunks = [rows for arrays in zip(*received, strict=True) for rows in zip(*map(chunked, arrays), strict=True)]
        factor = np.array(1 / size, np.float32)
        start, wait = self._mpi.Prequest.Startall, self._mpi.Request.Waitall

        def reduce() -> None:
            gather()
            start(to_owners)
            wait(to_owners)
            for rows in chunks:
                total = rows[0]
                for other in rows[1:]:
                    np.add(total, other, out=total)
                np.multiply(total, factor, out=rows[rank])
            if not once:
                start(from_owners)
                wait(from_owners)
            scatter()
            self.sent_bytes += sent_bytes

        return reduce

    def plain_sum(self, numbers: np.ndarray) -> Callable[[], None]:
        """MPI's own all-reduce, in whatever order: for comparison."""
        total = np.empty_like(numbers)
        return lambda: self._reduces.Allreduce(numbers, total)

    def _exchange(self, word: str) -> list[str]:
        return list(self._words.allgather(word))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _note(self, number: int, frame: Any) -> None:
        self.interrupted = True
        self._signals += 1
        if self._preparing or self._signals > 2:  # nothing to be lost, or an impatient user
            raise KeyboardInterrupt

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """A thread listens for a rank that has failed, and interrupts this one."""
        done = threading.Event()
        listener = threading.Thread(target=self._listen, args=(done,), daemon=True)
        self._preparing = True
        listener.start()
        try:
            if self.interrupted:
                raise KeyboardInterrupt
            yield
            done.set()
            listener.join()
            ready = self._failures.Ibarrier()
            while not ready.Test() and not self._failures.Iprobe():
                sleep(POLL_SECONDS / 10)  # a signal is seen here, and not inside a call of MPI
        except BaseException:
            self._preparing = False
            if not self._told:
                others = [other for other in range(self.size) if other != self.rank]
                self._telling = [self._failures.Isend(b"", other) for other in others]
                raise
        finally:
            self._preparing = False
            done.set()
            listener.join()
        self.agree()  # a rank that was told hears why

    def _listen(self, done: threading.Event) -> None:
        while self._before and not done.wait(POLL_SECONDS):
            if self._failures.Iprobe():
                if not done.wait(GRACE_SECONDS):
                    self._told = True
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                return

    def abort(self, why: str) -> None:
        if self._guarded:  # which says it, and ends the others
            Path(self._folder, str(self.rank)).write_text(why, encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(2, f"rank {self.rank}: {why}\n".encode())
        self._world.Abort(1)

    def close(self) -> None:
        if self._guard is not None:
            assert self._guard.stdin is not None
            with suppress(OSError):
                self._guard.stdin.write(b"done")
                self._guard.stdin.close()
            self._guard.wait()
        self._world.Barrier()
        if self.rank == 0:
            shutil.rmtree(self._folder, ignore_errors=True)
        for number, handler in self._before.items():
            signal.signal(number, handler)


def guarded(*words: str) -> subprocess.Popen[bytes]:
    """A guard with these arguments, that has started."""
    command = [sys.executable, "-I", "-S", guard.__file__, *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def initialised(program: str, otherwise: str = "") -> Any:
    """The module `mpi4py.MPI`, initialised; raises `RunError` before MPI itself would end the process."""
    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise RunError(f"MPI is not there ({why}): pip install 'refimpl[mpi]', or mpi4py for your own MPI") from None
    library, started = MPI.get_vendor()[0], here.launched()
    if started and (library == "Open MPI") != (started.by == "Open MPI") and "SLURM_JOB_ID" not in os.environ:
        raise other_launcher(library, started)
    if not MPI.Is_initialized():
        beside = None
        if started:
            waits = f"rank {started.rank} of {started.size} has waited {PATIENCE:.0f} s for ranks that do not begin"
            line = f"{program}: {otherwise or waits + '; start all with the same command'}"
            beside = guarded(line, str(PATIENCE + started.rank))  # the first one that waits speaks
        MPI.Init_thread(MPI.THREAD_MULTIPLE)  # it would wait for ever, and no other thread of this process runs
        if beside:
            beside.communicate()
    if started and MPI.COMM_WORLD.size == 1:
        raise other_launcher(library, started)
    return MPI


def other_launcher(library: str, started: here.Launched) -> RunError:
    """The error for a process that the launcher of another MPI has started."""
    own = Path(sys.executable).with_name("mpiexec")
    which = str(own) if own.exists() else f"the mpiexec of {library}"
    return RunError(
        f"the mpiexec of {started.by} has started {started.size} processes, and mpi4py is that of {library}, for which "
        f"each is alone: start them with {which}"
    )


def slices(pieces: Sequence[np.ndarray], start: int, end: int) -> list[np.ndarray]:
    """Numbers start..end of arrays that are thought of as one after another."""
    found, offset = [], 0
    for piece in pieces:
        found.append(piece[max(0, start - offset) : max(0, end - offset)])
        offset += piece.size
    return [piece for piece in found if piece.size]


def split_like(row: np.ndarray, pieces: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A row of numbers, cut into arrays of the sizes of others."""
    return np.split(row, np.cumsum([piece.size for piece in pieces])[:-1]) if pieces else []


def messages(pieces: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """What is sent of arrays, numbered: the arrays, or both halves of one a little longer than `LONGEST_EAGER`."""
    halves = [np.split(one, [one.size // 2] if LONGEST_EAGER < one.size <= 2 * LONGEST_EAGER else []) for one in pieces]
    return enumerate(chain.from_iterable(halves))


def copy_all(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> None:
    """Copy each array to another."""
    for source, target in zip(sources, targets, strict=True):
        target[:] = source


def chunked(row: np.ndarray) -> list[np.ndarray]:
    """A row of numbers in chunks."""
    return [row[start : start + CHUNK] for start in range(0, row.size, CHUNK)]
