"""One readable loop that asks the slots and writes a program; the program's listing and its proof."""

from refimpl.planner.context import PlanContext
from refimpl.planner.errors import DoesNotFit, TooSlow
from refimpl.planner.fixed import FixedAddresses, fixed_addresses
from refimpl.planner.instructions import (
    COMPUTE,
    Allocate,
    Compress,
    CopyIn,
    CopyOut,
    Counts,
    Decompress,
    Fate,
    Free,
    Instruction,
    Launch,
    Record,
    StepRow,
    Wait,
)
from refimpl.planner.loop import plan
from refimpl.planner.program import Program, Trial
from refimpl.planner.search import Search
from refimpl.planner.setup import SLOTS, Setup, SetupError
from refimpl.planner.verify import Proof, Unsafe

__all__ = [
    "COMPUTE",
    "SLOTS",
    "Allocate",
    "Compress",
    "CopyIn",
    "CopyOut",
    "Counts",
    "Decompress",
    "DoesNotFit",
    "Fate",
    "FixedAddresses",
    "Free",
    "Instruction",
    "Launch",
    "PlanContext",
    "Program",
    "Proof",
    "Record",
    "Search",
    "Setup",
    "SetupError",
    "StepRow",
    "TooSlow",
    "Trial",
    "Unsafe",
    "Wait",
    "fixed_addresses",
    "plan",
]  # fmt: skip
