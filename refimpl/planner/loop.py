"""The loop: one pass over the network's steps that asks the modules and writes the program.

`refimpl.planner.planning` says which setups are planned more than once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import ClassVar

from refimpl.machine import HOST, Clock, Machine
from refimpl.network import Network, Step, Tensor
from refimpl.planner.device_memory import DeviceMemory, Memory
from refimpl.planner.instructions import HOST_STREAM, NETWORK_STREAM, Counts, StepRow
from refimpl.planner.mover import Mover, StreamNumbers, Workspace
from refimpl.planner.order import Order
from refimpl.planner.program import Program
from refimpl.planner.store import pinned_memory
from refimpl.slots.context import Context
from refimpl.slots.setup import Setup


class Planner:
    """Reads like the papers' pseudo-code.  It speaks to `memory` and to the `mover`; the modules decide."""

    mover_class: ClassVar = Mover  #: of the `mover`

    def __init__(
        self, network: Network, setup: Setup, machine: Machine, budget: int, memory: Memory = DeviceMemory
    ) -> None:
        network = setup.cut(network)
        self.network, self.setup, self.machine = network, setup, machine
        setup.check_tiers(machine)
        shared = setup.copy_streams == "shared"
        stores = (HOST_STREAM,) if setup.pinned.uses_store else ()
        reduces = (NETWORK_STREAM,) if network.ranks > 1 else ()
        self.streams = ("compute", *(("memory",) if shared else ("out", "in")), *reduces, *stores)
        self.device_streams = range(len(self.streams) - len(reduces) - len(stores))

        context = self.context = Context(network, machine, budget)  # the modules are bound in their order
        recompute = setup.recompute.bound(context)
        context.decide("drop", setup.recompute.name, recompute.drops())
        context.rebuilt_from.update(recompute.sources())
        self.offload = setup.offload.bound(context)
        context.decide("offload", setup.offload.name, self.offload.offloads())
        self.liveness = setup.liveness.bound(context)
        self.prefetch = setup.prefetch.bound(context)
        cache, algorithms = setup.cache.bound(context), setup.algorithms.bound(context)
        in_pytorch = network.conventions.as_pytorch
        if in_pytorch:
            from refimpl.planner.cache_of_maps import CacheOfMaps

            cache = CacheOfMaps(cache, context)

        self.order = Order(len(self.streams), Clock(len(self.streams), machine.ring.shares_link))
        self.memory = memory(setup.allocator, budget, self.order, machine, cache, in_pytorch)
        self.pinned = pinned_memory(setup.pinned, context, self.order, self.memory)
        streams = StreamNumbers(*((1, 1) if shared else (1, 2)), self.device_streams.stop)
        self.mover: Mover = self.mover_class(
            context, self.memory, self.pinned, self.order, streams, recompute, cache, algorithms, setup,
        )  # fmt: skip
        self.crossing = set(context.maps_across())
        self.rows: list[StepRow] = []

    def plan(self) -> Program:
        self._upload_batch()
        memory, mover, order, when = self.memory, self.mover, self.order, self.setup.prefetch.order
        copies = 0  # when the layer's first part began
        for step in self.steps():
            copies = order.copies if step.part == 1 else copies
            backward_begins = step.number == self.network.depth + 1
            order.step = step
            mover.begin(step)
            if backward_begins and self.setup.barrier:
                order.join(self.device_streams)
            memory.give_back_drained(everything=backward_begins)
            self.pinned.advance(step)
            if when == "early":
                self._prefetch(step)
            mover.have_inputs(step)
            self._allocate(tensor for tensor in step.writes if tensor.kind != "weight gradient")
            if when == "between":
                self._prefetch(step)
            self._allocate(tensor for tensor in step.writes if tensor.kind == "weight gradient")
            workspace = mover.workspace(step)
            for state in step.states:
                memory.lag = memory.lag or 2  # they leave while the next come; what fits depends on no wait
                mover.have(state)
            if when == "late":
                self._prefetch(step)
            self._sample(step, workspace)
            mover.launch(step, workspace)
            for tensor in (*self.offload.leaves(step), *step.states):
                mover.offload(tensor)
            if self.setup.join and order.copies > copies and step.part == step.parts:
                order.join(self.device_streams)
            mover.release_workspace(workspace)
            self._release_dead(step)
            mover.release_rebuilt(step)
        return self._end()

    def steps(self) -> Iterable[Step]:
        return self.network.steps

    # -- the loop's phrases --------------------------------------------------------------------------------------------

    def _prefetch(self, step: Step) -> None:
        """Prefetch what is due and will be used, where a hole is free."""
        for tensor in self.prefetch.due(step):
            if tensor not in self.memory and self.context.last_use(tensor) >= step.number:
                self.mover.prefetch(tensor)

    def _allocate(self, tensors: Iterable[Tensor]) -> None:
        """A block for each, whatever it takes; a map that has no other fate is kept from forward to backward."""
        for tensor in tensors:
            self.mover.allocate(tensor, tensor in self.crossing and tensor not in self.context.fates)

    def _sample(self, step: Step, workspace: Workspace) -> None:
        """The books just before the step's first launch."""
        memory = self.memory
        live = memory.live_bytes, memory.live_tensors, memory.transient_bytes
        self.rows.append(StepRow(step, *live, memory.pool.held, workspace.nbytes))
        memory.transient_bytes = memory.live_bytes

    def _release_dead(self, step: Step) -> None:
        """Release what liveness says; an offloaded map that will be fetched must have a copy on the host."""
        for tensor in self.liveness.dead(step):
            if tensor in self.memory:
                if self.context.is_offloaded(tensor) and self.context.last_use(tensor) > step.number:
                    self.mover.offload(tensor)  # no copy, unless an eviction has used up the first one
                self.mover.release(tensor)

    # -- before the first step, and after the last ---------------------------------------------------------------------

    def _upload_batch(self) -> None:
        """Place the resident tensors, and start the upload of the batch."""
        network = self.network
        for tensor in network.resident:
            self.memory.reside(tensor)
        for tensor in (*network.on_host, *self.mover.batch, *self.context.results):
            self.pinned.fix(tensor, valid=tensor not in self.context.results)
        for tensor in self.mover.batch:
            if tensor.managed:
                self._allocate([tensor])
            self.mover.copy_in(tensor, "batch")

    def _count_revived(self) -> None:
        """What drained until it was wanted again has never left."""
        for tensor, released, wanted in self.memory.revived:
            for at in range(released, wanted - 1):
                row = self.rows[at]  # of the step after that number
                live = row.live_bytes + tensor.nbytes
                most = max(live, row.transient_bytes + tensor.nbytes * (at > released))  # until then it was live
                self.rows[at] = replace(row, live_bytes=live, live_tensors=row.live_tensors + 1, transient_bytes=most)

    def _end(self) -> Program:
        """Copy the results out, release everything, and join all streams, so that the program can be repeated."""
        for tensor in self.context.results:
            self.mover.copy_out(tensor, "result")
        for tensor in self.memory.managed():
            self.mover.release(tensor)
        self.memory.give_back_drained(everything=True)
        if self.memory.in_pytorch:
            self._count_revived()
        self.order.join()
        resident = self.memory.residents()
        instructions, cut_bytes = self.order.close(resident)
        keep = partial(self.context.fate, "keep", "none", "no module takes it")
        kept = {tensor: keep(tensor) for tensor in self.context.maps_across()}
        return Program(
            network=self.network,
            setup=self.setup,
            machine=self.machine,
            budget=self.memory.budget,
            pool_bytes=self.memory.budget,
            instructions=instructions,
            streams=self.streams,
            resident={block.tensor: block.address for block in resident},
            pinned={tensor: block.address for tensor, block in self.pinned.fixed.items()},
            fates=kept | self.context.fates,
            rows=self.rows,
            counts=Counts(waits=self.order.waits, **self.mover.counts, **self.pinned.counts),
            peak_bytes=self.memory.pool.peak,
            arena_bytes=self.memory.pool.top - cut_bytes,
            pinned_bytes=self.pinned.taken[HOST],
            store_bytes=self.pinned.store_bytes,
            tier_bytes={tier: taken for tier, taken in self.pinned.taken.items() if tier != HOST},
            planned_seconds=self.order.clock.end,
        )
