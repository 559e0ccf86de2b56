"""A process beside the ranks of one machine: it says which rank was killed, since the launcher then ends all of them,
and which one is stopped, since the others then wait for it without a word.

It is started by rank 0, in a session of its own, and waits for the end of any rank.  Several may end before it looks:
epoll lists them in the order in which they ended.  It imports nothing of this project, so that it starts at once.

    python guard.py PROGRAM FOLDER RANK:PID …      "done" on standard input: every rank ends as it should

Another one is beside each rank while MPI waits for all of them to begin, which some may never do.

    python guard.py LINE SECONDS                   the end of standard input: all have begun
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 2.0  #: seconds between two looks whether a rank is stopped


def watch(program: str, folder: str, ranks: dict[int, int]) -> None:
    """Wait until rank 0 says that all is done, or a rank ends: then say so, and end the others.

    Args:
        program: begins the line that is written to standard error.
        folder: where a rank that gives up writes why, in a file of its number.
        ranks: rank → its process.
    """
    events = select.epoll()
    events.register(0, select.EPOLLIN)
    rank_of = {}
    for rank, process in ranks.items():
        descriptor = os.pidfd_open(process)
        rank_of[descriptor] = rank
        events.register(descriptor, select.EPOLLIN)
    stopped: set[int] = set()
    while True:
        found = events.poll(POLL_SECONDS)
        if not found:
            stopped = tell_stopped(program, ranks, stopped)
        for descriptor, _ in found:
            if descriptor in rank_of:
                end(program, Path(folder), rank_of[descriptor], ranks)
                return
            if os.read(0, 16):
                return
            events.unregister(0)  # rank 0 has ended; which rank ended first is still to be seen


def tell_stopped(program: str, ranks: dict[int, int], known: set[int]) -> set[int]:
    """The ranks that are stopped now, and a line for each new one; none where all are: the user has stopped them."""
    stopped = {rank for rank, process in ranks.items() if state(process) in "Tt"}
    for rank in sorted(stopped - known) if len(stopped) < len(ranks) else ():
        how = f"kill -CONT {ranks[rank]} lets it go on"
        line = f"{program}: rank {rank} of {len(ranks)} is stopped (process {ranks[rank]}), and the others wait; {how}"
        with suppress(OSError):
            os.write(2, f"{line}\n".encode())
    return stopped


def state(process: int) -> str:
    """The letter of a process's state: T is stopped."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "?"


def end(program: str, folder: Path, rank: int, ranks: dict[int, int]) -> None:
    """Say which rank has ended and why; end the others."""
    why = f"was killed (process {ranks[rank]}: SIGKILL, or the machine ran out of memory)"
    with suppress(OSError):
        why = "gave up: " + (folder / str(rank)).read_text(encoding="utf-8")
    with suppress(OSError):
        os.write(2, f"{program}: rank {rank} of {len(ranks)} {why}; all ranks end\n".encode())
    for process in ranks.values():
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)
    for file in (*folder.glob("*"), folder):
        with suppress(OSError):
            (os.rmdir if file == folder else os.unlink)(file)


def await_others(line: str, seconds: float) -> None:
    """Say the line and end the rank that has started this process, unless all ranks have begun by then."""
    if not select.select([0], [], [], seconds)[0]:
        os.write(2, f"{line}\n".encode())
        os.kill(os.getppid(), signal.SIGKILL)


if __name__ == "__main__" and len(sys.argv) == 3:
    await_others(sys.argv[1], float(sys.argv[2]))
elif __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2], {int(r): int(p) for r, p in (one.split(":") for one in sys.argv[3:])})
