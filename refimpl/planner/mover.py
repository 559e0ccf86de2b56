"""The mover has what a step needs on the device, whatever it takes: a hit, a revival, a copy in or a rebuild.

It copies, evicts, rebuilds and launches.  A copy on the host is valid until the tensor is written to on the device.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from refimpl.machine import Choice
from refimpl.machine.seconds import call_seconds
from refimpl.network import Call, Step, Tensor
from refimpl.planner.device_memory import DeviceMemory
from refimpl.planner.instructions import COMPUTE, CopyIn, CopyOut, Launch
from refimpl.planner.order import Order
from refimpl.planner.pinned_memory import PinnedMemory
from refimpl.slots.context import Context
from refimpl.slots.questions import BoundAlgorithms, BoundCache, BoundRecompute
from refimpl.slots.setup import Setup


@dataclass(frozen=True, slots=True)
class Workspace:
    """A step's algorithms, call by call, and the buffer that its calls share."""

    choices: list[Choice | None]
    buffer: Tensor | None

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes if self.buffer else 0


class StreamNumbers(NamedTuple):
    """The numbers of the streams beside that of the kernels."""

    out: int
    into: int
    network: int  #: of collective calls, where the network has any


@dataclass(eq=False)
class Mover:
    """Copies, evicts, rebuilds and launches, so that every step finds what it needs."""

    context: Context  #: the network, the machine and the maps' fates
    memory: DeviceMemory  #: the device's blocks
    pinned: PinnedMemory  #: the copies on the host
    order: Order  #: the draft of the program
    streams: StreamNumbers  #: that copies and collective calls run on
    recompute: BoundRecompute  #: how a dropped map is rebuilt
    cache: BoundCache  #: what is evicted
    algorithms: BoundAlgorithms  #: which algorithm a call uses
    setup: Setup  #: whose cache may evict for workspaces, too

    def __post_init__(self) -> None:
        self.batch = self.context.batch
        self._seconds = call_seconds(self.context.network, self.context.machine)
        self.counts: Counter[str] = Counter()
        self._locked = set(self.batch)  # never evicted: what the running step uses; before the first one, the batch
        self._rebuilt: dict[Tensor, None] = {}  # in the running step
        self._unfinished: set[Tensor] = set()  # rebuilt, but an in-place update (such as a ReLU) is still missing
        self._chosen: dict[Call, Choice] = {}  # the algorithm of each call's first run

    def begin(self, step: Step) -> None:
        """A step begins: what it uses is not evicted."""
        self._locked = set(step.uses)
        self._rebuilt.clear()

    # -- allocate and release ------------------------------------------------------------------------------------------

    def allocate(self, tensor: Tensor, stays: bool = False) -> None:
        """Give the tensor a block: hand back the oldest draining bytes, else evict, until it fits."""
        while not self.memory.try_allocate(tensor, stays):
            if self.memory.give_back_oldest():
                continue
            victim = self.cache.victim(self._locked, self.order.now)
            if victim is None:
                raise self.memory.does_not_fit(tensor, stays)
            self.evict(victim)

    def evict(self, tensor: Tensor) -> None:
        """Take a tensor off the device; with a copy unless its host copy is valid or it can be rebuilt."""
        step = self.order.step
        assert step is not None
        self.counts["evictions"] += 1
        if tensor not in self._unfinished and not self.recompute.can_rebuild(tensor, step):
            self.counts["evicted_bytes"] += self.copy_out(tensor, "evicted")
        self.release(tensor)

    def release(self, tensor: Tensor) -> None:
        self._unfinished.discard(tensor)
        self.memory.release(tensor)

    def release_rebuilt(self, step: Step) -> None:
        """Release what the step rebuilt only on the way to something else, and no later step uses."""
        for tensor in self._rebuilt:
            if tensor in self.memory and self.context.last_use(tensor) <= step.number:
                self.release(tensor)

    # -- copies --------------------------------------------------------------------------------------------------------

    def copy_out(self, tensor: Tensor, why: str) -> int:
        """Start a copy to the host, unless a valid one is there; the bytes that move."""
        if self.pinned.has(tensor):
            return 0
        target, block = self.pinned.target(tensor), self.memory[tensor]
        nbytes, stream = tensor.nbytes, self.streams.out
        copy = CopyOut(self.order.now, tensor, block.address, target.address, nbytes, stream, why, target.tier)
        self.order.work(copy, self.context.machine.copy_seconds(nbytes, "out", target.tier), [block], [target])
        self.pinned.left(tensor)
        return nbytes

    def copy_in(self, tensor: Tensor, why: str) -> int:
        """Start the copy back into the tensor's block; the bytes that move, none for the batch."""
        source, block = self.pinned.source(tensor), self.memory[tensor]
        nbytes, stream = tensor.nbytes, self.streams.into
        copy = CopyIn(self.order.now, tensor, block.address, source.address, nbytes, stream, why, source.tier)
        self.order.work(copy, self.context.machine.copy_seconds(nbytes, "in", source.tier), [source], [block])
        if tensor in self.batch:
            return 0
        self.pinned.fetched(tensor)
        return nbytes

    def offload(self, tensor: Tensor) -> None:
        """Copy a map out if it is on the device; the batch is on the host already."""
        if tensor in self.memory and tensor not in self.batch:
            self.counts["offloaded_bytes"] += self.copy_out(tensor, "offload")

    def prefetch(self, tensor: Tensor) -> None:
        """Start to bring a tensor back, if there is a hole for it: nothing is evicted, and nothing fails."""
        if self.memory.is_draining(tensor):
            self.memory.revive(tensor)
        elif not self.pinned.has(tensor):
            return
        elif self.memory.try_allocate(tensor):
            self.counts["prefetched_bytes"] += self.copy_in(tensor, "prefetch")
        else:
            self.counts["skipped_prefetches"] += 1

    # -- what a step reads ---------------------------------------------------------------------------------------------

    def have_inputs(self, step: Step) -> None:
        """Everything the step reads, rebuilding first: a rebuild needs room that a copy in would take."""
        needed = (*step.reads, *step.updates)
        for tensor in needed:
            self.counts["hits" if self._is_there(tensor) else "misses"] += 1
        for tensor in needed:
            if tensor not in self.memory and self.context.is_dropped(tensor):
                self.have(tensor)
        for tensor in needed:
            self.have(tensor)
        self._locked = set(step.uses)

    def have(self, tensor: Tensor) -> None:
        """The tensor on the device, whatever it takes: hit, revive, copy in or rebuild."""
        if self._is_complete(tensor):
            self.cache.touch(tensor)
        elif self.memory.is_draining(tensor):
            self.memory.revive(tensor)
        elif self.pinned.has(tensor):
            if tensor in self.memory:  # rebuilt without its in-place updates: the host's copy has them
                self._unfinished.discard(tensor)
                self.cache.touch(tensor)
            else:
                self.allocate(tensor)
            self.counts["on_demand_bytes"] += self.copy_in(tensor, "on demand")
        else:
            self._rebuild(tensor)
        self._locked.add(tensor)

    def _is_complete(self, tensor: Tensor) -> bool:
        """Whether the tensor is on the device as a step reads it."""
        return tensor in self.memory and tensor not in self._unfinished

    def _is_there(self, tensor: Tensor) -> bool:
        """Whether a step could read the tensor without a copy and without a rebuild."""
        return self._is_complete(tensor) or self.memory.is_draining(tensor)

    # -- rebuilding ----------------------------------------------------------------------------------------------------

    def _rebuild(self, tensor: Tensor) -> None:
        """Run forward steps again until a dropped tensor is there; steps whose outputs are there are left out."""
        wanted_by = self.order.step
        assert wanted_by is not None
        chain = list(self.recompute.chain(tensor, wanted_by, self._is_there))
        kept = {tensor, *self._locked}
        last = {x: step for step, _ in chain for x in step.uses}
        for step, done_with in chain:
            there = [self._usable(y) for y in step.writes]
            if all(there) and self._unfinished.isdisjoint(step.updates):
                continue
            self._run_again(step)
            for x in done_with:
                if x in self.memory:
                    self.release(x)
                self._locked.discard(x)
            for x in step.uses:  # what no later step of the chain uses may be evicted again
                if last[x] is step and x not in kept and x not in self._unfinished:
                    self._locked.discard(x)
        if not self._is_complete(tensor):
            from refimpl.slots.answers import lost

            raise lost(self.setup, self.context, tensor, wanted_by)

    def _usable(self, tensor: Tensor) -> bool:
        """Whether a rebuild may use the tensor as it is on the device."""
        if self.memory.is_draining(tensor):
            self.memory.revive(tensor)
            self._rebuilt[tensor] = None
        return tensor in self.memory

    def _run_again(self, step: Step) -> None:
        self._locked.update(step.uses)
        for x in step.reads:
            self.have(x)
        for y in step.writes:
            if y not in self.memory:
                self.allocate(y)
        workspace = self.workspace(step)
        self.launch(step, workspace, rebuild=True)
        self.release_workspace(workspace)
        self.counts["recomputed_layers"] += 1
        self._rebuilt.update(dict.fromkeys(step.writes))
        for y in (*step.writes, *step.updates):  # unfinished until all forward steps that change it have run again
            if self.context.last_forward_write(y, self.order.now) > step.number:
                self._unfinished.add(y)
            else:
                self._unfinished.discard(y)

    # -- launching -----------------------------------------------------------------------------------------------------

    def workspace(self, step: Step) -> Workspace:
        """An algorithm for every call of a step, for the largest hole now, and the buffer that the calls share."""
        choices: list[Choice | None] = []
        for call in step.calls:
            if not call.choosable:
                choices.append(None)
                continue
            if call not in self._chosen:  # a rebuild uses the algorithm of the first run, so that no bit differs
                if self.setup.cache.workspaces:
                    self._make_room(step, call)
                self._chosen[call] = self.algorithms.choose(step, call, *self.memory.room())
            choices.append(self._chosen[call])
        nbytes = max(map(workspace_bytes, step.calls, choices), default=0)
        if not nbytes:
            return Workspace(choices, None)
        buffer = Tensor(f"workspace of {step.layer.name}", (-(-nbytes // 4),), "workspace", managed=True)
        self.allocate(buffer)
        return Workspace(choices, buffer)

    def _make_room(self, step: Step, call: Call) -> None:
        """Evict for the workspace of the algorithm that would be chosen if only what the step uses were there."""
        memory, locked = self.memory, self._locked
        room = memory.room()[1] + sum(memory[x].nbytes for x in memory.managed() if x not in locked)
        wanted = self.algorithms.choose(step, call, room, room).workspace_bytes
        while wanted > memory.room()[0]:
            if not memory.give_back_oldest():
                if (victim := self.cache.victim(locked, self.order.now)) is None:
                    break  # holes: the algorithm is one that fits after all
                self.evict(victim)

    def launch(self, step: Step, workspace: Workspace, rebuild: bool = False) -> None:
        """Launch a step's calls.  A rebuild leaves out calls that change state which outlives the iteration."""
        memory, machine, buffer = self.memory, self.context.machine, workspace.buffer
        for call, choice in zip(step.calls, workspace.choices, strict=True):
            if rebuild and call.once:
                continue
            reads, writes = memory.blocks(call.reads), memory.blocks((*call.updates, *call.writes))
            if not rebuild:
                for block in writes:
                    self.pinned.outdate(block.tensor)
            space = None
            if nbytes := workspace_bytes(call, choice):
                assert buffer is not None
                writes.append(memory[buffer])
                space = memory[buffer].address, nbytes
            addresses = tuple([block.address for block in memory.blocks(call.operands)])
            stream = self.streams.network if call.collective else COMPUTE
            launch = Launch(self.order.now, call, addresses, choice, space, rebuild, stream)
            seconds = machine.seconds(call, choice) if choice else self._seconds[call]
            self.order.work(launch, seconds, reads, writes)

    def release_workspace(self, workspace: Workspace) -> None:
        if workspace.buffer is not None:
            self.memory.release(workspace.buffer)


def workspace_bytes(call: Call, choice: Choice | None) -> int:
    """Of a call by an algorithm, or of one of PyTorch's operators."""
    return choice.workspace_bytes if choice else call.scratch
