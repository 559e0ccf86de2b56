"""The planner's books of the host: where the copies of maps are, raw in pinned memory or compressed beside it.

A map that has left lies *raw* in a buffer of pinned memory.  If the module in the slot `pinned` says so, threads of the
host then compress it into ordinary memory, the *store*, and its buffer serves another map; before it comes back it is
decompressed into a buffer again.  The threads are a stream like the others, and take maps in the order in which these
left.  Maps that are still waiting for them when forward ends, or whose buffer is not given back yet, stay raw: they are
needed first.

A buffer is given back when, by the simulated clock, its map is compressed; sooner where pinned memory has a limit and
the next map would exceed it.  Either way the order of the streams sees to it that nobody writes there too early.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container

from refimpl.machine import Machine
from refimpl.network import Step, Tensor
from refimpl.planner.errors import PinnedDoesNotFit
from refimpl.planner.history import History
from refimpl.planner.instructions import Compress, Decompress, compressed_limit, pinned_size
from refimpl.planner.order import Block, Order
from refimpl.planner.slots import BoundPinned


class Host:
    """`stream` is that of the host's threads, None without any; `device` is what is there at the moment."""

    def __init__(
        self, pinned: BoundPinned, order: Order, machine: Machine, stream: int | None, device: Container[Tensor]
    ) -> None:
        self.pinned, self._order, self._machine, self._stream = pinned, order, machine, stream
        self._device = device
        self._streams = len(order.streams)
        self._step: Step | None = None  #: the running one
        self.fixed_bytes = 0  #: of pinned memory: the batch's and the results', in front of the maps' buffers
        self.store_bytes = 0  #: what all compressed maps would take if none of their numbers were zero
        self.counts: Counter[str] = Counter()
        self._fixed: dict[Tensor, Block] = {}
        self._raw: dict[Tensor, Block] = {}  #: in the order in which the buffers were taken
        self._stored: dict[Tensor, Block] = {}
        self._planned: dict[Tensor, int] = {}  #: bytes that a compressed map is expected to take
        self._waiting: deque[Tensor] = deque()  #: copied out, and to be compressed
        self._returning: dict[Tensor, tuple[Block, float]] = {}  #: and when their map is compressed
        self._freed = History()

    # -- what is where -------------------------------------------------------------------------------------------------

    def fix(self, tensor: Tensor, valid: bool) -> None:
        """A buffer that stays: the batch's, a result's."""
        nbytes = pinned_size(tensor.nbytes)
        block = self._fixed[tensor] = Block(tensor, self.fixed_bytes, nbytes, self._streams)
        block.valid = valid
        self.fixed_bytes += nbytes

    def address(self, tensor: Tensor) -> int:
        """Of a buffer that stays."""
        return self._fixed[tensor].address

    @property
    def pinned_bytes(self) -> int:
        return self.fixed_bytes + self.pinned.nbytes

    def has(self, tensor: Tensor) -> bool:
        """Whether the host has what the device has, or had."""
        return any(copy.valid for copy in self._copies(tensor))

    def outdate(self, tensor: Tensor) -> None:
        """The tensor is written to on the device."""
        for copy in self._copies(tensor):
            copy.valid = False

    def _copies(self, tensor: Tensor) -> list[Block]:
        returning = self._returning.get(tensor)  # the raw copy is there until another map goes over it
        found = (self._fixed.get(tensor), self._raw.get(tensor), self._stored.get(tensor), returning and returning[0])
        return [block for block in found if block is not None]

    # -- copies --------------------------------------------------------------------------------------------------------

    def target(self, tensor: Tensor) -> Block:
        """The buffer that a copy out fills."""
        return self._fixed.get(tensor) or self._raw.get(tensor) or self._take(tensor)

    def left(self, tensor: Tensor) -> None:
        """A copy out has been issued."""
        if tensor in self._fixed:
            self._fixed[tensor].valid = True
            return
        self._raw[tensor].valid = True
        if self._stream is not None and self._step is not None:
            self._planned.pop(tensor, None)  # another content may be another case
            nbytes = self.pinned.compressed_bytes(tensor, self._step)
            if nbytes is not None:
                self._planned[tensor] = nbytes
                self._waiting.append(tensor)

    def source(self, tensor: Tensor) -> Block:
        """The buffer that a copy in reads; a compressed map is decompressed first."""
        if tensor in self._fixed:
            return self._fixed[tensor]
        self._decompress(tensor)
        return self._raw[tensor]

    def fetched(self, tensor: Tensor) -> None:
        """A copy in has been issued."""
        if tensor in self._raw and self.pinned.fetched(tensor):
            self._leave_to_others(self._raw.pop(tensor))

    # -- buffers -------------------------------------------------------------------------------------------------------

    def _take(self, tensor: Tensor) -> Block:
        """A buffer for the map: its own if no other map has got that yet, or a new one."""
        if tensor in self._returning:
            block = self._raw[tensor] = self._returning.pop(tensor)[0]
            return block
        while (place := self.pinned.place(tensor)) is None:
            self._make_room(tensor)
        address, nbytes = self.fixed_bytes + place, pinned_size(tensor.nbytes)
        prior = self._freed.take(address, address + nbytes)
        block = self._raw[tensor] = Block(tensor, address, nbytes, self._streams, prior)
        return block

    def _give_back(self, tensor: Tensor) -> None:
        """The map is compressed (or of no use): its buffer can serve another."""
        block = self._returning.pop(tensor)[0] if tensor in self._returning else self._raw.pop(tensor)
        self._leave_to_others(block)
        self.pinned.emptied(tensor)

    def _leave_to_others(self, block: Block) -> None:
        self._freed.put(block.address, block.address + block.nbytes, block.accesses())

    def _make_room(self, wanted: Tensor) -> None:
        """Pinned memory is full: give a buffer back, or see to it that one will be; whoever gets it waits."""
        again = [tensor for tensor in self._raw if not self._raw[tensor].valid or self._is_stored(tensor)]
        if self._returning:
            self._give_back(next(iter(self._returning)))
        elif self._waiting:
            self._compress(self._waiting.popleft())
        elif again:  # outdated, or decompressed ahead: the last of those is needed last
            self._give_back(again[-1])
        else:
            left_raw = [tensor for tensor in self._raw if tensor in self._planned]
            if not left_raw:
                raise self._does_not_fit(wanted)
            self._compress(left_raw[0])

    def _does_not_fit(self, tensor: Tensor) -> PinnedDoesNotFit:
        assert self.pinned.limit is not None
        limit = self.pinned.limit
        taken = sorted((block.address - self.fixed_bytes, block.nbytes) for block in self._raw.values())
        starts = [0, *(address + nbytes for address, nbytes in taken)]
        ends = [*(address for address, _ in taken), limit]
        held = sum(nbytes for _, nbytes in taken)
        hole = max(end - start for start, end in zip(starts, ends, strict=True))
        return PinnedDoesNotFit(self._step, tensor.name, tensor.nbytes, limit - held, hole, limit, {"raw map": held})

    # -- the host's threads --------------------------------------------------------------------------------------------

    def advance(self, step: Step, now: float) -> None:
        """A step begins: what the threads have come to by the simulated clock, and what they are to do next."""
        forward_ends = not step.forward and (self._step is None or self._step.forward)
        self._step = step
        if self._stream is None:
            return
        if forward_ends:
            self._waiting.clear()
            for tensor in list(self._returning):
                self._take(tensor)
        for tensor in [tensor for tensor, (_, done) in self._returning.items() if done <= now]:
            self._give_back(tensor)
        if step.forward:
            while self._waiting and max(self._order.clock.now[self._stream], self._copied(self._waiting[0])) <= now:
                self._compress(self._waiting.popleft())
        else:
            for tensor in self.pinned.wanted(step):
                if tensor not in self._device:
                    self._decompress(tensor)

    def _copied(self, tensor: Tensor) -> float:
        """When the copy out of a waiting map is done; at once if it is no longer there to be compressed."""
        block = self._raw.get(tensor)
        return max((self._order.ends[k] for k in block.writes if k >= 0), default=0.0) if block else 0.0

    def _is_stored(self, tensor: Tensor) -> bool:
        return tensor in self._stored and self._stored[tensor].valid

    def _compress(self, tensor: Tensor) -> None:
        raw = self._raw.get(tensor)
        if raw is None or not raw.valid or self._is_stored(tensor):
            return  # it has come back in the meantime, or has been written to
        stored = self._stored.get(tensor)
        if stored is None:
            limit = compressed_limit(tensor.nbytes)
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
        if not raw.valid:  # or else nobody has gone over it yet
            self._work(Decompress, tensor, raw, self._stored[tensor])

    def _work(self, what: type[Compress] | type[Decompress], tensor: Tensor, raw: Block, stored: Block) -> float:
        """Give the threads a map to do; when they are done."""
        assert self._stream is not None and self._step is not None
        nbytes = tensor.nbytes
        work = what(self._step.number, tensor, raw.address, stored.address, nbytes, self._planned[tensor], self._stream)
        source, target = (raw, stored) if what is Compress else (stored, raw)
        position = self._order.work(work, self._machine.host_seconds(nbytes), [source], [target])
        target.valid = True
        return self._order.ends[position]
