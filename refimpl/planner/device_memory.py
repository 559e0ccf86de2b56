"""Device memory: which tensor has which block, which blocks are draining, and how much is live.

Release has two phases.  `release` ends a tensor's life: the live count drops.  Its bytes go back to the pool at once if
the kernels to come run after all of its accesses anyway.  If not, because a copy of it may still run, its block is
*draining*: it goes back when some wait has ordered the kernels after the copy, or when nothing else is free.  So the
bytes of running copies are reused last, the longest drained first, and a kernel waits for a copy out only where memory
is short.  The simulated clock has no say in it.

A draining tensor that is wanted again is revived without a copy.  No program is unsafe for lack of draining: a new
block takes over the accesses of the bytes that it overlaps, and comes after them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from refimpl.machine import Machine
from refimpl.memory import Allocator
from refimpl.network import Tensor
from refimpl.planner.history import Accesses, History
from refimpl.planner.instructions import COMPUTE, Allocate, Free
from refimpl.planner.order import Block, Order
from refimpl.slots.errors import DoesNotFit
from refimpl.slots.questions import BoundCache


@dataclass(frozen=True, slots=True)
class Draining:
    """A block that was released while a copy of it may still run."""

    block: Block
    accesses: Accesses  #: all that happened to its bytes
    released: int  #: the step that released it


@dataclass(eq=False)
class DeviceMemory:
    """Blocks of the allocator's pool, handed out and taken back; every one is noted in the order's draft."""

    allocator: Allocator  #: says where a block goes
    budget: int  #: bytes of the pool
    order: Order  #: the draft of the program, whose order of accesses and running step are this memory's too
    machine: Machine  #: says how long a driver call takes, where the allocator makes one for every block
    cache: BoundCache  #: told of every managed tensor that comes or goes (workspaces excepted)
    in_pytorch: bool = False  #: gradients of weights stay until the iteration ends; `transient_bytes` counts workspaces
    lag: int | None = None  #: steps that a block drains, at most until backward; None: as long as there is room

    def __post_init__(self) -> None:
        self.pool = self.allocator.opened(self.budget)
        self.live_bytes = self.live_tensors = self.transient_bytes = 0
        self.revived: list[tuple[Tensor, int, int]] = []  #: with the steps that released it and that wanted it again
        self._blocks: dict[Tensor, Block] = {}  # resident tensors too
        self._draining: dict[Tensor, Draining] = {}  # the longest draining first
        self._draining_bytes = 0
        self._waits_seen = 0  # the kernels' waits when the draining blocks were last looked at
        self._freed = History()

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._blocks

    def __getitem__(self, tensor: Tensor) -> Block:
        """The block of a tensor that is on the device."""
        return self._blocks[tensor]

    def blocks(self, tensors: Iterable[Tensor]) -> list[Block]:
        """The blocks of tensors that are on the device."""
        blocks = self._blocks
        return [blocks[tensor] for tensor in tensors]

    def room(self) -> tuple[int, int]:
        """Bytes of the largest hole; and all that are free, in one piece or not, once no block drains any more."""
        return self.pool.largest_hole, self.pool.free_bytes + self._draining_bytes

    def is_draining(self, tensor: Tensor) -> bool:
        return tensor in self._draining

    def managed(self) -> list[Tensor]:
        """The managed tensors that are on the device."""
        return [tensor for tensor in self._blocks if tensor.managed]

    def residents(self) -> list[Block]:
        """The blocks of resident tensors."""
        return [block for tensor, block in self._blocks.items() if not tensor.managed]

    # -- allocate and release ------------------------------------------------------------------------------------------

    def reside(self, tensor: Tensor) -> None:
        """A block for the whole of training."""
        address = self.pool.allocate(tensor.nbytes)
        if address is None:
            raise self.does_not_fit(tensor)
        self._blocks[tensor] = Block(tensor, address, self.pool.block_bytes(address), len(self.order.streams))

    def try_allocate(self, tensor: Tensor, stays: bool = False) -> bool:
        """Give the tensor a block if there is a hole for it; `stays`: it is kept from forward to backward."""
        address = self.pool.allocate(tensor.nbytes, stays, self.in_pytorch and tensor.kind == "weight gradient")
        if address is None:
            return False
        nbytes = self.pool.block_bytes(address)
        prior = self._freed.take(address, address + nbytes)
        self.order.note(Allocate(self.order.now, tensor, address, nbytes, stays))
        if self.allocator.driver_calls:
            self.order.clock.hold(self.machine.allocate_seconds)
        self._arrive(tensor, Block(tensor, address, nbytes, len(self.order.streams), prior))
        return True

    def release(self, tensor: Tensor) -> None:
        """End the tensor's life.  If a copy of it may still run, its bytes drain first."""
        block = self._blocks.pop(tensor)
        if tensor.kind != "workspace":
            self.live_bytes -= tensor.nbytes
            self.live_tensors -= 1
            self.cache.leave(tensor)
        accesses = block.accesses()
        self._draining[tensor] = Draining(block, accesses, self.order.now)
        self._draining_bytes += block.nbytes
        if self._is_ordered(accesses):
            self._give_back(tensor)

    def revive(self, tensor: Tensor) -> None:
        """A draining tensor is wanted again: its bytes are still there."""
        draining = self._undrain(tensor)
        self.revived.append((tensor, draining.released, self.order.now))
        self._arrive(tensor, draining.block)

    def give_back_drained(self, everything: bool = False) -> None:
        """The bytes whose copies the kernels to come run after go back to the pool; or those of all that drain."""
        if self.lag is not None:
            due = self.order.now - self.lag
            drained = [t for t, draining in self._draining.items() if everything or draining.released < due]
        elif everything or self._waits_seen < self.order.kernel_waits:
            self._waits_seen = self.order.kernel_waits
            drained = [t for t, draining in self._draining.items() if everything or self._is_ordered(draining.accesses)]
        else:
            return
        for tensor in drained:
            self._give_back(tensor)

    def give_back_oldest(self) -> bool:
        """The bytes that have drained the longest go back to the pool; False where nothing drains."""
        for tensor in self._draining:
            self._give_back(tensor)
            return True
        return False

    def _arrive(self, tensor: Tensor, block: Block) -> None:
        self._blocks[tensor] = block
        if tensor.kind != "workspace":
            self.live_bytes += tensor.nbytes
            self.live_tensors += 1
            self.transient_bytes = max(self.transient_bytes, self.live_bytes)
            self.cache.enter(tensor)
        elif self.in_pytorch:
            self.transient_bytes = max(self.transient_bytes, self.live_bytes + tensor.nbytes)

    def _is_ordered(self, accesses: Accesses) -> bool:
        """Whether kernels to come run after these accesses, without another wait."""
        return self.order.comes_after(COMPUTE, accesses)

    def _undrain(self, tensor: Tensor) -> Draining:
        draining = self._draining.pop(tensor)
        self._draining_bytes -= draining.block.nbytes
        return draining

    def _give_back(self, tensor: Tensor) -> None:
        draining = self._undrain(tensor)
        block = draining.block
        self.pool.free(block.address)
        self._freed.put(block.address, block.address + block.nbytes, draining.accesses)
        self.order.note(Free(self.order.now, tensor, block.address, block.nbytes, draining.released))
        if self.allocator.driver_calls:
            self.order.clock.hold(self.machine.free_seconds)

    # -- when it fails -------------------------------------------------------------------------------------------------

    def does_not_fit(self, tensor: Tensor, stays: bool = False) -> DoesNotFit:
        """The error, which names the requested block and what is in its way."""
        alive: Counter[str] = Counter()
        for block in self._blocks.values():
            alive[block.tensor.kind if block.tensor.managed else "resident tensor"] += block.nbytes
        for draining in self._draining.values():
            alive["draining " + draining.block.tensor.kind] += draining.block.nbytes
        free, hole = self.pool.free_bytes, self.pool.hole_for(stays)
        return DoesNotFit(self.order.step, tensor.name, tensor.nbytes, free, hole, self.budget, dict(alive))


Memory = Callable[..., DeviceMemory]  #: a class of memories, or one with some arguments
