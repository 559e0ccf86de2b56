"""An arena as large as what a program uses, and not as its budget.

An allocator that places blocks at both ends of the pool leaves a stretch in the middle that no block ever touches, and
the program's addresses reach to the end of the budget.  So the widest such stretch is cut out when a program's
instructions are closed, and everything on its right moves left: blocks that did not overlap still do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from refimpl.planner.instructions import Allocate, Copy, Free, Instruction, Launch


class Gap(NamedTuple):
    """A stretch of the pool.  It is whole granules, as blocks are: addresses stay multiples of what they were."""

    start: int
    nbytes: int

    def moved(self, address: int) -> int:
        """An address once the gap is cut out."""
        return address - self.nbytes if address >= self.start + self.nbytes else address

    def cut_from(self, instruction: Instruction) -> Instruction:
        """The instruction at its addresses once the gap is cut out."""
        if isinstance(instruction, Launch):
            addresses, space = tuple(map(self.moved, instruction.addresses)), instruction.workspace
            return replace(instruction, addresses=addresses, workspace=space and (self.moved(space[0]), space[1]))
        if isinstance(instruction, Allocate | Free | Copy) and instruction.address > self.start:
            return replace(instruction, address=self.moved(instruction.address))
        return instruction


def widest_gap(blocks: Iterable[tuple[int, int]]) -> Gap:
    """The widest stretch to the left of a block that no block, (start, end), covers."""
    reached, where, widest = 0, 0, 0
    for start, end in sorted(blocks):
        if start - reached > widest:
            where, widest = reached, start - reached
        reached = max(reached, end)
    return Gap(where, widest)
