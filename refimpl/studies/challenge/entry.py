"""One point, entered with a setup: planned within a time limit, proved, timed again, kept as a row, and in a file.

A setup may be anyone's code.  What it returns is not trusted: the network must be what it was, the program must be
of this network, machine and budget, `verify` proves it, and its seconds are simulated again, on a copy of the machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, process_time
from typing import Any, NamedTuple

from refimpl.combined import Combined
from refimpl.files import replace_text
from refimpl.importing import own_code
from refimpl.machine import Machine
from refimpl.names.machines import named
from refimpl.network import Network
from refimpl.planner import Program, Setup, plan
from refimpl.planner.verify import Unsafe
from refimpl.points.many_plans import Row
from refimpl.studies.challenge.point_set import BestKnown, ChallengePoint
from refimpl.studies.grid.rows import FIELDS, GridPoint, fingerprint, network_of, row
from refimpl.studies.program_file import ProgramFileError, document, read
from refimpl.text import RefimplError, contents, one_line
from refimpl.vdnnpp import presets as vdnnpp

AGAIN = 1.0  #: seconds between two looks at the time
FORMAT = "refimpl challenge entry 1"
IDLE = 10  #: a plan that waits and computes nothing is ended after as many times its limit


class EntryError(RefimplError, ValueError):
    """A setup that breaks the rules of the challenge: one line that says which."""


class OutOfTime(BaseException):
    """Raised wherever the code is, which must not catch it as it may catch an Exception."""


def limited(work: Callable[[], Program], seconds: float) -> Program:
    """What `work` returns within as many seconds of processor time; raises `EntryError`.

    It looks every second, so that code which catches even `OutOfTime` is stopped the next time.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return work()

    begun, began = process_time(), monotonic()

    def look(*_: Any) -> None:
        if process_time() - begun >= seconds or monotonic() - began >= IDLE * seconds:
            # after a long call of C the next look may be due at once
            signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
            raise OutOfTime

    before = signal.signal(signal.SIGALRM, look)
    timer = signal.setitimer(signal.ITIMER_REAL, min(AGAIN, seconds), min(AGAIN, seconds))

    def stop() -> None:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)

    try:
        try:
            return work()
        finally:
            stop()
    except OutOfTime:
        stop()  # it may have been raised before the other one
        raise EntryError(f"it took more than {seconds:g} seconds to plan") from None


class EntryQuestion(NamedTuple):
    """A point, and what else its row and its file depend on."""

    point: GridPoint
    limit: float  #: processor seconds of the plan
    folder: str | None = None  #: where a better program is written: a row from another command has written none

    @property
    def key(self) -> str:
        """A hash; a row of `refimpl study`, of which nothing is proved, has another one."""
        return hashlib.sha256(json.dumps(["challenge", self.point.key, *self[1:]]).encode()).hexdigest()[:16]

    def fault(self, row: Row) -> str:
        return self.point.fault(row)

    def __str__(self) -> str:
        return str(self.point)


def entered(asked: EntryQuestion, keep: Callable[[GridPoint, Program], None] | None = None) -> Row:
    """The row of a question; whatever the setup does, there is one.

    Args:
        asked: what is planned, and within how many seconds.
        keep: called with the point and its program, which is proved.
    """
    point, key = asked.point, {"key": asked.key}
    try:
        return row(point, partial(proved_plan, limit=asked.limit, keep=keep and partial(keep, point))) | key
    except Exception as error:
        if own_code.raised(error):
            why = own_code.error_line(error)
        elif own_code.known:
            why = own_code.suspected_error_line(error)
        else:
            raise
    return dict.fromkeys(FIELDS) | point._asdict() | key | {"largest": False, "why": why}


def proved_plan(
    network: Network,
    setup: Setup,
    machine: Machine,
    budget: int,
    limit: float,
    keep: Callable[[Program], None] | None = None,
) -> Program:
    """As the planner's `plan`, and proved; raises `EntryError`, too."""
    if isinstance(setup, Combined):  # it may cut steps elsewhere
        setup = dataclasses.replace(setup, seams=False)
    if setup.seams:
        raise EntryError(f"{setup.name}: the steps of the challenge are whole; leave out seams=yes")
    before = marks(network, machine)
    try:
        program = limited(partial(plan, network, setup, machine, budget), limit)
    finally:
        if marks(network, machine) != before:
            network_of.cache_clear()
            raise EntryError(f"{setup.name} changes the network or the machine that it plans for")
    if program.network is not network or program.budget != budget or program.machine != machine:
        raise EntryError(f"{setup.name} returns a program for another network, machine or budget")
    program = timed(program)
    if keep is not None:
        keep(program)
    return program


def timed(program: Program) -> Program:
    """The program, proved, with the seconds that the simulator gives it on a machine that no setup has seen."""
    program = dataclasses.replace(program, machine=dataclasses.replace(program.machine))
    program.verify()
    return dataclasses.replace(program, planned_seconds=program.simulate().seconds)


def marks(network: Network, machine: Machine) -> int:
    """A number that is another one where a step, a call or a tensor is, or a figure of the machine."""
    steps = tuple((step.number, step.direction, step.calls) for step in network.steps)
    calls = tuple((call.key, call.operands, call.flops) for step in network.steps for call in step.calls)
    tensors = tuple((one.name, one.nbytes, one.kind, one.managed) for one in (*network.managed, *network.resident))
    return hash((steps, calls, tensors, machine))


# -- as a file ---------------------------------------------------------------------------------------------------------


def prove(path: str | Path, cases: Sequence[ChallengePoint]) -> tuple[ChallengePoint, BestKnown]:
    """The point that a file is about, and what it is worth there; raises `EntryError`.

    Args:
        path: of a file as `refimpl study challenge --save` writes it.
        cases: the printed points.
    """
    try:
        found = json.loads(contents(path))
    except OSError as error:
        raise EntryError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise EntryError(f"{path} is not JSON; refimpl study challenge SETUP --save FOLDER writes entries") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise EntryError(f"{path} is not an entry; refimpl study challenge SETUP --save FOLDER writes them")
    case = next((case for case in cases if [*case[:4]] == found.get("point")), None)
    if case is None:
        raise EntryError(f"{path} is of a point that this set does not print")
    network, machine = network_of(case.network, case.batch), named(case.machine)
    try:
        program = read(found.get("program"), network, machine, vdnnpp.VDNNPP_ALL.pinned)
        if program.budget != case.budget:
            raise EntryError(f"{path} is a program for {program.budget} bytes; the point has {case.budget}")
        if program.network.whole:
            raise EntryError(f"{path} cuts steps at their seams; those of the challenge are whole")
        program = timed(program)
    except ProgramFileError as error:
        raise EntryError(f"{path}: {error}") from None
    except Unsafe as error:
        raise EntryError(f"{path}: the program is not safe: {error}") from None
    return case, BestKnown(program.planned_seconds, one_line(str(found.get("by", ""))), fingerprint(program))


def save(folder: Path, cases: dict[GridPoint, ChallengePoint], point: GridPoint, program: Program) -> None:
    """Write the program of a point into the folder, if it is faster than the best that is known of it."""
    case = cases[point]
    if case.best is None or not beats(program.planned_seconds, case.best.seconds):
        return
    name = f"{point.network.replace(':', '-')}-{point.batch}-{point.machine}-{point.budget}.json"
    try:
        made = {"format": FORMAT, "by": point.setup, "point": case[:4], "program": document(program)}
    except ProgramFileError:  # its setup can be entered instead
        return
    replace_text(folder / name, json.dumps(made) + "\n")


def beats(seconds: float, best: float) -> bool:
    """Whether a time is better by more than rounding."""
    return seconds < best * (1 - 1e-9)
