"""The executor: trains a network layer by layer, and does at once what a setup's modules answer.

    executor = Executor(network, VDNN_ALL, budget=2_000_000)
    for action in executor.iteration(images, labels):
        print(action)

Read this file first, then `streams`.  The stream `compute` runs the kernels, `out` copies maps (layers' outputs) to
pinned memory, `into` copies them back.  A *setup* has a module in each of its slots: offload, prefetch, liveness, ….
`refimpl.slots.questions` says what a module is asked, and when; the modules are the papers' (`refimpl.vdnn` and
others).  A *step* is one layer's forward or backward.  Of a network's tensors, *managed* ones come and go within an
iteration, as maps do; *resident* ones stay, as weights do.

The planner (`refimpl.planner`) asks the same modules the same questions and writes down what it would do.  So it knows
every address, copy and wait before anything runs: it proves them, simulates them and searches for better ones.
`tests/refimpl/test_executor.py` holds both to the same actions, at the same addresses, with the same waits and bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from kernels.copies import copy
from kernels.elementwise import fill
from refimpl.memory.tiers import HOST, Tier, pinned_size
from refimpl.network import Call, Network, Setting, Step, Tensor
from refimpl.network.initial_state import constants, initial_state
from refimpl.slots.context import Context
from refimpl.slots.errors import DoesNotFit, PinnedDoesNotFit, Room, SetupError
from refimpl.slots.planner_only import PoolSearch
from refimpl.slots.search import Search
from refimpl.slots.setup import Setup
from refimpl.streams import Buffer, Memory, Streams


class Action(NamedTuple):
    """Something that the executor did."""

    step: Step | None  #: None: before the first
    what: str  #: as in "allocate" or "offload"
    of: Tensor | Call | str
    at: int | None = None  #: an allocation's address; the number of a launch or a copy, by which others wait for it

    def __str__(self) -> str:
        where = self.step.title if self.step else "begin"
        at = "" if self.at is None else f"{self.at:,}" if self.what == "allocate" else f"#{self.at}"
        size = f", {self.of.nbytes:,} bytes" if isinstance(self.of, Tensor) else ""
        return f"{where:20} {self.what:12} {at:>9}  {getattr(self.of, 'function', self.of)}{size}"


class Executor:
    """Trains `network` under `setup` with at most `budget` bytes on the device.

    Args:
        network: what is trained; see `refuse` for what cannot be.
        setup: a module in every slot.
        budget: bytes of device memory.
        gpu: `numba.cuda`, whether the GPU is real, emulated or Numba's simulator; or `kernels.copies.NoGpu()`.
        machine: for modules that ask how long something takes; None: the others do.
        seed: of the first weights, and of dropout.
        poison: whether freed bytes become NaN, so that a read after a free shows.
    """

    def __init__(
        self, network: Network, setup: Setup, budget: int, gpu: Any = cuda, machine: Any = None, seed: int = 0,
        poison: bool = False,
    ) -> None:  # fmt: skip
        self.machine: Any = machine or SimpleNamespace(memory_bytes=budget, tiers=(Tier(HOST),))
        refuse(network, setup, self.machine)
        network = setup.cut(network)
        self.network, self.setup, self.budget = network, setup, budget
        self.seed, self.poison, self.iterations = seed, poison, 0
        self.streams = Streams(gpu, setup.copy_streams == "shared", self._tell)
        self.actions: list[Action] = []  #: since `iteration` last handed them on
        self.pool = setup.allocator.opened(budget)
        self.device = Memory(gpu.device_array(self.pool.size, np.uint8))
        self.host = Memory(gpu.pinned_array(sum(pinned_size(x.nbytes) for x in network.managed), np.uint8))
        self.buffers: dict[Tensor, Buffer] = {}  #: on the device
        self.leaving: dict[Tensor, Buffer] = {}  #: released, but a copy of them may still run; the oldest first
        self.copies: dict[Tensor, Buffer] = {}  #: in pinned memory
        self.valid: set[Tensor] = set()  #: whose copy is what the device has, or had last
        self._ask_modules()
        for x in (*network.given, *self.context.results):
            self.copies[x] = Memory(gpu.pinned_array(x.nbytes, np.uint8)).buffer(0, x.nbytes, x)
        self.fixed = dict(self.copies)  #: pinned buffers of the batch and the results
        self.allocate(*network.resident)
        for x, values in (*constants(network), *initial_state(network, seed)):
            copy(np.ascontiguousarray(values), self.buffers[x].array, self.streams.compute)
            self.streams.compute.synchronize()

    # -- an iteration --------------------------------------------------------------------------------------------------

    def train(self, images: np.ndarray, labels: np.ndarray, **numbers: float) -> float:
        """Learn from a batch; the mean loss before that.  `numbers` are the optimiser's, such as its rate."""
        for _ in self.iteration(images, labels, **numbers):
            pass
        return float(np.mean(self.fixed[self.network.output.losses].array, dtype=np.float64))

    def iteration(self, images: np.ndarray, labels: np.ndarray, **numbers: float) -> Iterator[Action]:
        """Learn from a batch; after every layer, what was done."""
        self._ask_modules()
        defaults = self.network.learning.rule.defaults
        self.numbers = {"seed": self.seed, "iteration": self.iterations, **defaults, **numbers}
        self.begin(images, labels)
        yield from self.actions
        for step in self.network.steps:
            self.actions.clear()
            self.run(step)
            yield from self.actions
        self.actions.clear()
        self.end()
        yield from self.actions

    def _ask_modules(self) -> None:
        """Bind the modules for an iteration, in an order in which each knows what those before it have decided."""
        self.actions.clear()
        setup, context = self.setup, Context(self.network, self.machine, self.budget)
        self.context, self.recompute = context, setup.recompute.bound(context)
        context.decide("drop", setup.recompute.name, self.recompute.drops())
        context.rebuilt_from.update(self.recompute.sources())
        self.offloads = setup.offload.bound(context)
        context.decide("offload", setup.offload.name, self.offloads.offloads())
        self.liveness, self.prefetches = setup.liveness.bound(context), setup.prefetch.bound(context)
        self.cache, self.pinned = setup.cache.bound(context), setup.pinned.bound(context)
        self.stays = set(context.maps_across()) - set(context.fates)  #: maps that are not released before backward
        self.step: Step | None = None  #: the running one
        self.copied = False  #: whether it, or an earlier part of it, has moved anything
        self.locked: set[Tensor] = set()  #: never evicted: what the running step uses
        self.rebuilt: dict[Tensor, None] = {}  #: for the running step
        self.unfinished: set[Tensor] = set()  #: rebuilt, but an in-place update (such as a ReLU) is still missing

    def begin(self, *batch: np.ndarray) -> None:
        """The batch is in pinned memory; start to copy it in."""
        self.copies, self.valid = dict(self.fixed), set(self.network.given)
        for tensor, values in zip(self.network.given, batch, strict=True):
            np.copyto(self.copies[tensor].array, values)
            if tensor.managed:
                self.allocate(tensor)
            self.copy_in(tensor, "batch")

    def run(self, step: Step) -> None:
        """Bring what the layer reads, make room for what it makes, run its kernels, let go of what is done with."""
        self.step, self.locked, self.copied = step, set(step.uses), step.part > 1 and self.copied
        self.rebuilt.clear()
        backward_begins = step.number == self.network.depth + 1
        if backward_begins and self.setup.barrier:
            self.join()
        self.free(*(x for x, it in self.leaving.items() if backward_begins or self.streams.is_over(it)))
        self.prefetch(step, "early")
        self.fetch(step)
        gradients = [x for x in step.writes if x.kind == "weight gradient"]
        self.allocate(*(x for x in step.writes if x not in gradients))
        self.prefetch(step, "between")
        self.allocate(*gradients)
        self.prefetch(step, "late")
        self.launch(step)
        self.offload(step)
        if self.setup.join and self.copied and step.part == step.parts:
            self.join()
        self.release_dead(step)

    def end(self) -> None:
        """Copy the results out, release everything, wait for all streams."""
        for tensor in self.context.results:
            self.copy_out(tensor, "result")
        self.release(*[tensor for tensor in self.buffers if tensor.managed])
        self.free(*self.leaving)
        self.join()
        self.streams.synchronize()
        self.device.past.clear()
        self.host.past.clear()
        self.iterations += 1

    # -- offload, prefetch, fetch, join --------------------------------------------------------------------------------

    def offload(self, step: Step) -> None:
        """Maps begin to leave.  They are still there, until they are released."""
        for tensor in self.offloads.leaves(step):
            if tensor in self.buffers and tensor not in self.network.given:
                self.copy_out(tensor, "offload")

    def prefetch(self, step: Step, when: str) -> None:
        """Maps begin to come back, if there is room for them.  The module says when in a step it is asked."""
        for tensor in self.prefetches.due(step) if when == self.setup.prefetch.order else ():
            if tensor in self.buffers or self.context.last_use(tensor) < step.number:
                continue
            if tensor in self.leaving:
                self.revive(tensor)
            elif tensor in self.valid and self.found_room(tensor):
                self.copy_in(tensor, "prefetch")

    def fetch(self, step: Step) -> None:
        """Everything that the step reads.  What was dropped comes first: to rebuild it takes room."""
        needed = (*step.reads, *step.updates)
        for tensor in needed:
            if self.context.is_dropped(tensor) and tensor not in self.buffers:
                self.have(tensor)
        for tensor in needed:
            self.have(tensor)
        self.locked = set(step.uses)

    def have(self, tensor: Tensor) -> None:
        """The tensor is there; or it has not quite left; or it is copied in, on demand; or it is rebuilt."""
        if tensor in self.buffers and tensor not in self.unfinished:
            self.cache.touch(tensor)
        elif tensor in self.leaving:
            self.revive(tensor)
        elif tensor in self.valid:
            if tensor in self.unfinished:  # the pinned copy has the updates in place, too
                self.unfinished.remove(tensor)
                self.cache.touch(tensor)
            else:
                self.allocate(tensor)
            self.copy_in(tensor, "fetch")
        else:
            self.rebuild(tensor)
        self.locked.add(tensor)

    def join(self) -> None:
        """Each stream waits for all others."""
        self._tell("join", "all streams")
        self.streams.join()

    # -- device memory -------------------------------------------------------------------------------------------------

    def allocate(self, *tensors: Tensor) -> None:
        """A buffer for each.  Without room, take the bytes of the oldest copy under way; else evict; else fail."""
        for tensor in tensors:
            while not self.found_room(tensor):
                if self.leaving:
                    self.free(next(iter(self.leaving)))
                elif (victim := self.cache.victim(self.locked, self.step.number if self.step else 0)) is not None:
                    self.evict(victim)
                else:
                    free, hole = self.pool.free_bytes, self.pool.hole_for(tensor in self.stays)
                    alive = {"tensor": sum(x.nbytes for x in self.buffers)}
                    who = f"{self.network.name} under {self.setup.name}"
                    raise DoesNotFit(self.step, tensor.name, tensor.nbytes, free, hole, self.budget, alive, who=who)

    def found_room(self, tensor: Tensor) -> bool:
        """A buffer, if there is a hole for it."""
        address = self.pool.allocate(tensor.nbytes, tensor in self.stays)
        if address is not None:
            self._tell("allocate", tensor, address)
            self._arrive(tensor, self.device.buffer(address, self.pool.block_bytes(address), tensor))
        return address is not None

    def revive(self, tensor: Tensor) -> None:
        """It was released, but its bytes are still there."""
        self._tell("revive", tensor)
        self._arrive(tensor, self.leaving.pop(tensor))

    def _arrive(self, tensor: Tensor, buffer: Buffer) -> None:
        self.buffers[tensor] = buffer
        if tensor.managed:
            self.cache.enter(tensor)

    def release_dead(self, step: Step) -> None:
        """Let go of what no later step needs, or not before it is copied in; then of what was made on the way."""
        for tensor in self.liveness.dead(step):
            if tensor in self.buffers:
                comes_back = self.context.is_offloaded(tensor) and self.context.last_use(tensor) > step.number
                if comes_back and tensor not in self.network.given:
                    self.copy_out(tensor, "offload")  # no copy, unless an eviction has used up the first one
                self.release(tensor)
        self.release(*(x for x in self.rebuilt if x in self.buffers and self.context.last_use(x) <= step.number))

    def release(self, *tensors: Tensor) -> None:
        """Their lives end.  Their bytes are free at once, unless a copy of them may still run."""
        for tensor in tensors:
            self._tell("release", tensor)
            buffer = self.leaving[tensor] = self.buffers.pop(tensor)
            self.unfinished.discard(tensor)
            self.stays.discard(tensor)
            self.cache.leave(tensor)
            if self.streams.is_over(buffer):
                self.free(tensor)

    def free(self, *tensors: Tensor) -> None:
        """Their bytes are another's, whose first work waits for the copies that still run."""
        for tensor in tensors:
            buffer = self.leaving.pop(tensor)
            self.pool.free(buffer.address)
            self.device.past.append(buffer)
            self._tell("free", tensor)
            if self.poison:
                poison = partial(fill, buffer.array.view(np.float32), float("nan"), stream=self.streams.compute)
                self.streams.work(self.streams.compute, poison, [], [buffer])

    # -- copies --------------------------------------------------------------------------------------------------------

    def copy_out(self, tensor: Tensor, why: str) -> None:
        """To pinned memory, unless there is a valid copy."""
        if tensor not in self.valid:
            if tensor not in self.copies:
                self.copies[tensor] = self.pinned_buffer(tensor)
            self._copy(self.streams.out, self.buffers[tensor], self.copies[tensor], tensor, why)
            self.valid.add(tensor)

    def copy_in(self, tensor: Tensor, why: str) -> None:
        """From pinned memory.  The slot's module may then give the place to another."""
        self._copy(self.streams.into, self.copies[tensor], self.buffers[tensor], tensor, why)
        if tensor not in self.fixed and self.pinned.fetched(tensor):
            self.valid.remove(tensor)
            self.host.past.append(self.copies.pop(tensor))

    def _copy(self, stream: Any, source: Buffer, target: Buffer, tensor: Tensor, why: str) -> None:
        self.copied = True
        number = self.streams.work(stream, partial(copy, source.array, target.array, stream), [source], [target])
        self._tell(why, tensor, number)

    # -- kernels -------------------------------------------------------------------------------------------------------

    def launch(self, step: Step, again: bool = False) -> None:
        """The step's kernels; again, without those that change what outlives the iteration."""
        for call in step.calls:
            if not (again and call.once):
                changed = (*call.updates, *call.writes)
                self.valid.difference_update(() if again else changed)
                reads, writes = [self.buffers[x] for x in call.reads], [self.buffers[x] for x in changed]
                number = self.streams.work(self.streams.compute, partial(self._call, call), reads, writes)
                self._tell("launch again" if again else "launch", call, number)

    def _call(self, call: Call) -> None:
        """Such as `kernels.conv.forward(x=…, w=…, y=…, stride=(1, 1), stream=compute)`."""
        family, _, function = call.function.partition(".")
        given = {name: self._argument(value) for name, value in call.arguments.items()}
        getattr(import_module(f"kernels.{family}"), function)(**given, stream=self.streams.compute)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.buffers[value].array
        if isinstance(value, tuple):
            return tuple(self._argument(one) for one in value)
        return self.numbers[value.name] if isinstance(value, Setting) else value

    def _tell(self, what: str, of: Tensor | Call | str, at: int | None = None) -> None:
        self.actions.append(Action(self.step, what, of, at))

    # -- SuperNeurons' rebuild and evict, vDNN++'s limit of pinned memory.  A reader of vDNN stops here ----------------

    def rebuild(self, tensor: Tensor) -> None:
        """Run the layers again that make a dropped map; those whose outputs are there need not."""
        assert self.step is not None
        chain = list(self.recompute.chain(tensor, self.step, self._is_there))
        last = {x: step for step, _ in chain for x in step.uses}
        kept = {tensor, *self.locked}
        for step, done_with in chain:
            for x in step.writes:
                if x in self.leaving:
                    self.revive(x)
                    self.rebuilt[x] = None
            if self.buffers.keys() >= {*step.writes} and self.unfinished.isdisjoint(step.updates):
                continue
            self._run_again(step)
            self.release(*(x for x in done_with if x in self.buffers))
            self.locked -= {*done_with, *(x for x in step.uses if last[x] is step and x not in kept | self.unfinished)}
        if not self._is_there(tensor):
            from refimpl.slots.answers import lost

            raise lost(self.setup, self.context, tensor, self.step)

    def _is_there(self, tensor: Tensor) -> bool:
        """Whether a step could read the tensor without a copy and without a rebuild."""
        return tensor in self.leaving or (tensor in self.buffers and tensor not in self.unfinished)

    def _run_again(self, step: Step) -> None:
        assert self.step is not None
        self.locked.update(step.uses)
        for x in step.reads:
            self.have(x)
        self.allocate(*(y for y in step.writes if y not in self.buffers))
        self.launch(step, again=True)
        self.rebuilt.update(dict.fromkeys(step.writes))
        for y in (*step.writes, *step.updates):
            unfinished = self.context.last_forward_write(y, self.step.number) > step.number
            (self.unfinished.add if unfinished else self.unfinished.discard)(y)

    def evict(self, tensor: Tensor) -> None:
        """The cache's victim leaves: with a copy, unless there is a valid one or it can be rebuilt."""
        assert self.step is not None
        if tensor not in self.unfinished and not self.recompute.can_rebuild(tensor, self.step):
            self.copy_out(tensor, "evict")
        self.release(tensor)

    def pinned_buffer(self, tensor: Tensor) -> Buffer:
        """A place in pinned memory.  Where its limit leaves none, an outdated copy gives up its own."""
        while (place := self.pinned.place(tensor)) is None:
            maps = [x for x in self.copies if x not in self.fixed]
            outdated = [x for x in maps if x not in self.valid]
            if not outdated or not self.pinned.fetched(outdated[-1]):
                limit = self.pinned.limits[HOST]
                free = limit - sum(pinned_size(x.nbytes) for x in maps)
                raise PinnedDoesNotFit.of(self.step, tensor.name, tensor.nbytes, [Room(HOST, limit, free, free)])
            self.host.past.append(self.copies.pop(outdated[-1]))
        return self.host.buffer(place.address, pinned_size(tensor.nbytes), tensor)


def refuse(network: Network, setup: Setup, machine: Any) -> None:
    """Raise an error of one line where the executor cannot do what a plan can."""
    if isinstance(setup, Search):
        raise SetupError(f"{setup.name} tries several setups, and the executor none; {setup.instead}")
    if isinstance(setup.allocator, PoolSearch):
        raise SetupError(f"allocator={setup.allocator.name} plans several times; set allocator=best-fit")
    if setup.pinned.uses_store:
        raise SetupError(f"pinned={setup.pinned.name} has a store, and the executor none; set pinned=buffer-a-map")
    if others := [tier.name for tier in machine.tiers if tier.name != HOST]:
        raise SetupError(f"the executor copies to the host alone; leave out the tier {others[0]}")
    if network.ranks > 1:
        raise SetupError(f"the executor trains on one rank, and {network.name} has {network.ranks}")
    if network.on_host:
        raise SetupError("the executor keeps the optimiser's state on the device; leave out :state-on-host")
    if len(network.given) > 2:
        raise SetupError(f"the executor takes images and labels, and {network.name} has more inputs")
    families = dict.fromkeys(call.family for step in network.steps for call in step.calls)
    if missing := [family for family in families if find_spec(f"kernels.{family}") is None]:
        raise SetupError(f"{network.name} calls {missing[0]}, which has no plain kernel")
