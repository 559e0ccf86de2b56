"""The planner's books of the host: where the copies of maps are, raw in pinned memory or compressed beside it.

A map that has left lies in a buffer of pinned memory.  If the module in the slot `pinned` says so it is then compressed
by threads of the host, into ordinary memory, and its buffer serves another map; before it comes back it is decompressed
into a buffer again.  The threads are a stream like the others.  Maps that are still waiting for them when forward ends
stay as they are: they are needed first.
"""

from __future__ import annotations

from collections import Counter, deque

from refimpl.machine import Machine
from refimpl.network import Step, Tensor
from refimpl.planner.history import History
from refimpl.planner.order import Block, Order
from refimpl.planner.program import Compress, Decompress, compressed_limit, pinned_size
from refimpl.planner.slots import BoundPinned


class Host:
    def __init__(self, pinned: BoundPinned, order: Order, machine: Machine, stream: int | None) -> None:
        self.pinned, self._order, self._machine = pinned, order, machine
        self._stream = stream  #: of the host's threads; None without any
        self._streams = len(order.streams)
        self.fixed_bytes = 0  #: of pinned memory: the batch's and the results', in front of the maps' buffers
        self.store_bytes = 0  #: what all compressed maps would take if none of their numbers were zero
        self.counts: Counter[str] = Counter()
        self._raw: dict[Tensor, Block] = {}
        self._stored: dict[Tensor, Block] = {}
        self._waiting: deque[Tensor] = deque()  #: copied out, and to be compressed
        self._returning: deque[tuple[Tensor, Block, float]] = deque()  #: buffers, and when their map is compressed
        self._freed = History()

    # -- what is where -------------------------------------------------------------------------------------------------

    def fix(self, tensor: Tensor, valid: bool) -> None:
        """A buffer that stays: the batch's, a result's."""
        nbytes = pinned_size(tensor.nbytes)
        block = self._raw[tensor] = Block(tensor, self.fixed_bytes, nbytes, self._streams)
        block.valid = valid
        self.fixed_bytes += nbytes

    def address(self, tensor: Tensor) -> int:
        return self._raw[tensor].address

    @property
    def pinned_bytes(self) -> int:
        return self.fixed_bytes + self.pinned.nbytes

    def has(self, tensor: Tensor) -> bool:
        """Whether the host has what the device has, or had."""
        return any(block is not None and block.valid for block in (self._raw.get(tensor), self._stored.get(tensor)))

    def outdate(self, tensor: Tensor) -> None:
        """The tensor is written to on the device."""
        for block in (self._raw.get(tensor), self._stored.get(tensor)):
            if block is not None:
                block.valid = False

    # -- copies --------------------------------------------------------------------------------------------------------

    def target(self, tensor: Tensor) -> Block:
        """The buffer that a copy out fills."""
        return self._raw.get(tensor) or self._take(tensor)

    def left(self, tensor: Tensor) -> None:
        """A copy out has been issued."""
        self._raw[tensor].valid = True
        if self._stream is not None and self.pinned.compressed_bytes(tensor) is not None:
            self._waiting.append(tensor)

    def source(self, tensor: Tensor, step: int) -> Block:
        """The buffer that a copy in reads; a compressed map is decompressed first."""
        self._decompress(tensor, step)
        return self._raw[tensor]

    def fetched(self, tensor: Tensor) -> None:
        """A copy in has been issued."""
        if self.pinned.fetched(tensor):
            self._leave_to_others(self._raw.pop(tensor))

    def _take(self, tensor: Tensor) -> Block:
        address = self.fixed_bytes + self.pinned.place(tensor)
        nbytes = pinned_size(tensor.nbytes)
        prior = self._freed.take(address, address + nbytes)
        block = self._raw[tensor] = Block(tensor, address, nbytes, self._streams, prior)
        return block

    def _leave_to_others(self, block: Block) -> None:
        self._freed.put(block.address, block.address + block.nbytes, block.accesses())

    # -- the host's threads --------------------------------------------------------------------------------------------

    def advance(self, step: Step, now: float) -> None:
        """What the threads have come to by the simulated clock: maps whose turn it is, buffers that are free again."""
        if self._stream is None:
            return
        while self._returning and self._returning[0][2] <= now:
            tensor, block, _ = self._returning.popleft()
            self._leave_to_others(block)
            self.pinned.emptied(tensor)
        if not step.forward:
            self._waiting.clear()
            for tensor in self.pinned.wanted(step):
                self._decompress(tensor, step.number)
        while self._waiting and max(self._order.clock.now[self._stream], self._copied(self._waiting[0])) <= now:
            self._compress(self._waiting.popleft(), step.number)

    def _copied(self, tensor: Tensor) -> float:
        """When the copy out of a waiting map is done; at once if it is no longer there to be compressed."""
        block = self._raw.get(tensor)
        return max((self._order.ends[k] for k in block.writes if k >= 0), default=0.0) if block else 0.0

    def _compress(self, tensor: Tensor, step: int) -> None:
        raw = self._raw.get(tensor)
        nbytes = self.pinned.compressed_bytes(tensor)
        if raw is None or not raw.valid or nbytes is None:
            return  # it has come back in the meantime, or has been written to
        stored = self._stored.get(tensor)
        if stored is None:
            limit = compressed_limit(tensor.nbytes)
            stored = self._stored[tensor] = Block(tensor, self.store_bytes, limit, self._streams)
            self.store_bytes += limit
        assert self._stream is not None
        work = Compress(step, tensor, raw.address, stored.address, tensor.nbytes, nbytes, self._stream)
        position = self._order.work(work, self._machine.host_seconds(tensor.nbytes), [raw], [stored])
        stored.valid = True
        self.counts["compressed_bytes"] += tensor.nbytes
        self.counts["stored_bytes"] += nbytes
        del self._raw[tensor]
        self._returning.append((tensor, raw, self._order.ends[position]))

    def _decompress(self, tensor: Tensor, step: int) -> None:
        raw, stored = self._raw.get(tensor), self._stored.get(tensor)
        if (raw is not None and raw.valid) or stored is None or not stored.valid:
            return  # it is there as it was, or nowhere
        raw = raw or self._take_back(tensor) or self._take(tensor)
        assert self._stream is not None
        nbytes = self.pinned.compressed_bytes(tensor) or 0
        work = Decompress(step, tensor, raw.address, stored.address, tensor.nbytes, nbytes, self._stream)
        self._order.work(work, self._machine.host_seconds(tensor.nbytes), [stored], [raw])
        raw.valid = True

    def _take_back(self, tensor: Tensor) -> Block | None:
        """The map's own buffer, if no other map has it yet."""
        for entry in self._returning:
            if entry[0] is tensor:
                self._returning.remove(entry)
                self._raw[tensor] = entry[1]
                return entry[1]
        return None
