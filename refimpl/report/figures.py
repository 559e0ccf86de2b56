"""The data of tables and pictures: the contents of device memory at every moment of a program, and its copies.

Everything is recounted from the instructions, in linear time or nearly so; nothing is drawn here.

A *position* is an index into `program.instructions`.  A block drains from the end of the step that released its tensor
(`Free.released`) until its bytes go back to the pool.  A tensor that was released, and wanted again before its bytes
were given back, counts as never released.

Memory that the program never touches is no hole: holes are counted below the highest address that it ever uses.
"""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from refimpl.machine import Choice, Timeline
from refimpl.memory.free_list import FreeList
from refimpl.network import Call, Tensor
from refimpl.planner import CopyIn, CopyOut, Free, Launch, Program
from refimpl.planner.heading import heading

if TYPE_CHECKING:
    import numpy as np

#: What device memory holds, in the order in which it is stacked in a picture.
KINDS = ("resident", "input", "map", "gradient map", "weight gradient", "workspace", "momentum", "draining")

NAME = 72  #: letters of a setup's name that a heading has room for


@dataclass(frozen=True, slots=True)
class DrawnLifetime:
    """One block, from the instruction that allocates it to the one that frees it."""

    tensor: Tensor
    kind: str  #: one of `KINDS`, never "draining"
    address: int
    nbytes: int  #: of the block: rounded up
    begin: int  #: position of its `Allocate`; -1 for resident tensors
    let_go: int  #: position from which it drains; `end` if it never does
    end: int  #: position of its `Free`; the number of instructions for resident tensors


def title(program: Program, timeline: Timeline | None = None) -> str:
    """The head of a table or a picture: network, batch, setup, machine, and whether its times are simulated."""
    how = "measured" if timeline and not timeline.simulated else "simulated"
    machine = timeline.machine if timeline else program.machine.name
    setup = textwrap.shorten(program.setup.name, NAME, placeholder=" …")
    return f"{heading(program.network, program.machine)} · {setup} · {machine} ({how})"


def average_live_bytes(program: Program) -> int:
    """The mean over the steps of the bytes that are live just before each one's launch."""
    return round(sum(row.live_bytes for row in program.rows) / len(program.rows))


def step_ends(program: Program) -> list[int]:
    """Step number → the position after its last instruction; 0: that of what comes before the first step."""
    steps = [instruction.step for instruction in program.instructions]
    return [bisect_right(steps, number) for number in range(len(program.network.steps) + 1)]


def lifetimes(program: Program) -> list[DrawnLifetime]:
    """Every block: the resident tensors', then the others in the order in which they were allocated."""
    rounded = program.setup.allocator.open(0).rounded
    ends, last = step_ends(program), len(program.instructions)
    found = [
        DrawnLifetime(tensor, "resident", address, rounded(tensor.nbytes), -1, last, last)
        for tensor, address in program.resident.items()
    ]
    for life in program.lifetimes():
        free, let_go, block = program.instructions[life.end], life.end, life.allocate
        assert isinstance(free, Free)
        if free.released < free.step:
            let_go = max(ends[free.released], life.begin)
        kind = life.tensor.kind
        found.append(DrawnLifetime(life.tensor, kind, block.address, block.nbytes, life.begin, let_go, life.end))
    return found


def choices(program: Program) -> dict[Call, Choice]:
    """Call → the algorithm that its step runs it with; a rebuild may run it with another."""
    launches = (i for i in program.instructions if isinstance(i, Launch) and not i.rebuild)
    return {launch.call: launch.choice for launch in launches if launch.choice is not None}


# -- how much, of what -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryCurve:
    """Bytes held by the pool, by kind, at every moment at which they change; the last moment is after the program."""

    positions: np.ndarray  #: the state is the one just after this instruction; -1: before the first
    steps: np.ndarray  #: the number of the step that the instruction belongs to
    by_kind: dict[str, np.ndarray]  #: kind → bytes at every moment

    @property
    def total(self) -> np.ndarray:
        """Bytes held, of all kinds, at every moment."""
        import numpy as np

        held: np.ndarray = np.sum(list(self.by_kind.values()), axis=0)
        return held

    @property
    def peak(self) -> int:
        """Index of the first moment at which most is held."""
        return int(self.total.argmax())


def memory_curve(program: Program) -> MemoryCurve:
    """Recount the bytes in the pool.  The total is `pool_bytes` of the program's rows, its peak `peak_bytes`."""
    import numpy as np

    changes: list[tuple[int, str, int]] = []  # the position before which it happens, kind, bytes
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
    )


# -- where -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The pool at one moment: every block and every hole, by address."""

    position: int  #: just after this instruction
    blocks: list[DrawnLifetime]
    holes: list[tuple[int, int]]  #: (address, bytes)

    @property
    def hole_bytes(self) -> int:
        return sum(nbytes for _, nbytes in self.holes)

    @property
    def largest_hole(self) -> int:
        return max((nbytes for _, nbytes in self.holes), default=0)


@dataclass(frozen=True)
class Fragmentation:
    """The blocks over time and the holes between them, below `size` bytes."""

    size: int
    lifetimes: list[DrawnLifetime]
    rows: list[tuple[int, int, int, int]]  #: of the columns below, at every moment
    peak: int  #: position of the allocation that fills the pool most; -1: it is never fuller than at the start

    @cached_property
    def columns(self) -> list[np.ndarray]:
        """The rows, transposed: a plan's table needs none of them, and no NumPy."""
        import numpy as np

        return list(np.array(self.rows).T)

    @property
    def positions(self) -> np.ndarray:
        """The state is the one just after this instruction; -1: before the first."""
        return self.columns[0]

    @property
    def hole_bytes(self) -> np.ndarray:
        """Of all holes."""
        return self.columns[1]

    @property
    def largest_hole(self) -> np.ndarray:
        """Bytes."""
        return self.columns[2]

    @property
    def holes(self) -> np.ndarray:
        """Their number."""
        return self.columns[3]

    def layout(self, position: int) -> Layout:
        """The pool just after instruction `position`."""
        alive = [life for life in self.lifetimes if life.begin <= position < life.end]
        alive.sort(key=lambda life: life.address)
        starts = [*(life.address for life in alive), self.size]
        ends = [0, *(life.address + life.nbytes for life in alive)]
        holes = [(end, start - end) for end, start in zip(ends, starts, strict=True) if end < start]
        return Layout(position, alive, holes)


def pool_size(program: Program) -> int:
    """Bytes of the pool, in whole units of its allocator."""
    granularity = program.setup.allocator.granularity
    return program.pool_bytes // granularity * granularity


def fragmentation(program: Program, size: int | None = None) -> Fragmentation:
    """Follow the pool through the program.

    Args:
        program: the program.
        size: bytes below which free ranges count; by default up to the highest address that the program ever uses, so
            that memory never touched is no hole.
    """
    size = program.arena_bytes if size is None else size
    found, holes = lifetimes(program), FreeList(size)
    changes: list[tuple[int, bool, DrawnLifetime]] = []
    free = size
    for life in found:
        if life.kind == "resident":
            holes.cut(life.address, life.nbytes)
            free -= life.nbytes
        else:
            changes += [(life.begin, True, life), (life.end, False, life)]
    changes.sort(key=lambda change: change[0])
    rows = [(-1, free, holes.largest, len(holes))]
    for position, arrives, life in changes:
        (holes.cut if arrives else holes.give)(life.address, life.nbytes)
        free += -life.nbytes if arrives else life.nbytes
        rows.append((position, free, holes.largest, len(holes)))
    return Fragmentation(size, found, rows, peak=min(rows, key=lambda row: row[1])[0])


# -- copies -----------------------------------------------------------------------------------------------------------


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
