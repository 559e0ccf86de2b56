"""Fixed addresses: a program is planned, its blocks get their addresses, and it is planned again with these."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import ClassVar, NamedTuple

from refimpl.combined.fixed_memory import Answer, AtPlaces, Following, Noting
from refimpl.combined.fixed_pool import (
    ROUNDS,
    CountingPool,
    Fixed,
    FixedAddressesPool,
    by_age,
    by_area,
    by_size,
    fix_addresses,
    most_at_once,
    rounds,
)
from refimpl.combined.placing import Life
from refimpl.memory import UNLIMITED, Allocator, Pool, PoolError
from refimpl.memory.allocation_trace import rounded
from refimpl.memory.base import GRANULARITY
from refimpl.network import Network
from refimpl.planner.instructions import CopyIn, CopyOut, Launch, Lifetime
from refimpl.planner.program import Program
from refimpl.slots.errors import AddressesDoNotFit, DoesNotFit
from refimpl.slots.planner_only import PoolSearch

SHARES = (1.0, 0.5, 0.0)  #: of the time in which a block drains that nothing else may have its bytes
ORDERS = (by_size, by_area, by_age)  #: in which the blocks are placed
PLACINGS = 4000  #: of one block, from one order: of many blocks there are fewer rounds
FEWEST_ROUNDS = 4


@dataclass(frozen=True)
class FixedAddresses(Allocator, PoolSearch):
    """Bytes are counted first, at most `limit` of them (None: the budget); then every block gets its address.

    Without `places` its pool only counts: no hole is ever too small.  `search` adds the places, and plans again.  Where
    that does not fit, because other blocks drain, the third plan has the `answers` of the first.
    """

    limit: int | None = None
    early: bool = False  #: a block for a copy in takes bytes that are free early, so that the copy waits less
    #: (address, bytes) in the order of the allocations: of one program, the one that allocates exactly these blocks
    places: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    answers: tuple[Answer, ...] = field(default=(), repr=False)  #: of the memory that counted; () where none are needed
    rounds: int = field(default=ROUNDS, repr=False)  #: of placing all blocks from one order, at most

    name: ClassVar[str] = "fixed-addresses"
    summary: ClassVar[str] = "planned twice: bytes are counted first, then every block gets its address"

    def __post_init__(self) -> None:
        if self.granularity != GRANULARITY:
            raise PoolError(f"{self.name}: a granularity of {self.granularity} bytes; it is always {GRANULARITY}")

    def open(self, size: int) -> Pool:
        limit = size if self.limit is None else min(self.limit, size)
        if not self.places:
            return CountingPool(limit, self.granularity)
        return FixedAddressesPool(size, self.granularity, self.places, size if self.answers else limit)

    def search(self, attempt: Callable[..., Program], budget: int, fixed_order: bool) -> Program:
        if self.places:
            return attempt(budget, memory=partial(Following, answers=self.answers) if self.answers else AtPlaces)
        answers: list[Answer] = []
        counted = partial(attempt, budget, memory=partial(Noting, answers=answers))
        fixed = self.with_places(counted())  # and the program that was counted goes
        try:
            return attempt(budget, allocator=fixed)
        except DoesNotFit:
            fixed = dataclasses.replace(fixed, answers=tuple(answers))
        return attempt(budget, allocator=fixed, memory=partial(Following, answers=answers))

    def with_places(self, counted: Program) -> FixedAddresses:
        """This allocator, with a place for every block of a program whose bytes were only counted.

        A block keeps its bytes until the copies of it are done.  Where that does not fit, it keeps them for half of
        that time, then only until its release: then what takes its bytes over waits for the copy.

        Raises:
            AddressesDoNotFit: the addresses that were found take more than the budget.
        """
        budget, seconds, network = counted.budget, counted.planned_seconds, counted.network
        resident = sum(rounded(tensor.nbytes) for tensor in network.resident)
        lifetimes = counted.lifetimes()
        draining = lives_of(counted, lifetimes)
        if self.early:
            draining = begun_early(draining, lifetimes, counted, budget - resident)
        nbytes = [life.allocate.nbytes for life in lifetimes]
        del counted, lifetimes  # of a deep network they take more memory than all that follows
        most = max(FEWEST_ROUNDS, min(self.rounds, PLACINGS // max(1, len(draining))))
        least = UNLIMITED
        known: dict[int, Life] = {}
        for share in SHARES:
            before, known = known, {block: life.until(share) for block, life in draining.items()}
            if known == before or most_at_once(known) > budget - resident:  # nothing drains, or no addresses would do
                continue
            for order in ORDERS:
                fixed = rounds(known, order(known), budget - resident, most)
                least = min(least, resident + fixed.pool_bytes)
                if least <= budget:
                    return dataclasses.replace(self, places=places(network, nbytes, fixed), answers=())
        raise AddressesDoNotFit(least, budget, seconds)


def fixed_addresses(program: Program, fixed: Fixed | None = None) -> FixedAddresses:
    """The allocator that has a place for every block of a program.

    Args:
        program: planned with memory enough.
        fixed: the addresses of its trace, where they are known already.
    """
    nbytes = [life.allocate.nbytes for life in program.lifetimes()]
    return FixedAddresses(places=places(program.network, nbytes, fixed or fix_addresses(program.allocation_trace())))


def places(network: Network, nbytes: Sequence[int], fixed: Fixed) -> tuple[tuple[int, int], ...]:
    """(address, bytes) of all blocks; the resident tensors come first, side by side, and the pool follows them."""
    found: list[tuple[int, int]] = []
    top = 0
    for tensor in network.resident:
        found.append((top, rounded(tensor.nbytes)))
        top += rounded(tensor.nbytes)
    found += [(top + fixed.addresses[block], taken) for block, taken in enumerate(nbytes)]
    return tuple(found)


class DrainingLife(NamedTuple):
    """A block's life, by positions in the program; it may drain until `drained`."""

    begin: int
    end: int
    nbytes: int
    drained: int

    def until(self, share: float) -> Life:
        """The life with a share of the time in which the block drains."""
        return Life(self.begin, self.end + round(share * (self.drained - self.end)), self.nbytes)


def lives_of(program: Program, lifetimes: Sequence[Lifetime]) -> dict[int, DrainingLife]:
    """Every block's life: to its release, and until a copy out of it is done by the simulated clock."""
    timeline = program.simulate()
    copied = {id(span.instruction): span.end for span in timeline.on("out")}
    steps = timeline.steps()
    starts = [start for start, _ in steps.values()]
    numbers = [it.step for it in program.instructions]
    after = [*(bisect_left(numbers, step) for step in steps), len(program.instructions)]
    found: dict[int, DrainingLife] = {}
    for block, life in enumerate(lifetimes):
        end = drained = life.end
        if life.free and life.free.released != life.free.step:
            end = min(bisect_right(numbers, life.free.released), end)
        done = [copied[id(it)] for it in map(program.instructions.__getitem__, life.uses) if isinstance(it, CopyOut)]
        if done:
            drained = min(drained, max(end, after[bisect_left(starts, done[-1])]))
        found[block] = DrainingLife(life.begin, end, life.allocate.nbytes, drained)
    return found


def begun_early(
    lives: dict[int, DrainingLife], lifetimes: Sequence[Lifetime], program: Program, room: int
) -> dict[int, DrainingLife]:
    """The same lives, but a block for a copy in begins before the launches in whose time the copy could run.

    It begins no earlier than there is room, if every block ends with the last launch that uses it.  What is placed so
    shares no byte with blocks that these launches use, and the copy need not wait for them.

    Args:
        lives: of all blocks, as `lives_of` has them.
        lifetimes: of the same blocks, as the program has them.
        program: whose bytes were only counted.
        room: bytes for all blocks.
    """
    done = {id(span.instruction): span.end for span in program.simulate().on("compute")}
    instructions = program.instructions
    launches = [(position, done[id(it)]) for position, it in enumerate(instructions) if isinstance(it, Launch)]
    allocations = [life.begin for life in lifetimes]
    found, change = dict(lives), [0] * (len(instructions) + 1)
    copied: list[tuple[int, int]] = []  # the first copy into a block, and the block
    for block, known in enumerate(lifetimes):
        life = lives[block]
        copies = [at for at in known.uses if isinstance(instructions[at], CopyIn)]
        copied += [(at, block) for at in copies[:1]]
        if life.drained == life.end and known.free:  # nothing drains: it ends before the next allocation
            last = max((at for at in known.uses if isinstance(instructions[at], Launch)), default=0)
            over = max(last, allocations[bisect_left(allocations, known.end) - 1]) + 1
            found[block] = life = life._replace(end=over, drained=over)
        change[life.begin] += life.nbytes
        change[life.end] -= life.nbytes
    held = [*accumulate(change)]
    for first, block in sorted(copied):
        used = next((at for at in lifetimes[block].uses if isinstance(instructions[at], Launch)), None)
        if used is None:  # evicted before a launch used it
            continue
        place = bisect_left(launches, (used, 0.0))
        latest = launches[place - 1][1] if place else 0.0  # when the copy begins at the latest
        copy = instructions[first]
        if isinstance(copy, CopyIn) and first < used:
            latest -= program.machine.copy_seconds(copy.nbytes, "in", copy.tier)
        life = found[block]
        begin = life.begin
        for position, end in reversed(launches[: bisect_left(launches, (begin, 0.0))]):
            if end <= latest or max(held[position:begin]) + life.nbytes > room:
                break
            for at in range(position, begin):
                held[at] += life.nbytes
            begin = position
        found[block] = life._replace(begin=begin)
    return found
