"""One readable loop that asks the slots and writes a program; the program's listing and its proof."""

from refimpl.planner.instructions import (
    COMPUTE,
    Allocate,
    Copy,
    CopyIn,
    CopyOut,
    Counts,
    Free,
    FromStore,
    HostCopy,
    Instruction,
    Launch,
    Record,
    StepRow,
    ToStore,
    Wait,
    Work,
)
from refimpl.planner.planning import TooSlow, plan
from refimpl.planner.program import Program
from refimpl.slots.context import Context, Fate
from refimpl.slots.errors import DoesNotFit, SetupError
from refimpl.slots.planner_only import Codec
from refimpl.slots.search import Search, Trial
from refimpl.slots.setup import BASELINE, SLOTS, Setup

__all__ = [
    "BASELINE", "COMPUTE", "SLOTS", "Allocate", "Codec", "Context", "Copy", "CopyIn", "CopyOut", "Counts",
    "DoesNotFit", "Fate", "Free", "FromStore", "HostCopy", "Instruction", "Launch", "Program", "Record",
    "Search", "Setup", "SetupError", "StepRow", "ToStore", "TooSlow", "Trial", "Wait", "Work", "plan",
]  # fmt: skip
