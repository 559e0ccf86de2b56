"""The planner's books: which tensor is where, and what it takes to have it on the device.

A tensor on the device has a block.  One that was let go while a copy of it may still run is *draining*: gone from the
live count, its bytes still held by the pool.  One on the host has a buffer in pinned memory, whose content is valid
until somebody writes to the tensor again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from refimpl.machine import Choice, Clock, Machine
from refimpl.network import Call, Network, Step, Tensor
from refimpl.planner.context import PlanContext
from refimpl.planner.errors import DoesNotFit
from refimpl.planner.history import History
from refimpl.planner.host import Host
from refimpl.planner.instructions import COMPUTE, Allocate, CopyIn, CopyOut, Free, Launch
from refimpl.planner.order import Block, Order
from refimpl.planner.setup import Setup


@dataclass(frozen=True, slots=True)
class Workspace:
    """A step's algorithms, call by call, and the buffer its calls share."""

    choices: list[Choice | None]
    buffer: Tensor | None

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes if self.buffer else 0


class Books:
    def __init__(self, network: Network, setup: Setup, machine: Machine, budget: int) -> None:
        self.network, self.setup, self.machine, self.budget = network, setup, machine, budget
        self.out_stream, self.in_stream = (1, 1) if setup.copy_streams == "shared" else (1, 2)
        copying = ("memory",) if setup.copy_streams == "shared" else ("out", "in")
        self.device_streams = range(1 + len(copying))
        self.streams: tuple[str, ...] = ("compute", *copying, *(("host",) if setup.pinned.compresses else ()))
        self.clock = Clock(len(self.streams))
        self.order = Order(len(self.streams), self.clock)
        self.pool = setup.allocator.open(budget)
        self.step: Step | None = None
        self.locked: set[Tensor] = set()  #: what the running step uses: never evicted
        self.device: dict[Tensor, Block] = {}  #: resident tensors too
        self._draining: dict[Tensor, tuple[Block, float, int]] = {}  #: block, when its copy is done, step that let go
        self._freed = History()
        self.batch = (network.input, network.labels)  #: their host copies are the user's, and always there
        self.live_bytes = self.live_tensors = self.transient_bytes = 0
        self.chosen: dict[Call, Choice] = {}  #: the algorithm of each call's first run
        self.rebuilt: set[Tensor] = set()  #: in the running step
        self._behind: set[Tensor] = set()  #: made again, but not yet by every step that changes them in place
        self.counts: Counter[str] = Counter()
        self._bind()

    def _bind(self) -> None:
        """Bind the modules to this plan, in their order."""
        setup, context = self.setup, PlanContext(self.network, self.machine, self.budget)
        self.context = context
        self.recompute = setup.recompute.bind(context)
        context.decide("drop", setup.recompute.name, self.recompute.drops())
        context.rebuilt_from.update(self.recompute.sources())
        self.offload = setup.offload.bind(context)
        context.decide("offload", setup.offload.name, self.offload.offloads())
        self.liveness = setup.liveness.bind(context)
        self.prefetch = setup.prefetch.bind(context)
        self.cache = setup.cache.bind(context)
        self.algorithms = setup.algorithms.bind(context)
        threads = len(self.streams) - 1 if setup.pinned.compresses else None
        self.host = Host(setup.pinned.bind(context), self.order, self.machine, threads, self.device)

    @property
    def now(self) -> int:
        """The running step's number, 0 before the first."""
        return self.step.number if self.step else 0

    # -- coming and going ----------------------------------------------------------------------------------------------

    def try_allocate(self, tensor: Tensor, stays: bool = False) -> Block | None:
        """A block for the tensor if there is a hole for it; nothing is pushed out."""
        address = self.pool.allocate(tensor.nbytes, stays)
        if address is None:
            return None
        nbytes = self.pool.block_bytes(address)
        prior = self._freed.take(address, address + nbytes)
        block = Block(tensor, address, nbytes, len(self.streams), prior)
        self.order.note(Allocate(self.now, tensor, address, nbytes, stays))
        if self.setup.allocator.driver_calls:
            self.clock.hold(self.machine.allocate_seconds)
        self._arrive(tensor, block)
        return block

    def allocate(self, tensor: Tensor, stays: bool = False) -> Block:
        """A block for the tensor, whatever has to go: the oldest draining bytes first, then the cache's victims."""
        while True:
            block = self.try_allocate(tensor, stays)
            if block is not None:
                return block
            if self._draining:
                self._give_back(next(iter(self._draining)))
                continue
            victim = self.cache.victim(self.locked)
            if victim is None:
                raise self.does_not_fit(tensor)
            self.evict(victim)

    def release(self, tensor: Tensor) -> None:
        """Let go of a tensor.  If a copy of it may still run, its bytes drain first."""
        block = self._depart(tensor)
        done = max((self.order.ends[k] for k in block.accesses()[1:] if k >= 0), default=0.0)
        self._draining[tensor] = block, done, self.now
        if done <= self.clock.now[COMPUTE]:
            self._give_back(tensor)

    def give_back_drained(self, everything: bool = False) -> None:
        """The bytes whose copies are done by the simulated clock go back to the pool."""
        now = self.clock.now[COMPUTE]
        for tensor in [t for t, (_, done, _) in self._draining.items() if everything or done <= now]:
            self._give_back(tensor)

    def _give_back(self, tensor: Tensor) -> None:
        block, _, released = self._draining.pop(tensor)
        self.pool.free(block.address)
        self._freed.put(block.address, block.address + block.nbytes, block.accesses())
        self.order.note(Free(self.now, tensor, block.address, block.nbytes, released))
        if self.setup.allocator.driver_calls:
            self.clock.hold(self.machine.free_seconds)

    def _revive(self, tensor: Tensor) -> None:
        """A draining tensor is wanted again: its bytes are still there."""
        self._arrive(tensor, self._draining.pop(tensor)[0])

    def _arrive(self, tensor: Tensor, block: Block) -> None:
        self.device[tensor] = block
        if tensor.kind != "workspace":
            self.live_bytes += tensor.nbytes
            self.live_tensors += 1
            self.transient_bytes = max(self.transient_bytes, self.live_bytes)
            self.cache.enter(tensor)

    def _depart(self, tensor: Tensor) -> Block:
        if tensor.kind != "workspace":
            self.live_bytes -= tensor.nbytes
            self.live_tensors -= 1
            self.cache.leave(tensor)
            self._behind.discard(tensor)
        return self.device.pop(tensor)

    # -- moving --------------------------------------------------------------------------------------------------------

    def copy_out(self, tensor: Tensor, why: str) -> int:
        """Start a copy to the host, unless a valid one is there; the bytes that move."""
        if self.host.has(tensor):
            return 0
        host, block = self.host.target(tensor), self.device[tensor]
        copy = CopyOut(self.now, tensor, block.address, host.address, tensor.nbytes, self.out_stream, why)
        self.order.work(copy, self.machine.copy_seconds(tensor.nbytes, "out"), [block], [host])
        self.host.left(tensor)
        return tensor.nbytes

    def copy_in(self, tensor: Tensor, why: str) -> None:
        """Start the copy back into a block that has just been allocated."""
        host, block = self.host.source(tensor), self.device[tensor]
        copy = CopyIn(self.now, tensor, block.address, host.address, tensor.nbytes, self.in_stream, why)
        self.order.work(copy, self.machine.copy_seconds(tensor.nbytes, "in"), [host], [block])
        if tensor not in self.batch:
            self.host.fetched(tensor)

    def evict(self, tensor: Tensor) -> None:
        """Push a tensor out; with a copy unless its host copy is valid or it can be rebuilt."""
        assert self.step is not None
        self.counts["evictions"] += 1
        if tensor not in self._behind and not self.recompute.can_rebuild(tensor, self.step):
            self.counts["evicted_bytes"] += self.copy_out(tensor, "evicted")
        self.release(tensor)

    def bring(self, tensor: Tensor) -> None:
        """A prefetch: start to bring the tensor back if there is a hole for it."""
        if tensor in self._draining:
            self._revive(tensor)
            return
        if not self.host.has(tensor) or self.try_allocate(tensor) is None:
            self.counts["skipped_prefetches"] += 1
            return
        self.copy_in(tensor, "prefetch")
        self._count(tensor, "prefetched_bytes")

    def is_there(self, tensor: Tensor) -> bool:
        """Whether a step can read the tensor without a copy or a rebuild: a hit."""
        return (tensor in self.device and tensor not in self._behind) or tensor in self._draining

    def have(self, tensor: Tensor) -> None:
        """The tensor on the device, whatever it takes: hit, revive, copy in or rebuild."""
        if tensor in self.device and tensor not in self._behind:
            self.cache.touch(tensor)
        elif tensor in self._draining:
            self._revive(tensor)
        elif self.host.has(tensor):
            if tensor in self.device:  # made again as a means, and behind: the host has what it is to become
                self._behind.discard(tensor)
                self.cache.touch(tensor)
            else:
                self.allocate(tensor)
            self.copy_in(tensor, "on demand")
            self._count(tensor, "on_demand_bytes")
        else:
            self.rebuild(tensor)
        self.locked.add(tensor)

    def _count(self, tensor: Tensor, what: str) -> None:
        if tensor not in self.batch:
            self.counts[what] += tensor.nbytes

    # -- computing -----------------------------------------------------------------------------------------------------

    def rebuild(self, tensor: Tensor) -> None:
        """Run forward steps again until a dropped tensor is there; what is there already is not made again."""
        assert self.step is not None
        chain = list(self.recompute.chain(tensor, self.step))
        kept = {tensor, *self.locked}
        last = {x: step for step, _ in chain for x in step.uses}
        for step, done_with in chain:
            there = [self._at_hand(y) for y in step.writes]
            if all(there) and self._behind.isdisjoint(step.updates):
                continue
            self.locked.update(step.uses)
            for x in step.reads:
                self.have(x)
            for y in step.writes:
                if y not in self.device:
                    self.allocate(y)
            workspace = self.workspace(step)
            self.launch(step, workspace, rebuild=True)
            self.release_workspace(workspace)
            self._note_rebuilt(step)
            for x in done_with:
                if x in self.device:
                    self.release(x)
                self.locked.discard(x)
            for x in step.uses:  # what no later step of the chain uses may be evicted again
                if last[x] is step and x not in kept and x not in self._behind:
                    self.locked.discard(x)
        if tensor not in self.device or tensor in self._behind:
            raise AssertionError(f"recompute={self.setup.recompute.name} did not rebuild {tensor} for {self.step}")

    def _note_rebuilt(self, step: Step) -> None:
        """What a step has made again is behind until all forward steps that change it have run again too."""
        self.counts["recomputed_layers"] += 1
        self.rebuilt.update(step.writes)
        for y in (*step.writes, *step.updates):
            if self.context.last_forward_write(y, self.now) > step.number:
                self._behind.add(y)
            else:
                self._behind.discard(y)

    def _at_hand(self, tensor: Tensor) -> bool:
        """Whether a rebuild may use the tensor as it is."""
        if tensor in self._draining:
            self._revive(tensor)
            self.rebuilt.add(tensor)
        return tensor in self.device

    def workspace(self, step: Step) -> Workspace:
        """An algorithm for every call of a step, and the buffer that they share."""
        choices: list[Choice | None] = []
        for call in step.calls:
            if not call.choosable:
                choices.append(None)
                continue
            if call not in self.chosen:  # a rebuild takes what the first run took, so that not a bit differs
                self.chosen[call] = self.algorithms.choose(step, call, self.pool.largest_hole)
            choices.append(self.chosen[call])
        nbytes = max((choice.workspace_bytes for choice in choices if choice), default=0)
        if not nbytes:
            return Workspace(choices, None)
        buffer = Tensor(f"workspace of {step.layer.name}", (-(-nbytes // 4),), "workspace", managed=True)
        self.allocate(buffer)
        return Workspace(choices, buffer)

    def launch(self, step: Step, workspace: Workspace, rebuild: bool = False) -> None:
        """Launch a step's calls.  A rebuild leaves out what changes state that outlives the iteration."""
        device, buffer = self.device, workspace.buffer
        for call, choice in zip(step.calls, workspace.choices, strict=True):
            if rebuild and call.once:
                continue
            reads = [device[t] for t in call.reads]
            writes = [device[t] for t in (*call.updates, *call.writes)]
            if not rebuild:
                self._outdate(writes)
            space = None
            if choice is not None and choice.workspace_bytes:
                assert buffer is not None
                writes.append(device[buffer])
                space = device[buffer].address, choice.workspace_bytes
            addresses = tuple([device[t].address for t in call.operands])
            launch = Launch(self.now, call, addresses, choice, space, rebuild)
            self.order.work(launch, self.machine.seconds(call, choice), reads, writes)

    def release_workspace(self, workspace: Workspace) -> None:
        if workspace.buffer is not None:
            self.release(workspace.buffer)

    def _outdate(self, written: Sequence[Block]) -> None:
        """The host copies of what is written are no longer what the device has."""
        for block in written:
            self.host.outdate(block.tensor)

    # -- when it fails -------------------------------------------------------------------------------------------------

    def does_not_fit(self, tensor: Tensor) -> DoesNotFit:
        """The error that says what was asked for, and what is in the way."""
        alive: Counter[str] = Counter()
        for block in self.device.values():
            alive["resident tensor" if not block.tensor.managed else block.tensor.kind] += block.nbytes
        for block, _, _ in self._draining.values():
            alive["draining " + block.tensor.kind] += block.nbytes
        pool = self.pool
        return DoesNotFit(
            self.step, tensor.name, tensor.nbytes, pool.free_bytes, pool.largest_hole, self.budget, dict(alive)
        )
