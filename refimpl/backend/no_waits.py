"""Where a written-out program needs no wait although two streams use the same bytes: an earlier wait orders them.

A reader looks for a wait at each copy, and at the first kernel that reads what was copied in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from refimpl.backend.orders import awaited
from refimpl.network import Tensor
from refimpl.planner import CopyIn, CopyOut, Launch, Program, Record, Wait, Work
from refimpl.planner.instructions import DEVICE

Seen = dict[int, int]  #: stream → the position of its last work that is ordered before all later work of a stream


class Use(NamedTuple):
    """Bytes that a piece of work uses."""

    tensor: Tensor | None  #: None: a workspace
    memory: str
    start: int
    end: int
    writes: bool

    def clashes(self, other: Use) -> bool:
        """Whether both use a byte, and one of them writes it."""
        return (
            self.memory == other.memory
            and self.start < other.end
            and other.start < self.end
            and (self.writes or other.writes)
        )


def no_waits(program: Program) -> dict[int, str]:
    """Position of a copy, or of the first kernel that reads what was copied in → why it has no wait of its own."""
    records, copied = awaited(program), copied_in(program)
    seen: list[Seen] = [{} for _ in program.streams]
    at_record: dict[int, Seen] = {}
    waits: list[list[tuple[int, Wait, Seen]]] = [[] for _ in program.streams]  # with what each has ordered
    before: list[tuple[int, Any]] = []
    copied_out: set[tuple[Any, int]] = set()  # with the stream
    found: dict[int, str] = {}
    for position, i in enumerate(program.instructions):
        if isinstance(i, Wait):
            other = at_record[records[position]]
            mine = seen[i.stream]
            seen[i.stream] = {stream: max(mine.get(stream, -1), other.get(stream, -1)) for stream in mine | other}
            waits[i.stream].append((position, i, seen[i.stream]))
        elif isinstance(i, Record):
            at_record[position] = seen[i.stream]
        elif isinstance(i, Work):
            own = max((where for where, work in before if work.stream == i.stream), default=-1)
            for place, earlier in clashes(i, before, copied.get(position)):
                where, wait, _ = next(one for one in waits[i.stream] if one[2].get(earlier.stream, -1) >= place)
                if where < own:  # else the wait is the line above, with its reason
                    kind = "join" if program.setup.join else "wait"
                    found[position] = f"no wait: implied by the {kind} of step {wait.step}"
            if isinstance(i, CopyIn) and position not in found and (i.tensor, i.stream) in copied_out:
                found[position] = "no wait: same stream as its copy out"
            if isinstance(i, CopyOut):
                copied_out.add((i.tensor, i.stream))
            seen[i.stream] = seen[i.stream] | {i.stream: position}
            before.append((position, i))
    return found


def copied_in(program: Program) -> dict[int, set[Any]]:
    """Position of a kernel that is the first to read what was copied in → the copies."""
    found: dict[int, set[Any]] = {}
    here: dict[Any, CopyIn] = {}
    for position, i in enumerate(program.instructions):
        if isinstance(i, CopyIn):
            here[i.tensor] = i
        elif isinstance(i, Launch) and (read := here.keys() & {*i.call.reads, *i.call.updates}):
            found[position] = {here.pop(tensor) for tensor in read}
    return found


def clashes(i: Any, before: list[tuple[int, Any]], copies: set[Any] | None) -> Iterator[tuple[int, Any]]:
    """What a copy has to come after on each other stream, or a kernel of what it is the first to read."""
    if not copies and not isinstance(i, CopyIn | CopyOut):
        return
    mine, done = [*uses(i)], {i.stream}
    for position, other in reversed(before):
        if other.stream in done or (copies and other not in copies):
            continue
        if any(one.clashes(another) for one in mine for another in uses(other)):
            done.add(other.stream)
            yield position, other


def uses(work: Any) -> Iterator[Use]:
    """The bytes of a launch, or of a copy."""
    if isinstance(work, Launch):
        for tensor, address in zip(work.call.operands, work.addresses, strict=True):
            changed = tensor in work.call.writes or tensor in work.call.updates
            yield Use(tensor, DEVICE, address, address + tensor.nbytes, changed)
        if work.workspace is not None:
            start, nbytes = work.workspace
            yield Use(None, DEVICE, start, start + nbytes, True)
        return
    for region, written in ((work.source, False), (work.target, True)):
        yield Use(work.tensor, region.memory, region.address, region.address + region.nbytes, written)
