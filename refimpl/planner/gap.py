"""An arena as large as what a program uses, and not as its budget.

An allocator that places blocks at both ends of the pool leaves a stretch in the middle that no block ever touches, and
the program's addresses reach to the end of the budget.  So the widest such stretch is cut out when a program's
instructions are closed, and everything on its right moves left: blocks that did not overlap still do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from refimpl.planner.instructions import Allocate, Copy, Free, Instruction, Launch


class Gap(NamedTuple):
    """A stretch of the pool.  It is whole granules, as blocks are: addresses stay multiples of what they were."""

    start: int
    nbytes: int

    def moved(self, address: int) -> int:
        """An address once the gap is cut out."""
        return address - self.nbytes if address >= self.start + self.nbytes else address

    def cut_out(self, instruction: Instruction) -> None:
        """Move the addresses of an instruction, in place."""
        if isinstance(instruction, Launch):
            instruction.addresses = tuple(map(self.moved, instruction.addresses))
            space = instruction.workspace
            instruction.workspace = space and (self.moved(space[0]), space[1])
        elif isinstance(instruction, Allocate | Free | Copy):
            instruction.address = self.moved(instruction.address)


def widest_gap(blocks: Iterable[tuple[int, int]]) -> Gap:
    """The widest stretch to the left of a block that no block, (start, end), covers."""
    reached, where, widest = 0, 0, 0
    for start, end in sorted(blocks):
        if start - reached > widest:
            where, widest = reached, start - reached
        reached = max(reached, end)
    return Gap(where, widest)
