"""A command that several processes run together: every process is a rank, and the first one alone speaks.

All ranks end together.  One that cannot go on says why where the ranks agree next; then the first rank writes the line
and each ends with that status.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refimpl.cli.parser import INTERRUPTED, WRONG, Fail, error_line, status_of

if TYPE_CHECKING:
    from refimpl.backend import Communicator
    from refimpl.parallel.communicators import Mpi

GPUS = Path("/proc/driver/nvidia/gpus")  #: a folder a GPU of this machine

Work = Callable[[argparse.Namespace, "Communicator"], int]


def as_rank(options: argparse.Namespace, work: Work) -> int:
    """The command as one of the ranks that MPI's launcher has started; its exit status."""
    from refimpl.backend import RankFailed
    from refimpl.parallel.communicators import Mpi

    communicator = Mpi(options.parser.prog)
    take_share(communicator)
    try:
        with silenced(communicator.rank > 0):
            return work(options, communicator)
    except RankFailed as error:
        return end_with(communicator, str(error), error.status)
    except KeyboardInterrupt:
        return fail_all(communicator, "interrupted", INTERRUPTED)
    except (Exception, SystemExit) as error:
        status = status_of(error)
        if status is None:  # a fault of ours, which keeps its traceback
            communicator.fail(f"{type(error).__name__}: {error}", WRONG)
            raise
        return fail_all(communicator, error_line(error), status)
    finally:
        communicator.close()


def refuse_without_parallel() -> None:
    """Raise `Fail` where a launcher has started several of a command that takes itself for the only one."""
    from refimpl.machine import here

    if started := here.launched():
        raise Fail(
            f"mpiexec has started {started.size} of this command, and it lacks --parallel mpi: without it each would "
            "train by itself"
        )


def tell_ranks(prog: str, why: str, status: int) -> bool:
    """Let the other ranks know of a command that has failed before it was one of them: they would wait for ever.

    Args:
        prog: the command.
        why: its one line.
        status: its exit status.

    Returns:
        Whether the line is the first rank's to write, and this is not the first.
    """
    from refimpl.machine import here

    started = here.launched()
    if started is None:
        return False
    if "mpi4py.MPI" in sys.modules:  # it was one of them, or its MPI is not theirs
        return started.rank > 0
    from refimpl.backend import RunError
    from refimpl.parallel.communicators import Mpi

    try:
        communicator = Mpi(prog, otherwise=why)
    except RunError:
        return False
    communicator.fail(why, status)
    communicator.close()
    return started.rank > 0


def fail_all(communicator: Communicator, why: str, status: int) -> int:
    """This rank cannot go on, and the others learn of it."""
    together = communicator.fail(why, status)
    return end_with(communicator, why if together else f"rank {communicator.rank}: {why}", status)


def end_with(communicator: Communicator, why: str, status: int) -> int:
    """The first rank ends the command with a line, the others with its status alone."""
    if communicator.rank == 0:
        raise Fail(why, status)
    return status


@contextmanager
def silenced(silent: bool) -> Iterator[None]:
    """Discards what is printed inside, if `silent`."""
    with ExitStack() as stack:
        if silent:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


def take_share(communicator: Mpi) -> None:
    """The ranks of one machine share its cores and its GPUs, unless the launcher has shared them out."""
    from kernels.targets.cpu.threads import cores

    os.environ.setdefault("REFIMPL_THREADS", str(max(1, cores() // communicator.local_size)))
    known = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = known.split(",") if known else [str(number) for number, _ in enumerate(GPUS.glob("*"))]
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[communicator.local_rank % len(gpus)]


def same_command(communicator: Communicator, described: Mapping[str, Any]) -> None:
    """Raise `Fail`, on every rank, unless all were started for the same training."""
    first, *others = map(json.loads, communicator.agree(json.dumps(described)))
    for rank, other in enumerate(others, 1):
        for name in {**first, **other}:
            mine, its = first.get(name), other.get(name)
            if mine != its:
                raise Fail(
                    f"rank {rank} was started with {name} {its}, and rank 0 with {name} {mine}; start all with the "
                    "same command"
                )
