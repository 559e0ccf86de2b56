"""An arena as large as what a program uses, and not as its budget.

An allocator that places blocks at both ends of the pool leaves a stretch in the middle that no block ever touches, and
the program's addresses reach to the end of the budget.  Whoever runs it takes one arena for all addresses.  So the
widest such stretch is cut out, and everything on its right moves left: blocks that did not overlap still do not, and
nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from refimpl.planner.instructions import Allocate, CopyIn, CopyOut, Free, Instruction, Launch
from refimpl.planner.order import Block


def close_gap(instructions: Sequence[Instruction], resident: Iterable[Block]) -> int:
    """Move the addresses, in place; the bytes that the arena is smaller by.

    Blocks are whole granules of the pool, and so is the gap: addresses stay multiples of what they were multiples of.
    """
    resident = list(resident)
    blocks = [(block.address, block.address + block.nbytes) for block in resident]
    blocks += [(i.address, i.address + i.nbytes) for i in instructions if isinstance(i, Allocate)]
    start, nbytes = widest_gap(blocks)

    def moved(address: int) -> int:
        return address - nbytes if address >= start + nbytes else address

    if nbytes:
        for block in resident:
            block.address = moved(block.address)
        for i in instructions:
            if isinstance(i, Launch):
                i.addresses = tuple(map(moved, i.addresses))
                i.workspace = i.workspace and (moved(i.workspace[0]), i.workspace[1])
            elif isinstance(i, (Allocate, Free, CopyOut, CopyIn)):
                i.address = moved(i.address)
    return nbytes


def widest_gap(blocks: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Start and bytes of the widest stretch to the left of a block that no block, (start, end), covers."""
    reached, where, widest = 0, 0, 0
    for start, end in sorted(blocks):
        if start - reached > widest:
            where, widest = reached, start - reached
        reached = max(reached, end)
    return where, widest
