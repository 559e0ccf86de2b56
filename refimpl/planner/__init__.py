"""One readable loop that asks the slots and writes a program; the program's listing and its proof."""

from refimpl.planner.context import PlanContext
from refimpl.planner.errors import DoesNotFit, TooSlow
from refimpl.planner.fixed import FixedAddresses, fixed_addresses
from refimpl.planner.instructions import (
    COMPUTE,
    Allocate,
    Compress,
    Copy,
    CopyIn,
    CopyOut,
    Counts,
    Decompress,
    Fate,
    Free,
    Instruction,
    Launch,
    Packing,
    Record,
    StepRow,
    Wait,
    Work,
)
from refimpl.planner.loop import plan
from refimpl.planner.program import Program, Trial
from refimpl.planner.setup import BASELINE, SLOTS, Setup, SetupError
from refimpl.planner.setup_search import Search
from refimpl.planner.verify import Proof, Unsafe

__all__ = [
    "BASELINE", "COMPUTE", "SLOTS", "Allocate", "Compress", "Copy", "CopyIn", "CopyOut", "Counts", "Decompress",
    "DoesNotFit", "Fate", "FixedAddresses", "Free", "Instruction", "Launch", "Packing", "PlanContext", "Program",
    "Proof", "Record", "Search", "Setup", "SetupError", "StepRow", "TooSlow", "Trial", "Unsafe", "Wait", "Work",
    "fixed_addresses", "plan",
]  # fmt: skip
