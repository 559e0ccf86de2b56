"""The largest pool below the budget that a plan fits in.

More memory can be too much: best fit and its like place blocks by the holes that there are, and in a larger pool these
are others.  So a plan that fails for its holes at the budget is tried again in smaller pools.  Three words, one meaning
each: the *budget* may be used, the *pool* is taken, the *peak* is the most that is in use at a time.

The tries go down in equal steps, since a smaller pool costs speed, and then in longer ones.  The first that fits is
improved by halving the distance to the one that failed above it.  They end where a pool fails for want of bytes, and
not of a hole: every smaller one would, too.  Pools that fit between two tries are missed; on the papers' setups for
AlexNet and VGG-16, three in a hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from refimpl.memory.base import GRANULARITY
from refimpl.slots.errors import DoesNotFit

STEPS = 128  #: in the budget
TRIED = (*range(1, 25), 32, 40, 52, 64)  #: steps below the budget
HALVINGS = 4
MIB = 1 << 20

Planned = TypeVar("Planned")


def largest_smaller(attempt: Callable[[int], Planned], budget: int) -> tuple[int, Planned] | None:
    """The largest pool tried below the budget that fits, in bytes, and what was planned in it; None: none fits.

    Args:
        attempt: plans in a pool of a number of bytes, or raises `DoesNotFit`.
        budget: bytes; a pool of this size has failed for its holes.
    """
    unit = MIB if budget >= STEPS * MIB else GRANULARITY

    def below(steps: float) -> int:
        return int(budget * (1 - steps / STEPS)) // unit * unit

    found: tuple[int, Planned] | None = None
    too_large = budget
    for steps in TRIED:
        pool = below(steps)
        try:
            found = pool, attempt(pool)
            break
        except DoesNotFit as error:
            if not error.for_holes:
                return None
            too_large = pool
    if found is None:
        return None
    for _ in range(HALVINGS):
        pool = (found[0] + too_large) // 2 // unit * unit
        if pool <= found[0]:
            break
        try:
            found = pool, attempt(pool)
        except DoesNotFit:
            too_large = pool
    return found
