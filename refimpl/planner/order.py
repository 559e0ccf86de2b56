"""The one rule that makes every wait.

An instruction comes after, per stream, the latest write of all bytes it touches and the latest read of all bytes it
writes, on the device and in pinned memory.  Where the streams' own order and the waits so far do not imply that, a wait
goes in front of it, on an event recorded directly after the instruction waited for.

What is implied is known by vector clocks: `seen[s][q]` is the last instruction of stream q that everything to come on
stream s is ordered after.  Positions are those of a draft: records are still missing in it, and a wait names the
position that it waits for in place of an event.  `close` makes the program of it.

The arena is as large as what a program uses, and not as its budget.  An allocator that places blocks at both ends of
the pool leaves a stretch in the middle that no block ever touches.  So `close` cuts the widest such stretch out, and
everything on its right moves left: blocks that did not overlap still do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from operator import le
from typing import NamedTuple

from refimpl.machine import HOST, Clock, engine_of
from refimpl.network import Step, Tensor
from refimpl.planner.history import Accesses, latest
from refimpl.planner.instructions import COMPUTE, Allocate, Copy, Free, Instruction, Launch, Record, Wait, Work


class Block:
    """A tensor's bytes, on the device or in a tier, and its accesses, per stream, by position in the draft."""

    __slots__ = ("address", "nbytes", "prior", "reads", "tensor", "tier", "valid", "writes")

    def __init__(
        self, tensor: Tensor, address: int, nbytes: int, streams: int, prior: Accesses | None = None, tier: str = HOST
    ) -> None:
        self.tensor, self.address, self.nbytes = tensor, address, nbytes
        self.writes, self.reads = [-1] * streams, [-1] * streams
        self.prior = prior  #: the accesses to its bytes before it was allocated; None once one access is after them
        self.tier = tier  #: of a host copy: the memory that holds it
        self.valid = False  #: of a host copy: whether it is still what the device had

    def accesses(self) -> Accesses:
        """Everything that happened to the block's bytes."""
        own = latest(tuple(self.writes), tuple(self.reads))
        return own if self.prior is None else latest(own, self.prior)


class Order:
    """The draft of a program: instructions with the waits they need, and the simulated clock they run by."""

    def __init__(self, streams: int, clock: Clock) -> None:
        self.clock = clock
        self.streams = range(streams)
        self.draft: list[Instruction] = []
        self.ends: dict[int, float] = {}  #: position of a launch or copy → when it is done, by the simulated clock
        self._snapshots: dict[int, list[int]] = {}  #: position → what its stream had seen, itself included
        self._seen = [[-1] * streams for _ in self.streams]
        self._waited_for: set[int] = set()
        self.waits = self.kernel_waits = self.copies = 0
        self.step: Step | None = None  #: the running one; None before the first

    @property
    def now(self) -> int:
        """The running step's number, 0 before the first."""
        return self.step.number if self.step else 0

    def note(self, instruction: Instruction) -> None:
        """Append what happens in the books only: an allocation, a free."""
        self.draft.append(instruction)

    def comes_after(self, stream: int, accesses: Accesses) -> bool:
        """Whether all work to come on `stream` runs after these accesses, without another wait."""
        return all(map(le, accesses, self._seen[stream]))

    def work(self, work: Work, seconds: float, reads: Sequence[Block], writes: Sequence[Block]) -> int:
        """Append a piece of work, ordered after all it depends on; its position.  `writes` may be read too."""
        stream = work.stream
        needed = [-1] * len(self.streams)
        for block in (*reads, *writes):
            if block.prior is not None:  # everything later on this block will be ordered after this access
                needed = list(map(max, needed, block.prior))
                block.prior = None
            needed = list(map(max, needed, block.writes))
        for block in writes:
            needed = list(map(max, needed, block.reads))
        self.wait(stream, needed, work.step)
        position = len(self.draft)
        self.draft.append(work)
        self.copies += work.op in ("copy out", "copy in")
        seen = self._seen[stream]
        seen[stream] = position
        self._snapshots[position] = seen[:]
        for block in reads:
            block.reads[stream] = position
        for block in writes:
            block.writes[stream] = position
        _, self.ends[position] = self.clock.run(stream, engine_of(work), seconds)
        return position

    def wait(self, stream: int, needed: Sequence[int], step: int) -> None:
        """Order `stream` after the instructions `needed`, one a stream, with as few waits as possible."""
        seen = self._seen[stream]
        missing = [(needed[q], q) for q in self.streams if q != stream and needed[q] > seen[q]]
        for position, q in sorted(missing, reverse=True):
            if position <= seen[q]:
                continue  # implied by a wait just placed
            self._waited_for.add(position)
            self.draft.append(Wait(step, stream, position))
            self.waits += 1
            self.kernel_waits += stream == COMPUTE
            self._seen[stream] = seen = list(map(max, seen, self._snapshots[position]))
            self.clock.wait(stream, self.ends[position])

    def join(self, streams: Sequence[int] | None = None) -> None:
        """Every one of the streams (None: all) waits for all that the others have been given so far."""
        joined = self.streams if streams is None else streams
        tails = [self._seen[stream][stream] if stream in joined else -1 for stream in self.streams]
        for stream in joined:
            self.wait(stream, tails, self.now)

    def close(self, resident: Sequence[Block]) -> tuple[list[Instruction], int]:
        """The program, and the bytes that were cut out of its arena; addresses are final from here on.

        It is the draft with a record after each instruction that something waits for.

        Args:
            resident: blocks that are in no instruction; they move with the others.
        """
        self._snapshots.clear()  # nothing is ordered any more
        blocks: Iterable[Block | Allocate] = chain(resident, (i for i in self.draft if isinstance(i, Allocate)))
        gap = widest_gap((block.address, block.address + block.nbytes) for block in blocks)
        for block in resident:
            block.address = gap.moved(block.address)
        events = {position: number for number, position in enumerate(sorted(self._waited_for))}
        program: list[Instruction] = []
        for position, drafted in enumerate(self.draft):
            if isinstance(drafted, Wait):
                program.append(Wait(drafted.step, drafted.stream, events[drafted.event]))
                continue
            program.append(gap.cut_from(drafted) if gap.nbytes else drafted)
            if position in events:
                assert isinstance(drafted, Work)
                program.append(Record(drafted.step, drafted.stream, events[position]))
        return program, gap.nbytes


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
