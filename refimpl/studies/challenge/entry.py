"""One point, entered with a setup: planned within a time limit, proved, timed again, and kept as a row.

A setup may be anyone's code.  What it returns is not trusted: the network must be what it was, the program must be
of this network, machine and budget, `verify` proves it, and its seconds are simulated again, on a copy of the machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import signal
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic, process_time
from typing import Any, NamedTuple

from refimpl.combined import Combined
from refimpl.importing import own_code
from refimpl.machine import Machine
from refimpl.network import Network
from refimpl.planner import Program, Setup, plan
from refimpl.points.many_plans import Row
from refimpl.studies.grid.rows import FIELDS, GridPoint, network_of, row
from refimpl.text import RefimplError

AGAIN = 1.0  #: seconds between two looks at the time
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
