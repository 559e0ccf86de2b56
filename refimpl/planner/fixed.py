"""Fixed addresses for a program: planned once with memory enough, it can be planned again at known addresses."""

from __future__ import annotations

from refimpl.memory.fixed_addresses import Fixed, FixedAddresses, fix_addresses
from refimpl.memory.trace import rounded
from refimpl.planner.program import Program


def fixed_addresses(program: Program, fixed: Fixed | None = None) -> FixedAddresses:
    """The allocator for a program that was planned with memory enough.

    Args:
        program: the resident tensors come first, side by side, and the pool follows them.
        fixed: the addresses of its trace, where they are known already.
    """
    places: list[tuple[int, int]] = []
    top = 0
    for tensor in program.network.resident:
        places.append((top, rounded(tensor.nbytes)))
        top += rounded(tensor.nbytes)
    events = program.allocation_trace()
    addresses = (fixed or fix_addresses(events)).addresses
    places += [(top + addresses[event.block], rounded(event.nbytes)) for event in events if event.nbytes]
    return FixedAddresses(places=tuple(places))
