"""The data behind tables and pictures: what is in device memory at every moment of a program, and what is copied.

Everything is recounted from the instructions, in linear time or nearly so; nothing is drawn here.

A *position* is an index into `program.instructions`.  How long a block drains, between the release of its tensor and
the moment in which it goes back to the pool, is told by `Free.released`, to the step: from the end of the step that let
go of it.  A tensor that was let go, and wanted again before its bytes were given back, counts as never let go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from dataclasses import dataclass

import numpy as np

from refimpl.network import Tensor
from refimpl.planner import Allocate, CopyIn, CopyOut, Free, Program

#: What device memory holds, in the order in which it is stacked in a picture.
KINDS = ("resident", "input", "map", "gradient map", "weight gradient", "workspace", "draining")


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One block, from the instruction that allocates it to the one that frees it."""

    tensor: Tensor
    kind: str  #: one of `KINDS`, never "draining"
    address: int
    nbytes: int  #: of the block: rounded up
    begin: int  #: position of its `Allocate`; -1 for resident tensors
    let_go: int  #: position from which it drains; `end` if it never does
    end: int  #: position of its `Free`; the number of instructions for resident tensors


def step_ends(program: Program) -> list[int]:
    """Step number → the position just behind its last instruction; 0 stands for what comes before the first step."""
    steps = [instruction.step for instruction in program.instructions]
    return [bisect_right(steps, number) for number in range(len(program.network.steps) + 1)]


def lifetimes(program: Program) -> list[Lifetime]:
    """Every block: the resident tensors', then the others in the order in which they were allocated."""
    instructions, ends = program.instructions, step_ends(program)
    frees: dict[int, list[int]] = {}  # address → positions of its frees, last first
    for position in range(len(instructions) - 1, -1, -1):
        instruction = instructions[position]
        if isinstance(instruction, Free):
            frees.setdefault(instruction.address, []).append(position)
    rounded = program.setup.allocator.open(0).rounded
    last = len(instructions)
    found = [
        Lifetime(tensor, "resident", address, rounded(tensor.nbytes), -1, last, last)
        for tensor, address in program.resident.items()
    ]
    for position, instruction in enumerate(instructions):
        if not isinstance(instruction, Allocate):
            continue
        end = frees[instruction.address].pop()
        free = instructions[end]
        assert isinstance(free, Free)
        let_go = ends[free.released] if free.released < free.step else end
        tensor, address, nbytes = instruction.tensor, instruction.address, instruction.nbytes
        found.append(Lifetime(tensor, tensor.kind, address, nbytes, position, max(let_go, position), end))
    return found


# -- how much, of what -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryCurve:
    """Bytes held by the pool, by kind, at every moment at which they change; the last moment is behind the program."""

    positions: np.ndarray  #: the state is the one just behind this instruction; -1: before the first
    steps: np.ndarray  #: the number of the step that the instruction belongs to
    by_kind: dict[str, np.ndarray]  #: kind → bytes at every moment
    budget: int

    @property
    def total(self) -> np.ndarray:
        """Bytes held, of all kinds, at every moment."""
        held: np.ndarray = np.sum(list(self.by_kind.values()), axis=0)
        return held

    @property
    def peak(self) -> int:
        """Index of the first moment at which most is held."""
        return int(self.total.argmax())

    def at(self, position: int) -> dict[str, int]:
        """Kind → bytes held while instruction `position` is given to its stream: just before it."""
        index = bisect_left(self.positions, position) - 1
        return {kind: int(held[index]) for kind, held in self.by_kind.items()}


def memory_curve(program: Program) -> MemoryCurve:
    """Recount what the pool holds.  Its total is `pool_bytes` of the program's rows, its peak `peak_bytes`."""
    changes: list[tuple[int, str, int]] = []  # the position in front of which it happens, kind, bytes
    for life in lifetimes(program):
        changes.append((life.begin + 1, life.kind, life.nbytes))
        if life.let_go < life.end:
            changes += [(life.let_go, life.kind, -life.nbytes), (life.let_go, "draining", life.nbytes)]
        if life.kind != "resident":
            changes.append((life.end + 1, "draining" if life.let_go < life.end else life.kind, -life.nbytes))
    moments = sorted({0, *(position for position, _, _ in changes)})
    index = {position: number for number, position in enumerate(moments)}
    by_kind = {kind: np.zeros(len(moments), dtype=np.int64) for kind in KINDS}
    for position, kind, nbytes in changes:
        by_kind[kind][index[position]] += nbytes
    steps = [program.instructions[position - 1].step if position else 0 for position in moments]
    return MemoryCurve(
        positions=np.array(moments) - 1,
        steps=np.array(steps),
        by_kind={kind: held.cumsum() for kind, held in by_kind.items()},
        budget=program.budget,
    )


# -- where -------------------------------------------------------------------------------------------------------------


class Holes:
    """The free ranges of a pool that somebody else fills; a block may be cut out anywhere."""

    def __init__(self, size: int) -> None:
        self._starts = [0] if size else []
        self._ends = {0: size} if size else {}
        self._by_size = [(size, 0)] if size else []
        self.free = size

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def largest(self) -> int:
        """Bytes that could be had in one piece."""
        return self._by_size[-1][0] if self._by_size else 0

    def take(self, address: int, nbytes: int) -> None:
        """A block begins to exist."""
        start = self._starts[bisect_right(self._starts, address) - 1]
        end = self._remove(start)
        assert start <= address and address + nbytes <= end, "a block overlaps another one"
        if start < address:
            self._insert(start, address)
        if address + nbytes < end:
            self._insert(address + nbytes, end)
        self.free -= nbytes

    def give(self, address: int, nbytes: int) -> None:
        """It ends."""
        end = address + nbytes
        place = bisect_left(self._starts, address)
        if place and self._ends[self._starts[place - 1]] == address:
            address = self._starts[place - 1]
            self._remove(address)
        if end in self._ends:
            end = self._remove(end)
        self._insert(address, end)
        self.free += nbytes

    def _insert(self, start: int, end: int) -> None:
        insort(self._starts, start)
        insort(self._by_size, (end - start, start))
        self._ends[start] = end

    def _remove(self, start: int) -> int:
        end = self._ends.pop(start)
        del self._starts[bisect_left(self._starts, start)]
        del self._by_size[bisect_left(self._by_size, (end - start, start))]
        return end


@dataclass(frozen=True)
class Layout:
    """The pool at one moment: every block and every hole, by address."""

    position: int  #: just behind this instruction
    blocks: list[Lifetime]
    holes: list[tuple[int, int]]  #: (address, bytes); the last may reach to the end of the pool

    @property
    def free_bytes(self) -> int:
        return sum(nbytes for _, nbytes in self.holes)

    @property
    def largest_hole(self) -> int:
        return max((nbytes for _, nbytes in self.holes), default=0)


@dataclass(frozen=True)
class Fragmentation:
    """Where blocks lie over time, and what is left between them.  `size` is the pool's, in bytes."""

    size: int
    lifetimes: list[Lifetime]
    positions: np.ndarray  #: the state is the one just behind this instruction; -1: before the first
    free: np.ndarray  #: bytes in no block
    largest_hole: np.ndarray  #: bytes that could be had in one piece
    holes: np.ndarray  #: how many
    peak: int  #: position of the allocation that fills the pool most; -1: it is never fuller than at the start

    def layout(self, position: int) -> Layout:
        """The pool just behind instruction `position`."""
        alive = [life for life in self.lifetimes if life.begin <= position < life.end]
        alive.sort(key=lambda life: life.address)
        holes, end = [], 0
        for life in alive:
            if life.address > end:
                holes.append((end, life.address - end))
            end = life.address + life.nbytes
        if end < self.size:
            holes.append((end, self.size - end))
        return Layout(position, alive, holes)


def fragmentation(program: Program) -> Fragmentation:
    """Follow the pool through the program."""
    granularity = program.setup.allocator.granularity
    size = program.budget // granularity * granularity
    found = lifetimes(program)
    holes = Holes(size)
    changes: list[tuple[int, bool, Lifetime]] = []
    for life in found:
        if life.kind == "resident":
            holes.take(life.address, life.nbytes)
        else:
            changes += [(life.begin, True, life), (life.end, False, life)]
    changes.sort(key=lambda change: change[0])
    rows = [(-1, holes.free, holes.largest, len(holes))]
    for position, arrives, life in changes:
        (holes.take if arrives else holes.give)(life.address, life.nbytes)
        rows.append((position, holes.free, holes.largest, len(holes)))
    positions, free, largest, counts = (np.array(column) for column in zip(*rows, strict=True))
    return Fragmentation(size, found, positions, free, largest, counts, peak=int(positions[free.argmin()]))


# -- what is moved -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Traffic:
    """The copies of one direction that have one reason."""

    direction: str  #: "copy out" or "copy in"
    why: str
    copies: int
    nbytes: int


def traffic(program: Program) -> list[Traffic]:
    """Every copy, by direction and reason, in the order of their first; the upload of the batch is among them."""
    copies: Counter[tuple[str, str]] = Counter()
    moved: Counter[tuple[str, str]] = Counter()
    for instruction in program.instructions:
        if isinstance(instruction, (CopyOut, CopyIn)):
            copies[instruction.op, instruction.why] += 1
            moved[instruction.op, instruction.why] += instruction.nbytes
    return [Traffic(*key, count, moved[key]) for key, count in copies.items()]
