"""The store: threads of the host copy maps from pinned memory into ordinary memory, so that buffers serve other maps.

A map that was copied out is *raw*, in a buffer of pinned memory.  If the module in the slot `pinned` says so, the
threads copy it into the *store*, written by the module's codec.  Before it is copied in it is copied back into a
buffer.  The threads are a stream like the others.

A map goes to the store when another one takes its buffer, the oldest first, and the copy into it waits for the threads.
The simulated clock has no say in it.  Without a limit on pinned memory a buffer is the map's for `lag` steps: a copy
waits only for threads that take longer.  Where there is a limit, all of it is taken before a buffer is given to another
map.  Maps whose buffers were not needed stay raw.
"""

from __future__ import annotations

from collections.abc import Container
from typing import cast

from refimpl.machine import HOST, Machine
from refimpl.memory import UNLIMITED
from refimpl.memory.tiers import pinned_size
from refimpl.network import Step, Tensor
from refimpl.planner.instructions import FromStore, ToStore
from refimpl.planner.order import Block, Order
from refimpl.planner.pinned_memory import PinnedMemory
from refimpl.slots.context import Context
from refimpl.slots.planner_only import BoundStore
from refimpl.slots.questions import Pinned


class StoredMaps(PinnedMemory):
    """Pinned memory whose maps may go on to the store.

    Args:
        module: says which maps go to the store, and when they come back.
        order: the program's draft.
        machine: how fast the threads are.
        stream: of the threads.
        device: the tensors that are on the device at the moment.
    """

    module: BoundStore

    def __init__(
        self, module: BoundStore, order: Order, machine: Machine, stream: int, device: Container[Tensor]
    ) -> None:
        super().__init__(module, order)
        self._machine, self._stream, self._device = machine, stream, device
        self._stored: dict[Tensor, Block] = {}
        self._planned: dict[Tensor, int] = {}  #: bytes that a map is expected to take in the store
        self._left: dict[Block, int] = {}  #: a buffer whose map can go to the store → the step at which that left

    def advance(self, step: Step) -> None:
        """A step begins: in backward, maps come back ahead."""
        super().advance(step)
        while not step.forward and (wanted := self.module.next_wanted(step)) is not None:
            if wanted not in self._device:
                self._bring_back(wanted)

    # -- copies --------------------------------------------------------------------------------------------------------

    def left(self, tensor: Tensor) -> None:
        super().left(tensor)
        if tensor in self.fixed:
            return
        assert self._step is not None
        self._planned.pop(tensor, None)  # another content may be another case
        nbytes = self.module.bytes_in_store(tensor, self._step)
        if nbytes is not None:
            self._planned[tensor], self._left[self._raw[tensor]] = nbytes, self._step.number

    def source(self, tensor: Tensor) -> Block:
        """The buffer that a copy in reads; a map that is in the store alone comes back first."""
        if tensor not in self.fixed:
            self._bring_back(tensor)
        return super().source(tensor)

    def _copies(self, tensor: Tensor) -> list[Block]:
        stored = self._stored.get(tensor)
        return super()._copies(tensor) + ([stored] if stored else [])

    # -- buffers -------------------------------------------------------------------------------------------------------

    def _take(self, tensor: Tensor) -> Block:
        """A new buffer for the map; in forward and without a limit, rather than more memory one that others had."""
        assert self._step is not None
        if self._step.forward and self.module.limits[HOST] == UNLIMITED:
            while self.module.room < pinned_size(tensor.nbytes) and self._make_room(self.module.lag):
                pass
        return super()._take(tensor)

    def _make_room(self, lag: int = 0) -> bool:
        """Give back a buffer whose map is not needed from there, or that of the oldest map, which is stored.

        That is done only to a map that left `lag` steps ago or earlier.
        """
        assert self._step is not None
        spare = (one for one, raw in reversed(self._raw.items()) if not raw.valid or self._is_stored(one))
        if last := next(spare, None):
            self._give_back(last)  # outdated, or back ahead: the last of those is needed last
            return True
        storable = (one for one, raw in self._raw.items() if raw in self._left and one in self._planned)
        oldest = next(storable, None)
        if not oldest or self._left[self._raw[oldest]] + lag > self._step.number:
            return False
        self._put_away(oldest)
        return True

    def _give_back(self, tensor: Tensor) -> None:
        """The map's buffer can serve another."""
        self._leave_to_others(self._raw.pop(tensor))
        self.module.emptied(tensor)

    # -- the threads ---------------------------------------------------------------------------------------------------

    def _is_stored(self, tensor: Tensor) -> bool:
        return tensor in self._stored and self._stored[tensor].valid

    def _put_away(self, tensor: Tensor) -> None:
        stored = self._stored.get(tensor)
        if stored is None:
            limit = pinned_size(self.module.codec.room(tensor.nbytes))
            stored = self._stored[tensor] = Block(tensor, self.store_bytes, limit, self._streams)
            self.store_bytes += limit
        self._copy(ToStore, tensor, self._raw[tensor], stored)
        self.counts["compressed_bytes"] += tensor.nbytes
        self.counts["stored_bytes"] += self._planned[tensor]
        self._give_back(tensor)

    def _bring_back(self, tensor: Tensor) -> None:
        raw = self._raw.get(tensor)
        if (raw is not None and raw.valid) or not self._is_stored(tensor):
            return  # it is there as it was, or nowhere
        self._copy(FromStore, tensor, raw or self._take(tensor), self._stored[tensor])

    def _copy(self, what: type[ToStore] | type[FromStore], tensor: Tensor, raw: Block, stored: Block) -> None:
        """Give the threads a map to copy."""
        assert self._step is not None
        planned, codec = self._planned[tensor], self.module.codec
        places = raw.address, stored.address, tensor.nbytes
        work = what(self._step.number, tensor, *places, planned, self._stream, codec)
        source, target = (raw, stored) if what is ToStore else (stored, raw)
        self._order.work(work, self._machine.host_seconds(tensor.nbytes), [source], [target])
        target.valid = True


def pinned_memory(module: Pinned, context: Context, order: Order, device: Container[Tensor]) -> PinnedMemory:
    """The pinned memory of one plan; the threads' stream is the last."""
    bound = module.bound(context)
    if not module.uses_store:
        return PinnedMemory(bound, order)
    return StoredMaps(cast(BoundStore, bound), order, context.machine, order.streams[-1], device)
