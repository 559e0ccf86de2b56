"""Compression: threads of the host compress the maps in pinned memory, so that their buffers serve other maps.

A map that was copied out is *raw*, in a buffer of pinned memory.  If the module in the slot `pinned` says so, the
threads compress it into ordinary memory, the *store*.  Before it is copied in it is decompressed into a buffer again.
The threads are a stream like the others and take maps in the order in which these left.  Maps that still wait for them
when forward ends, or whose buffer has not been given back yet, stay raw: they are needed first.

The buffer of a compressed map is given to another one only when no room is left, the oldest first: the copy into it
waits for the threads, and so their lead is as long as can be.  Where pinned memory has a limit, room is left up to the
limit.  Without one, the simulated clock decides how much pinned memory the plan takes: it takes more rather than a
buffer whose map the threads have not compressed by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import cast

from refimpl.machine import HOST, Machine
from refimpl.memory import UNLIMITED
from refimpl.memory.packing import packed_limit
from refimpl.network import Step, Tensor
from refimpl.planner.context import PlanContext
from refimpl.planner.instructions import Compress, Decompress, pinned_size
from refimpl.planner.order import Block, Order
from refimpl.planner.pinned import PinnedMemory
from refimpl.planner.slots import BoundCompression, Pinned


class CompressedMaps(PinnedMemory):
    """Pinned memory whose maps are compressed.

    Args:
        module: says which maps are compressed, and when they are decompressed.
        order: the program's draft.
        machine: how fast the threads are.
        stream: of the threads.
        device: the tensors that are on the device at the moment.
    """

    module: BoundCompression

    def __init__(
        self, module: BoundCompression, order: Order, machine: Machine, stream: int, device: Container[Tensor]
    ) -> None:
        super().__init__(module, order)
        self._machine, self._stream, self._device = machine, stream, device
        self._stored: dict[Tensor, Block] = {}
        self._planned: dict[Tensor, int] = {}  #: bytes that a compressed map is expected to take
        self._waiting: deque[Tensor] = deque()  #: copied out, and to be compressed
        #: compressed map → its buffer, and when the threads are done; the oldest first
        self._returning: dict[Tensor, tuple[Block, float]] = {}
        self._now = 0.0  #: when the running step begins, by the simulated clock

    def advance(self, step: Step, now: float) -> None:
        """A step begins: the threads get more to do."""
        forward_ends = not step.forward and (self._step is None or self._step.forward)
        super().advance(step, now)
        self._now = now
        if forward_ends:
            self._waiting.clear()
            for tensor in list(self._returning):
                self._take(tensor)
        if step.forward:
            while self._waiting and max(self._order.clock.now[self._stream], self._copied(self._waiting[0])) <= now:
                self._compress(self._waiting.popleft())
        else:
            while (wanted := self.module.next_wanted(step)) is not None:
                if wanted not in self._device:
                    self._decompress(wanted)

    # -- copies --------------------------------------------------------------------------------------------------------

    def left(self, tensor: Tensor) -> None:
        super().left(tensor)
        if tensor in self._fixed:
            return
        assert self._step is not None
        self._planned.pop(tensor, None)  # another content may be another case
        nbytes = self.module.compressed_bytes(tensor, self._step)
        if nbytes is not None:
            self._planned[tensor] = nbytes
            self._waiting.append(tensor)

    def source(self, tensor: Tensor) -> Block:
        """The buffer that a copy in reads; a compressed map is decompressed first."""
        if tensor not in self._fixed:
            self._decompress(tensor)
        return super().source(tensor)

    def _copies(self, tensor: Tensor) -> list[Block]:
        returning = self._returning.get(tensor)  # the raw copy is there until another map goes over it
        found = (self._stored.get(tensor), returning and returning[0])
        return super()._copies(tensor) + [block for block in found if block is not None]

    # -- buffers -------------------------------------------------------------------------------------------------------

    def _take(self, tensor: Tensor) -> Block:
        """A buffer for the map: its own if no other map has got that yet, or a new one."""
        if tensor not in self._returning:
            self._reuse(pinned_size(tensor.nbytes))
            return super()._take(tensor)
        block = self._raw[tensor] = self._returning.pop(tensor)[0]
        return block

    def _reuse(self, nbytes: int) -> None:
        """Where there is no limit, take no more pinned memory than the threads need by the simulated clock."""
        while self.module.limits[HOST] == UNLIMITED and self._returning and self.module.room < nbytes:
            oldest, (_, done) = next(iter(self._returning.items()))
            if done > self._now:
                break
            self._give_back(oldest)

    def _give_back(self, tensor: Tensor) -> None:
        """The map is compressed (or its raw copy is of no use): its buffer can serve another."""
        block = self._returning.pop(tensor)[0] if tensor in self._returning else self._raw.pop(tensor)
        self._leave_to_others(block)
        self.module.emptied(tensor)

    def _make_room(self) -> bool:
        """Pinned memory is full: give a buffer back, or start what will empty one; the map that gets it waits."""
        spare = [tensor for tensor in self._raw if not self._raw[tensor].valid or self._is_stored(tensor)]
        left_raw = [tensor for tensor in self._raw if tensor in self._planned]
        if self._returning:
            self._give_back(next(iter(self._returning)))
        elif self._waiting:
            self._compress(self._waiting.popleft())
        elif spare:  # outdated, or decompressed ahead: the last of those is needed last
            self._give_back(spare[-1])
        elif left_raw:
            self._compress(left_raw[0])
        else:
            return False
        return True

    # -- the threads ---------------------------------------------------------------------------------------------------

    def _copied(self, tensor: Tensor) -> float:
        """When the copy out of a waiting map is done; at once if it is no longer there to be compressed."""
        block = self._raw.get(tensor)
        return max((self._order.ends[k] for k in block.writes if k >= 0), default=0.0) if block else 0.0

    def _is_stored(self, tensor: Tensor) -> bool:
        return tensor in self._stored and self._stored[tensor].valid

    def _compress(self, tensor: Tensor) -> None:
        raw = self._raw.get(tensor)
        if raw is None or not raw.valid or self._is_stored(tensor):
            return  # it was copied in or written to in the meantime
        stored = self._stored.get(tensor)
        if stored is None:
            limit = pinned_size(packed_limit(tensor.nbytes))
            stored = self._stored[tensor] = Block(tensor, self.store_bytes, limit, self._streams)
            self.store_bytes += limit
        done = self._work(Compress, tensor, raw, stored)
        self.counts["compressed_bytes"] += tensor.nbytes
        self.counts["stored_bytes"] += self._planned[tensor]
        self._returning[tensor] = self._raw.pop(tensor), done

    def _decompress(self, tensor: Tensor) -> None:
        raw = self._raw.get(tensor)
        if (raw is not None and raw.valid) or not self._is_stored(tensor):
            return  # it is there as it was, or nowhere
        raw = raw or self._take(tensor)
        if not raw.valid:  # else its old buffer still holds it
            self._work(Decompress, tensor, raw, self._stored[tensor])

    def _work(self, what: type[Compress] | type[Decompress], tensor: Tensor, raw: Block, stored: Block) -> float:
        """Give the threads a map to do; returns when they are done, in seconds of the simulated clock."""
        assert self._step is not None
        nbytes = tensor.nbytes
        work = what(self._step.number, tensor, raw.address, stored.address, nbytes, self._planned[tensor], self._stream)
        source, target = (raw, stored) if what is Compress else (stored, raw)
        position = self._order.work(work, self._machine.host_seconds(nbytes), [source], [target])
        target.valid = True
        return self._order.ends[position]


def pinned_memory(module: Pinned, context: PlanContext, order: Order, device: Container[Tensor]) -> PinnedMemory:
    """The pinned memory of one plan; the threads' stream is the last."""
    bound = module.bind(context)
    if not module.compresses:
        return PinnedMemory(bound, order)
    return CompressedMaps(cast(BoundCompression, bound), order, context.machine, order.streams[-1], device)
