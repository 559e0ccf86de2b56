"""Bytes that must not be read are made unreadable, so that a missing wait becomes a wrong number.

A *value* is what one write put into some bytes, with everything that changes or reads it before the next write.  Once
the last of those accesses has been executed the bytes are filled with ones: a NaN for a float, a label of -1.  If the
order is right, nothing that comes later has touched them yet.  If a wait is missing, a later value may be destroyed
here, or an access that comes too late finds ones.

What the next iteration needs of this one stays: the last values of resident tensors, and in pinned memory the results
and the optimiser's states.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from refimpl.backend.no_waits import uses
from refimpl.machine import HOST
from refimpl.network import Tensor
from refimpl.planner import Allocate, Launch, Program, Work
from refimpl.planner.instructions import DEVICE

Place = str  #: DEVICE, STORE, or the name of a tier
Bytes = tuple[Place, int, int]  #: where, first byte, past the last

ONES = 0xFF


@dataclass(eq=False)
class PoisonedValue:
    """The bytes of one write; `accesses` are positions in the program, the write first."""

    bytes: Bytes
    accesses: list[int] = field(default_factory=list)


class Poison:
    """Counts the accesses of a program down, iteration by iteration, and fills what has had its last one."""

    def __init__(self, program: Program, arenas: dict[Place, np.ndarray]) -> None:
        self._arenas = arenas
        self._workspaces: dict[int, Bytes] = {}  #: position of a launch → bytes that mean nothing after it
        self._touched: dict[int, list[PoisonedValue]] = {}
        self._stale: list[Bytes] = []  #: resident, and written before it is read: its content is not needed
        self._left: dict[PoisonedValue, int] = {}
        self._find(program)

    def _find(self, program: Program) -> None:
        now: dict[tuple[Tensor, Place, int], PoisonedValue] = {}  #: tensor, where, address → what it holds there
        values: list[PoisonedValue] = []
        for position, instruction in enumerate(program.instructions):
            if isinstance(instruction, Allocate):
                now.pop((instruction.tensor, DEVICE, instruction.address), None)
            elif isinstance(instruction, Work):
                given = instruction.call if isinstance(instruction, Launch) else None
                changed = {*given.reads, *given.updates} if given else set()
                for tensor, place, start, end, writes in uses(instruction):
                    at = place, start, end
                    if tensor is None:
                        self._workspaces[position] = at
                        continue
                    value = now.get((tensor, place, start))
                    fills = writes and tensor not in changed  # a change in place counts as a read
                    if value is None or fills:
                        if value is None and fills and not tensor.managed and place == DEVICE:
                            self._stale.append(at)
                        value = now[tensor, place, start] = PoisonedValue(at)
                        values.append(value)
                    value.accesses.append(position)
        results = {tensor: at for tensor, at in program.pinned.items() if tensor.kind in ("loss", "momentum")}
        stays = [(t, DEVICE, address) for t, address in program.resident.items()]
        stays += [(t, HOST, address) for t, address in results.items()]
        kept = {now[key] for key in stays if key in now}
        for value in values:
            if value not in kept:
                for position in value.accesses:
                    self._touched.setdefault(position, []).append(value)
        self._counts = {value: len(value.accesses) for value in values if value not in kept}

    def fill(self, where: Bytes) -> None:
        place, start, end = where
        self._arenas[place][start:end] = ONES

    def begin(self) -> None:
        """A new iteration."""
        self._left = dict(self._counts)
        for where in self._stale:
            self.fill(where)

    def executed(self, position: int) -> None:
        """The work at this position has been executed."""
        if position in self._workspaces:
            self.fill(self._workspaces[position])
        for value in self._touched.get(position, ()):
            self._left[value] -= 1
            if not self._left[value]:
                self.fill(value.bytes)
