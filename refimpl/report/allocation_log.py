"""Allocation logs in the CSV format of RMM, the RAPIDS Memory Manager: read one, write ours, replay one in any pool.

RMM's `logging_resource_adaptor` writes a line for each allocation and each free; its own replay benchmark reads them
back, and so do others' tools.  A log of any program can thus be replayed here, to see how much memory each allocator
would need for it, and a program of ours can be taken there.  A line, under the header of the six columns:

    Thread,Time,Action,Pointer,Size,Stream
    2342727,15:47:02.841961,allocate,0x10012400000,1048576,0

Time is the time of day to a microsecond; pointer and stream are hexadecimal; the size is in bytes, as requested and
not rounded.  An action is `allocate`, `free` or `allocate failure`, whose pointer is null.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from refimpl.memory import allocation_trace
from refimpl.memory.base import Pool, Statistics
from refimpl.text import RefimplError, counted, naming, opened, shown

COLUMNS = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"]
Action = Literal["allocate", "free", "allocate failure"]
ACTIONS: tuple[Action, ...] = get_args(Action)
NULL = {"(nil)": 0}  # what the C library prints for a null pointer


class LogError(RefimplError, ValueError):
    """A log cannot be read; the message names the file and the line."""


@dataclass(frozen=True)
class LoggedEvent:
    """A line of a log."""

    action: Action
    pointer: int  #: the block's address in the recorded run; 0 for a failure
    nbytes: int  #: as requested
    seconds: float = 0.0  #: since midnight, or since any other moment
    stream: int = 0  #: 0 is the default stream
    thread: int = 0


def read_rmm(path: str | Path) -> list[LoggedEvent]:
    """The events of a log, in the order of its lines."""
    events = []
    try:
        with opened(path, sys.maxsize) as file:  # a line at a time
            reader = csv.reader(io.TextIOWrapper(file, "utf-8-sig", "replace", newline=""))
            try:
                header = next(reader, [])
                if header != COLUMNS:
                    raise ValueError(f"it does not begin with the header {','.join(COLUMNS)}")
                for row in reader:
                    if row:
                        events.append(_event(row))
            except (ValueError, csv.Error) as error:
                raise LogError(f"{path}, line {max(reader.line_num, 1)}: {error}") from None
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror or error}") from None
    return events


def write_rmm(path: str | Path, events: Iterable[LoggedEvent]) -> None:
    """Write events as RMM does; seconds are rounded to a microsecond."""
    with naming(path), open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(",".join(COLUMNS) + "\n")
        for event in events:
            stream = f"{event.stream:#x}" if event.stream else "0"
            time = _time_of_day(event.seconds)
            file.write(f"{event.thread},{time},{event.action},{event.pointer:#x},{event.nbytes},{stream}\n")


def _event(row: list[str]) -> LoggedEvent:
    if len(row) != len(COLUMNS):
        raise ValueError(f"{counted(len(row), 'field')} where {len(COLUMNS)} belong; was the log cut off?")
    thread, time, action, pointer, nbytes, stream = row
    if action not in ACTIONS:
        raise ValueError(f"the action {shown(action)}; it must be one of {', '.join(map(repr, ACTIONS))}")
    return LoggedEvent(
        action=action,
        pointer=NULL[pointer] if pointer in NULL else _number("pointer", pointer, 16),
        nbytes=_number("size", nbytes, 10),
        seconds=_seconds(time),
        stream=_number("stream", stream, 16),
        thread=_number("thread", thread, 10),
    )


def _number(what: str, text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"the {what} {shown(text)} is not a {'hexadecimal' if base == 16 else 'whole'} number")
    return number


def _seconds(text: str) -> float:
    """Seconds of 15:47:02.841961."""
    if match := re.fullmatch(r"(\d{1,9}):(\d\d):(\d\d)[.:](\d{6})", text, re.ASCII):
        hours, minutes, seconds, microseconds = map(int, match.groups())
        return hours * 3600 + minutes * 60 + seconds + microseconds / 1e6
    raise ValueError(f"the time {shown(text)}; it must look like 15:47:02.841961")


def _time_of_day(seconds: float) -> str:
    whole, microseconds = divmod(round(seconds * 1e6), 1_000_000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{microseconds:06}"


@dataclass(frozen=True)
class LogMisfit:
    """An allocation that did not fit, and the pool at that moment."""

    position: int  #: of the event in the log, from 0
    nbytes: int  #: requested
    statistics: Statistics


@dataclass(frozen=True)
class LogReplay:
    """The result of replaying a log in a pool.  Events are named by their position in the log, from 0."""

    statistics: Statistics  #: of the pool after the last event; `peak` is the most that it ever held
    asked_peak: int  #: the most bytes that were alive at once in the recorded run, unrounded
    first_failure: LogMisfit | None  #: None: everything fitted
    failures: list[int] = field(default_factory=list)  #: allocations that did not fit
    recorded_failures: list[int] = field(default_factory=list)  #: that failed when the log was made; left out here
    unknown: list[int] = field(default_factory=list)  #: frees of a pointer that was not allocated in this log
    unfreed: list[int] = field(default_factory=list)  #: allocations never freed

    @property
    def fits(self) -> bool:
        return self.first_failure is None


def replay(events: Iterable[LoggedEvent], pool: Pool) -> LogReplay:
    """Replay the allocations and frees of a log in `pool`.

    An allocation that does not fit is left out, together with its free.  Where several threads wrote the log, a pointer
    can be allocated again a line before its free: the first free of a pointer is its oldest block's.
    """
    lines = list(events)
    alive: defaultdict[int, deque[int]] = defaultdict(deque)  # pointer → positions of its allocations
    asked = asked_peak = 0
    blocks: list[allocation_trace.TraceEvent] = []  # a block's number is the position of its allocation
    recorded_failures, unknown = [], []
    for position, event in enumerate(lines):
        if event.action == "allocate failure":
            recorded_failures.append(position)
        elif event.action == "allocate":
            alive[event.pointer].append(position)
            blocks.append(allocation_trace.TraceEvent(position, max(event.nbytes, 1)))
            asked += event.nbytes
            asked_peak = max(asked_peak, asked)
        elif not alive[event.pointer]:
            unknown.append(position)
        else:
            block = alive[event.pointer].popleft()
            blocks.append(allocation_trace.TraceEvent(block, 0))
            asked -= lines[block].nbytes
    first_failure = None
    failures = []
    rest, addresses = iter(blocks), dict[int, int]()
    while (misfit := allocation_trace.replay(rest, pool, addresses)) is not None:
        position = misfit.event.block
        failures.append(position)
        first_failure = first_failure or LogMisfit(position, lines[position].nbytes, pool.statistics())
    return LogReplay(
        statistics=pool.statistics(),
        asked_peak=asked_peak,
        first_failure=first_failure,
        failures=failures,
        recorded_failures=recorded_failures,
        unknown=unknown,
        unfreed=sorted(position for positions in alive.values() for position in positions),
    )
