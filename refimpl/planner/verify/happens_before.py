"""Rule 1, order: what is certain to have happened before what.

A stream runs its work in the order in which it was given.  A wait orders all later work of its stream after all that
the event's stream had been given, or had waited for, when the event was recorded.  That is all the order there is.

A vector clock says the same in numbers: `seen[s][q]` is the position of the last work of stream q that everything to
come on stream s is ordered after.  An earlier access on stream q is ordered before one on s if its position is at most
that.
"""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.planner.verify.lifetimes import CheckedBlock


@dataclass(eq=False)
class Unordered(Exception):
    """An access to a block that nothing orders after the access at position `earlier` on stream `stream`."""

    block: CheckedBlock
    stream: int
    earlier: int


class HappensBefore:
    """Vector clocks over the streams, for one instruction after the other."""

    def __init__(self, streams: int) -> None:
        self.seen = [[-1] * streams for _ in range(streams)]
        self._events: dict[int, list[int]] = {}  #: event → what its stream had seen when it was last recorded
        self._stream, self._position, self._now = 0, -1, self.seen[0]
        self.accesses = 0

    def forget_events(self) -> None:
        """An iteration is over: the next one records its events again."""
        self._events.clear()

    def record(self, stream: int, event: int) -> None:
        self._events[event] = self.seen[stream][:]

    def wait(self, stream: int, event: int) -> bool:
        """Order the stream after the event, which has been recorded; False if it was already."""
        before = self.seen[stream]
        self.seen[stream] = after = list(map(max, before, self._events[event]))
        return after != before

    def recorded(self, event: int) -> bool:
        return event in self._events

    def work(self, stream: int, position: int) -> None:
        """A launch or a copy begins; its accesses follow."""
        self._stream, self._position, self._now = stream, position, self.seen[stream]
        self._now[stream] = position

    def read(self, block: CheckedBlock) -> None:
        """A read must be ordered after the last write."""
        if block.written_at > self._now[block.write_stream]:
            raise Unordered(block, block.write_stream, block.written_at)
        block.read_at[self._stream] = self._position
        self.accesses += 1

    def write(self, block: CheckedBlock) -> None:
        """A write must be ordered after the last write and every read since, so what is after it is after those."""
        for stream, position in block.read_at.items():
            if position > self._now[stream]:
                raise Unordered(block, stream, position)
        if block.written_at > self._now[block.write_stream]:
            raise Unordered(block, block.write_stream, block.written_at)
        block.written_at, block.write_stream, block.read_at = self._position, self._stream, {}
        self.accesses += 1
