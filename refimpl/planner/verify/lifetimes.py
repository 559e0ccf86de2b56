"""Rule 2, where everything is: blocks, the device arena with its live blocks, pinned memory and the other tiers.

A block carries its own clocks: its last write, and the last read of every stream since then.  The next access only
has to be ordered after those.  Free bytes are in a map of ranges, each with the clocks of the block that was there
last; a new block takes over the clocks of every range it is cut from.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping

from refimpl.network import Tensor


class CheckedBlock:
    """Bytes of one memory, whose they are, what they hold, and who touched them last.

    An access to a block counts as one to all its bytes, those that rounding added included.  Instructions are named by
    their position: the second iteration goes on counting where the first one ended.
    """

    __slots__ = ("address", "copied", "end", "number", "read_at", "tensor", "write_stream", "written_at")

    def __init__(self, tensor: Tensor | None, address: int, end: int, read_at: dict[int, int]) -> None:
        self.tensor, self.address, self.end = tensor, address, end
        self.written_at = -1  #: position of the last write, -1: none yet
        self.write_stream = 0
        self.read_at = read_at  #: stream → position of its last read since then, and what is inherited until then
        self.number: int | None = None  #: of the value it holds; None: nothing
        self.copied = -1  #: position of the copy that filled it, until that is read

    def last_accesses(self) -> dict[int, int]:
        """Stream → position: what is ordered after these is after every access so far."""
        if self.read_at or self.written_at < 0:
            return self.read_at  # every read is after the write
        return {self.write_stream: self.written_at}


class FreeBytes:
    """A map of ranges that do not overlap.  At first it is one range, never accessed."""

    def __init__(self, size: int) -> None:
        self._starts = [0] if size else []
        self._ranges = {0: CheckedBlock(None, 0, size, {})} if size else {}

    def at(self, address: int) -> CheckedBlock | None:
        """The range that was put back exactly here."""
        return self._ranges.get(address)

    def put(self, block: CheckedBlock) -> None:
        """The block's bytes are free again."""
        insort(self._starts, block.address)
        self._ranges[block.address] = block

    def take(self, start: int, end: int) -> list[CheckedBlock] | None:
        """Cut the bytes start..end out of the ranges; None, and nothing happens, if some of them are not here."""
        if start >= end:
            return None
        starts, ranges = self._starts, self._ranges
        first = past = bisect_right(starts, start) - 1
        reached = start
        while reached < end:
            if not 0 <= past < len(starts) or not starts[past] <= reached < ranges[starts[past]].end:
                return None
            reached = ranges[starts[past]].end
            past += 1
        cut = [ranges.pop(address) for address in starts[first:past]]
        rests = []
        if cut[0].address < start:
            rests.append(CheckedBlock(None, cut[0].address, start, cut[0].last_accesses()))
        if end < cut[-1].end:
            rests.append(CheckedBlock(None, end, cut[-1].end, cut[-1].last_accesses()))
        starts[first:past] = [rest.address for rest in rests]
        for rest in rests:
            ranges[rest.address] = rest
        return cut

    def forget(self) -> None:
        """The content of the ranges is invalid from now on; their clocks stay."""
        for block in self._ranges.values():
            block.tensor = block.number = None


def inherited(cut: list[CheckedBlock]) -> dict[int, int]:
    """The clocks a new block takes over from the ranges it was cut from."""
    clocks: dict[int, int] = {}
    for block in cut:
        for stream, position in block.last_accesses().items():
            if position > clocks.get(stream, -1):
                clocks[stream] = position
    return clocks


class CheckedDevice:
    """The device arena.  `live` holds every live block by its address, the resident tensors' for ever."""

    def __init__(self, size: int) -> None:
        self.live: dict[int, CheckedBlock] = {}
        self.free_bytes = FreeBytes(size)
        self.held = self.peak = 0  #: bytes

    def allocate(self, tensor: Tensor, address: int, nbytes: int) -> CheckedBlock | None:
        """A live block; None if some of its bytes are another's, or outside of the arena."""
        cut = self.free_bytes.take(address, address + nbytes)
        if cut is None:
            return None
        block = self.live[address] = CheckedBlock(tensor, address, address + nbytes, inherited(cut))
        self.held += nbytes
        self.peak = max(self.peak, self.held)
        return block

    def free(self, block: CheckedBlock) -> None:
        del self.live[block.address]
        self.held -= block.end - block.address
        self.free_bytes.put(block)

    def overlapped(self, address: int, nbytes: int) -> CheckedBlock | None:
        """A live block that these bytes overlap.  Slow: for messages."""
        hits = [block for block in self.live.values() if block.address < address + nbytes and address < block.end]
        return min(hits, key=lambda block: block.address, default=None)


class HostMemory:
    """The pinned arena, another tier, or the store.

    The buffers of the batch, the results and the optimiser's states stay; any other bytes belong to who wrote there
    last.

    No instruction frees a buffer of the host.  So all other buffers are among the free bytes, with their content: a
    copy out may overwrite them, and what it overwrites is lost.
    """

    def __init__(self, size: int, stays: Mapping[Tensor, int] = {}, name: str = "pinned memory") -> None:
        self.name = name
        self.free_bytes = FreeBytes(size)
        self.stays: dict[int, CheckedBlock] = {}  #: the buffers that stay, by address
        self.lost: dict[Tensor, int] = {}  #: tensor → position of what went over its copy
        self.misplaced = [tensor for tensor, address in stays.items() if not self._keep(tensor, address)]

    def _keep(self, tensor: Tensor, address: int) -> bool:
        if self.free_bytes.take(address, address + tensor.nbytes) is None:
            return False
        self.stays[address] = CheckedBlock(tensor, address, address + tensor.nbytes, {})
        return True

    def buffer(self, tensor: Tensor, address: int) -> CheckedBlock | None:
        """The buffer that holds, or held, this tensor's copy at this address."""
        block = self.stays.get(address) or self.free_bytes.at(address)
        return block if block is not None and block.tensor is tensor else None

    def overwrite(self, tensor: Tensor, address: int, nbytes: int, position: int) -> CheckedBlock | None:
        """A buffer that may be written to; None if it is outside the memory, or on what stays."""
        block = self.buffer(tensor, address)
        if block is not None:
            return block
        cut = self.free_bytes.take(address, address + nbytes)
        if cut is None:
            return None
        self.lost.update((gone.tensor, position) for gone in cut if gone.tensor is not None)
        block = CheckedBlock(tensor, address, address + nbytes, inherited(cut))
        self.free_bytes.put(block)
        return block

    def forget(self) -> None:
        """An iteration is over: what it left on the host must not be read, except the results."""
        self.free_bytes.forget()
        self.lost.clear()
