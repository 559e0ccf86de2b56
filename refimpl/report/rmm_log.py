"""The program's allocations as a log in the CSV format of RMM, for other tools and for
`refimpl.report.allocation_log.replay`."""

from __future__ import annotations

from pathlib import Path

from refimpl.machine import Timeline
from refimpl.planner import Program
from refimpl.report.allocation_log import LoggedEvent, write_rmm
from refimpl.report.figures import lifetimes
from refimpl.report.times import compute_clock
from refimpl.report.torch_snapshot import BASE


def rmm_events(program: Program, timeline: Timeline) -> list[LoggedEvent]:
    """Every allocation and every free of one iteration, the resident tensors' first; these are never freed.

    A free is where the block goes back to the pool.  Sizes are the requested ones, seconds count from the start of the
    iteration.
    """
    clock = compute_clock(program, timeline)
    changes: list[tuple[int, LoggedEvent]] = []  # position, event
    for life in lifetimes(program):
        address, nbytes = BASE + life.address, life.tensor.nbytes
        changes.append((life.begin, LoggedEvent("allocate", address, nbytes, clock[max(life.begin, 0)])))
        if life.kind != "resident":
            changes.append((life.end, LoggedEvent("free", address, nbytes, clock[life.end])))
    return [event for _, event in sorted(changes, key=lambda change: change[0])]


def write_rmm_log(path: str | Path, program: Program, timeline: Timeline) -> None:
    """The log as a file."""
    write_rmm(path, rmm_events(program, timeline))
