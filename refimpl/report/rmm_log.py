"""The program's allocations as a log in the CSV format of RMM, for other tools and for `refimpl.memory.log.replay`."""

from __future__ import annotations

from pathlib import Path

from refimpl.machine import Timeline
from refimpl.memory.log import Event, write_rmm
from refimpl.planner import Allocate, Free, Program
from refimpl.report.times import compute_clock
from refimpl.report.torch_snapshot import BASE


def rmm_events(program: Program, timeline: Timeline) -> list[Event]:
    """Every allocation and every free of one iteration, the resident tensors' first; these are never freed.

    A free stands where the block goes back to the pool.  Sizes are those asked for, seconds count from the start of the
    iteration.
    """
    events = [Event("allocate", BASE + address, tensor.nbytes) for tensor, address in program.resident.items()]
    for instruction, now in zip(program.instructions, compute_clock(program, timeline), strict=False):
        if isinstance(instruction, Allocate):
            events.append(Event("allocate", BASE + instruction.address, instruction.tensor.nbytes, now))
        elif isinstance(instruction, Free):
            events.append(Event("free", BASE + instruction.address, instruction.tensor.nbytes, now))
    return events


def write_rmm_log(path: str | Path, program: Program, timeline: Timeline) -> None:
    """The log as a file."""
    write_rmm(path, rmm_events(program, timeline))
