"""Streams: whose work waits for whose.

Work on one stream runs in order.  Work on two streams runs in any order, unless one waits for an event of the other.
One rule makes every wait, and one place follows it (`Streams.work`): a piece of work comes after the last write of all
bytes that it touches, and after all reads of the bytes that it writes.  After each piece an event is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Moment(NamedTuple):
    """The end of a piece of work.  Other streams wait for it by its event."""

    number: int  #: of the piece of work, in the order in which the host gave it
    stream: Any
    event: Any
    seen: Counter[Any]  #: stream → its last piece of work that is sure to be done by then


@dataclass(eq=False)
class Buffer:
    """A tensor's bytes, on the device or in pinned memory, and the work that others may have to wait for."""

    address: int
    end: int
    array: Any  #: as the kernels take it
    read: dict[Any, Moment] = field(default_factory=dict)  #: stream → the last work that has read it since the write
    written: Moment | None = None  #: the last work that wrote it

    def moments(self) -> list[Moment]:
        """The end of all work on the bytes."""
        return [*self.read.values(), *([self.written] if self.written else [])]


class Streams:
    """The streams of `gpu`: `compute` for kernels, `out` and `into` for copies from and to the device.

    `shared`: one stream copies both ways.  `tell` hears of every wait.
    """

    def __init__(self, gpu: Any, shared: bool, tell: Callable[[str, str], None]) -> None:
        self.gpu, self.tell, self.number = gpu, tell, 0
        self.compute, self.out = gpu.stream(), gpu.stream()
        self.into = self.out if shared else gpu.stream()
        self.names = {self.compute: "compute", self.out: "out", self.into: "copies" if shared else "in"}
        self.seen: dict[Any, Counter[Any]] = {one: Counter() for one in self.names}  #: as a moment's
        self.last: dict[Any, Moment] = {}  #: stream → the end of its last work

    def work(self, stream: Any, do: Callable[[], None], reads: Iterable[Buffer], writes: Iterable[Buffer]) -> int:
        """Give a stream work, ordered after everything that it depends on; the number of the piece."""
        after = [buffer.written for buffer in (*reads, *writes) if buffer.written]
        self.wait(stream, [*after, *(moment for buffer in writes for moment in buffer.read.values())])
        do()
        event = self.gpu.event()
        event.record(stream)
        self.number = self.seen[stream][stream] = self.number + 1
        moment = self.last[stream] = Moment(self.number, stream, event, self.seen[stream].copy())
        for buffer in reads:
            buffer.read[stream] = moment
        for buffer in writes:
            buffer.written, buffer.read = moment, {}
        return moment.number

    def wait(self, stream: Any, moments: Iterable[Moment]) -> None:
        """All work to come on the stream runs after these; the latest first, as that may imply the others."""
        for moment in sorted(moments, reverse=True):
            if not self.is_past(stream, moment):
                self.tell("wait", f"{self.names[stream]} for #{moment.number} of {self.names[moment.stream]}")
                moment.event.wait(stream)  # on the device: the host goes on
                self.seen[stream] |= moment.seen  # the larger number of each stream

    def is_past(self, stream: Any, moment: Moment) -> bool:
        """Whether work to come on the stream runs after the moment without another wait."""
        return moment.number <= self.seen[stream][moment.stream]

    def is_over(self, buffer: Buffer) -> bool:
        """Whether kernels to come run after all work on the bytes."""
        return all(self.is_past(self.compute, moment) for moment in buffer.moments())

    def join(self) -> None:
        """Each stream waits for all others: the end of a layer of vDNN."""
        last = list(self.last.values())
        for stream in self.seen:
            self.wait(stream, last)

    def synchronize(self) -> None:
        """The host waits for all streams."""
        for stream in self.seen:
            stream.synchronize()


class Memory:
    """An array of bytes in which buffers begin and end; a new one waits for the work on those that had its bytes."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.past: list[Buffer] = []  #: whose bytes were given back

    def buffer(self, address: int, nbytes: int, like: Any) -> Buffer:
        """A buffer in `nbytes` that are free, with the shape and the type of `like`."""
        end = address + nbytes
        before = [moment for old in self.past if old.address < end and address < old.end for moment in old.moments()]
        self.past = [old for old in self.past if old.address < address or end < old.end]
        array = self.array[address : address + like.nbytes].view(like.dtype).reshape(like.shape)
        return Buffer(address, end, array, {moment.stream: moment for moment in sorted(before)})
