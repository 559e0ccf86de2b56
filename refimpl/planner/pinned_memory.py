"""Pinned memory: which buffers hold the copies of the batch, the results and the maps outside the device.

The batch, results, states have buffers for the whole run, in front of the host's memory.  A map gets a buffer where the
module in the slot `pinned` says, when it is copied out: in the host's memory, or in another of the machine's tiers.
Each tier is a memory with addresses of its own.  A copy is valid until the tensor is written to on the device.

Where pinned memory has a limit, a buffer whose copy is no longer valid is given to the next map.  The order of the
streams takes care that no copy writes there too early.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from refimpl.machine import HOST
from refimpl.memory.tiers import pinned_size
from refimpl.network import Step, Tensor
from refimpl.planner.history import History
from refimpl.planner.order import Block, Order
from refimpl.slots.errors import PinnedDoesNotFit, Room
from refimpl.slots.questions import BoundPinned


class PinnedMemory:
    store_bytes = 0  #: of the store, at worst

    def __init__(self, module: BoundPinned, order: Order) -> None:
        self.module, self._order = module, order
        self._streams = len(order.streams)
        self._step: Step | None = None  #: the running one
        self.fixed_bytes = 0  #: of the buffers for the whole run
        self.taken: Counter[str] = Counter()  #: tier → bytes up to the highest address used
        self.counts: Counter[str] = Counter()
        self.fixed: dict[Tensor, Block] = {}  #: the buffers for the whole run
        self._raw: dict[Tensor, Block] = {}  #: in the order in which the buffers were taken
        self._freed: defaultdict[str, History] = defaultdict(History)  #: by tier

    def advance(self, step: Step) -> None:
        """A step begins."""
        self._step = step

    # -- what is where -------------------------------------------------------------------------------------------------

    def fix(self, tensor: Tensor, valid: bool) -> None:
        """A buffer for the whole run; `valid`: whether it holds the tensor already, as it does the batch."""
        nbytes = pinned_size(tensor.nbytes)
        block = self.fixed[tensor] = Block(tensor, self.fixed_bytes, nbytes, self._streams)
        block.valid = valid
        self.fixed_bytes = self.taken[HOST] = self.fixed_bytes + nbytes

    def has(self, tensor: Tensor) -> bool:
        """Whether the host has a valid copy."""
        return any(copy.valid for copy in self._copies(tensor))

    def outdate(self, tensor: Tensor) -> None:
        """The tensor is written to on the device."""
        for copy in self._copies(tensor):
            copy.valid = False

    def _copies(self, tensor: Tensor) -> list[Block]:
        return [block for block in (self.fixed.get(tensor), self._raw.get(tensor)) if block is not None]

    # -- copies --------------------------------------------------------------------------------------------------------

    def target(self, tensor: Tensor) -> Block:
        """The buffer that a copy out fills."""
        return self.fixed.get(tensor) or self._raw.get(tensor) or self._take(tensor)

    def left(self, tensor: Tensor) -> None:
        """A copy out has been issued."""
        self.target(tensor).valid = True

    def source(self, tensor: Tensor) -> Block:
        """The buffer that a copy in reads."""
        return self.fixed.get(tensor) or self._raw[tensor]

    def fetched(self, tensor: Tensor) -> None:
        """A copy in has been issued."""
        if tensor in self._raw and self.module.fetched(tensor):
            self._leave_to_others(self._raw.pop(tensor))

    # -- buffers -------------------------------------------------------------------------------------------------------

    def _take(self, tensor: Tensor) -> Block:
        """A new buffer for the map."""
        while (place := self.module.place(tensor)) is None:
            if not self._make_room():
                raise self._does_not_fit(tensor)
        tier, nbytes = place.tier, pinned_size(tensor.nbytes)
        address = place.address + (self.fixed_bytes if tier == HOST else 0)
        prior = self._freed[tier].take(address, address + nbytes)
        block = self._raw[tensor] = Block(tensor, address, nbytes, self._streams, prior, tier)
        self.taken[tier] = max(self.taken[tier], address + nbytes)
        return block

    def _make_room(self) -> bool:
        """Pinned memory is full: give back the last buffer whose copy is outdated; whether there was one."""
        outdated = [tensor for tensor, block in self._raw.items() if not block.valid]
        if not outdated or not self.module.fetched(outdated[-1]):
            return False
        self._leave_to_others(self._raw.pop(outdated[-1]))
        return True

    def _leave_to_others(self, block: Block) -> None:
        self._freed[block.tier].put(block.address, block.address + block.nbytes, block.accesses())

    def _does_not_fit(self, tensor: Tensor) -> PinnedDoesNotFit:
        rooms = [self._room(tier, limit) for tier, limit in self.module.limits.items()]
        return PinnedDoesNotFit.of(self._step, tensor.name, tensor.nbytes, rooms)

    def _room(self, tier: str, limit: int) -> Room:
        """The part of a tier that is free."""
        before = self.fixed_bytes if tier == HOST else 0
        taken = sorted((block.address - before, block.nbytes) for block in self._raw.values() if block.tier == tier)
        starts = [0, *(address + nbytes for address, nbytes in taken)]
        ends = [*(address for address, _ in taken), limit]
        hole = max(end - start for start, end in zip(starts, ends, strict=True))
        return Room(tier, limit, limit - sum(nbytes for _, nbytes in taken), hole)
