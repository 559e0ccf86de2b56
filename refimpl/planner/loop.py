"""The loop: one pass over the network's steps that asks the modules and writes the program."""

from __future__ import annotations

from collections.abc import Iterable

from refimpl.machine import Machine
from refimpl.network import Network, Step, Tensor
from refimpl.network.collector import collector_paused
from refimpl.planner.books import Books, Workspace
from refimpl.planner.gap import close_gap
from refimpl.planner.instructions import COMPUTE, Counts, Fate, StepRow
from refimpl.planner.order import Block
from refimpl.planner.program import Program
from refimpl.planner.search import Search
from refimpl.planner.setup import Setup


def plan(network: Network, setup: Setup, machine: Machine, budget: int) -> Program:
    """The program of one iteration within `budget` bytes of device memory; raises `DoesNotFit`."""

    def attempt(one: Setup) -> Program:
        with collector_paused():
            return Planner(network, one, machine, budget).plan()

    return setup.search(attempt, network) if isinstance(setup, Search) else attempt(setup)


class Planner(Books):
    """Reads like the papers' pseudo-code: what the words mean stands in `Books`, what they decide in the modules."""

    def plan(self) -> Program:
        self._begin()
        join, order = self.setup.join, self.setup.prefetch.order
        for step in self.network.steps:
            self.step, self.locked, self.rebuilt = step, set(step.uses), set()
            copies = self.order.copies
            if step.number == self.network.depth + 1 and self.setup.barrier:
                self.order.join(step.number, self.device_streams)
            self.give_back_drained(everything=step.number == self.network.depth + 1)
            self.host.advance(step, self.clock.now[COMPUTE])
            if order == "early":
                self._prefetch(step)
            self._have_what_it_reads(step)
            self.locked = set(step.uses)
            self._place(tensor for tensor in step.writes if tensor.kind != "weight gradient")
            if order == "between":
                self._prefetch(step)
            self._place(tensor for tensor in step.writes if tensor.kind == "weight gradient")
            workspace = self.workspace(step)
            if order == "late":
                self._prefetch(step)
            self._sample(step, workspace)
            self.launch(step, workspace)
            for tensor in self.offload.leaves(step):
                self._leave(tensor)
            if join and self.order.copies > copies:
                self.order.join(step.number, self.device_streams)
            self.release_workspace(workspace)
            self._release_dead(step)
        return self._end()

    # -- the loop's phrases --------------------------------------------------------------------------------------------

    def _prefetch(self, step: Step) -> None:
        """Bring back what is due and will be used, where a hole is free."""
        for tensor in self.prefetch.due(step):
            if tensor not in self.device and self.context.last_use(tensor) >= step.number:
                self.bring(tensor)

    def _have_what_it_reads(self, step: Step) -> None:
        """Everything the step reads, rebuilding first: a rebuild needs room that a copy in would take."""
        needed = (*step.reads, *step.updates)
        for tensor in needed:
            self.counts["hits" if self.is_there(tensor) else "misses"] += 1
        for tensor in needed:
            if tensor not in self.device and self.is_dropped(tensor):
                self.have(tensor)
        for tensor in needed:
            self.have(tensor)

    def _place(self, tensors: Iterable[Tensor]) -> None:
        """A block for each, whatever has to go."""
        for tensor in tensors:
            self.allocate(tensor, self._stays(tensor))

    def is_dropped(self, tensor: Tensor) -> bool:
        fate = self.context.fates.get(tensor)
        return fate is not None and fate.name == "drop"

    def _stays(self, tensor: Tensor) -> bool:
        """Whether a map will be kept from forward to backward."""
        return tensor in self.crossing and tensor not in self.context.fates

    def _leave(self, tensor: Tensor) -> None:
        """An offload; the input batch's host copy exists."""
        if tensor in self.device and tensor not in self.batch:
            self.counts["offloaded_bytes"] += self.copy_out(tensor, "offload")

    def _comes_back(self, tensor: Tensor, step: Step) -> bool:
        """Whether a later step will want this tensor from the host."""
        fate = self.context.fates.get(tensor)
        return fate is not None and fate.name == "offload" and self.context.last_use(tensor) > step.number

    def _release_dead(self, step: Step) -> None:
        for tensor in self.liveness.dead(step):
            if tensor in self.device:
                if self._comes_back(tensor, step):
                    self._leave(tensor)  # unless it has: an eviction may have used up the copy since
                self.release(tensor)
        for tensor in self.rebuilt:  # made again only as a means, and not needed any more
            if tensor in self.device and self.context.last_use(tensor) <= step.number:
                self.release(tensor)

    def _sample(self, step: Step, workspace: Workspace) -> None:
        """The books just before the step's first launch."""
        row = StepRow(step, self.live_bytes, self.live_tensors, self.transient_bytes, self.pool.held, workspace.nbytes)
        self.rows.append(row)
        self.transient_bytes = self.live_bytes

    # -- before the first step, and after the last ---------------------------------------------------------------------

    def _begin(self) -> None:
        """Place the resident tensors, and start the upload of the batch."""
        network = self.network
        self.rows: list[StepRow] = []
        self.crossing = set(self.context.maps_across())
        for tensor in network.resident:
            address = self.pool.allocate(tensor.nbytes)
            if address is None:
                raise self.does_not_fit(tensor)
            self.device[tensor] = Block(tensor, address, self.pool.block_bytes(address), len(self.streams))
        written = {tensor for step in network.steps for call in step.calls for tensor in call.writes}
        self.results = [tensor for tensor in (network.losses, network.predictions) if tensor in written]
        for tensor in (*self.batch, *self.results):
            self.host.fix(tensor, valid=tensor in self.batch)
        for tensor in self.batch:
            if tensor.managed:
                self.allocate(tensor, self._stays(tensor))
            self.copy_in(tensor, "batch")

    def _end(self) -> Program:
        """Bring out the results, let go of everything, and join all streams, so that the program can be repeated."""
        for tensor in self.results:
            self.copy_out(tensor, "result")
        for tensor in [tensor for tensor in self.device if tensor.managed]:
            self.release(tensor)
        self.give_back_drained(everything=True)
        self.order.join(self.now)
        instructions = self.order.close()
        closed = close_gap(instructions, self.device.values())
        kept = {tensor: Fate("keep", "none", "no module takes it") for tensor in self.context.maps_across()}
        return Program(
            network=self.network,
            setup=self.setup,
            machine=self.machine,
            budget=self.budget,
            instructions=instructions,
            streams=self.streams,
            resident={tensor: self.device[tensor].address for tensor in self.network.resident},
            host={t: self.host.address(t) for t in (*self.batch, *self.results)},
            fates=kept | self.context.fates,
            rows=self.rows,
            counts=Counts(waits=self.order.waits, **self.counts, **self.host.counts),
            peak_bytes=self.pool.peak,
            arena_bytes=self.pool.top - closed,
            pinned_bytes=self.host.pinned_bytes,
            store_bytes=self.host.store_bytes,
            planned_seconds=self.clock.end,
        )
