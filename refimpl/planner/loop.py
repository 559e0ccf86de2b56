"""The loop: one pass over the network's steps that asks the modules and writes the program."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import ClassVar

from kernels.targets.collector import collector_paused
from refimpl.machine import HOST, Clock, Machine
from refimpl.machine.seconds import fastest_rest
from refimpl.memory import Allocator
from refimpl.network import Network, Step, Tensor
from refimpl.planner.cache_of_maps import CacheOfMaps
from refimpl.planner.device_memory import DeviceMemory
from refimpl.planner.instructions import COMPUTE, HOST_STREAM, NETWORK_STREAM, Counts, StepRow
from refimpl.planner.mover import Mover, Streams, Workspace
from refimpl.planner.order import Order
from refimpl.planner.pools import largest_smaller
from refimpl.planner.program import Program
from refimpl.planner.store import pinned_memory
from refimpl.slots.context import Fate, PlanContext
from refimpl.slots.errors import DoesNotFit, NotTheFastest, TooSlow
from refimpl.slots.planner_only import PoolSearch
from refimpl.slots.search import Search
from refimpl.slots.setup import Setup

#: The most steps that a released block drains, in the order in which they are tried; None: as long as there is room.
LAGS = (None, 4, 2, 0)


def plan(
    network: Network, setup: Setup, machine: Machine, budget: int, give_up: float = inf, exact: bool = False
) -> Program:
    """The program of one iteration.

    Args:
        network: what is trained.
        setup: a module in every slot, or a search.
        machine: whose times and sizes count.
        budget: bytes of device memory.
        give_up: seconds; a plan that is sure to take longer is not finished.  A search does not stop for it.
        exact: whether only a pool of the budget's size will do.  Else a plan that fails there for its holes is tried in
            smaller pools (`refimpl.planner.pools`): what fits in one of them fits the budget.

    Raises:
        DoesNotFit: says where and why.
        TooSlow: the iteration takes longer than `give_up`.
    """

    def in_pool(one: Setup, nbytes: int, give_up: float, lags: Sequence[int | None], patient: bool = True) -> Program:
        def within(nbytes: int, lag: int | None = None, allocator: Allocator = one.allocator) -> Program:
            with collector_paused():
                setup = dataclasses.replace(one, allocator=allocator)
                return planned(network, setup, machine, nbytes, lags if lag is None else [lag], give_up, patient)

        if isinstance(one.allocator, PoolSearch):
            found: Program = one.allocator.search(within, nbytes, one.fixed_order)
            return found
        return within(nbytes)

    def attempt(
        one: Setup, give_up: float, lags: Sequence[int | None], smaller: bool = True, patient: bool = True
    ) -> Program:
        lags = lags if "offload" in one.offload.offers else lags[:1]
        try:
            return in_pool(one, budget, give_up, lags, patient)
        except DoesNotFit as error:
            if exact or not smaller or not error.for_holes:
                raise
            found = largest_smaller(lambda nbytes: in_pool(one, nbytes, give_up, lags[-1:]), budget)
            if found is None:
                raise
        pool, program = found
        if len(lags) > 1:
            program = in_pool(one, pool, give_up, lags)
        return dataclasses.replace(program, budget=budget)

    if isinstance(setup, Search):  # where one candidate does not fit, another may

        def candidate(
            one: Setup, give_up: float = inf, smaller: bool = setup.smaller_pools, patient: bool = True
        ) -> Program:
            return attempt(one, give_up, LAGS[: 1 + adapts(one)], smaller, patient)

        return setup.search(candidate, PlanContext(network, machine, budget))
    return attempt(setup, give_up, LAGS)


def adapts(setup: Setup) -> bool:
    """Whether the algorithms follow from the largest hole, so that draining bytes cost speed."""
    return setup.algorithms.adapts and not setup.algorithms.counts_drained


def planned(
    network: Network,
    setup: Setup,
    machine: Machine,
    budget: int,
    lags: Sequence[int | None],
    give_up: float = inf,
    patient: bool = True,
) -> Program:
    """The plan whose blocks drain the longest; for few steps where a call would lack its fastest algorithm."""
    misfit = None
    for lag in lags:
        fastest = adapts(setup) and lag is None and len(lags) > 1
        planner = Planner(network, setup, machine, budget, lag, fastest, give_up)
        try:
            return settled(planner, patient)
        except NotTheFastest:
            continue
        except TooSlow:
            if not fastest:
                raise
        except DoesNotFit as error:
            misfit = error.with_traceback(None)  # whose frames hold what was planned
            if not planner.memory.drains:
                break
    assert misfit is not None
    try:
        raise misfit
    finally:
        del misfit  # its traceback holds this frame: they would keep each other, and the plan, alive


def settled(planner: Planner, patient: bool = True) -> Program:
    """The program without prefetches that an eviction undoes before a step reads the map.

    It is planned again without them, until none is left; where that does not fit, the program before it is kept.  A
    plan that is given up as too slow is planned again, too, if `patient`: what made it slow may be such prefetches.
    """
    program: Program | None = None
    first: DoesNotFit | NotTheFastest | TooSlow | None = None
    futile: set[tuple[Tensor, int]] = set()
    while True:
        try:
            program = planner.plan()
        except (DoesNotFit, NotTheFastest, TooSlow) as error:
            if program is not None:
                return program
            first = first or error.with_traceback(None)  # as `misfit` in `planned`
            if not isinstance(error, TooSlow) or not patient:
                break
        if planner.mover.undone <= futile:
            if program is None:
                break
            return program
        futile |= planner.mover.undone
        planner = planner.without(futile)
    assert first is not None
    try:
        raise first
    finally:
        del first


class Planner:
    """Reads like the papers' pseudo-code.  It speaks to `memory` and to the `mover`; the modules decide.

    `lag`: the most steps that a released block drains; `fastest`: give up where a call lacks its fastest algorithm;
    `give_up`: seconds beyond which the plan is not finished; `futile`: (map, step) of prefetches that are not made.
    """

    memory_class: ClassVar = DeviceMemory  #: of `memory`
    mover_class: ClassVar = Mover  #: of the `mover`

    def __init__(
        self,
        network: Network,
        setup: Setup,
        machine: Machine,
        budget: int,
        lag: int | None = None,
        fastest: bool = False,
        give_up: float = inf,
        futile: Collection[tuple[Tensor, int]] = (),
    ) -> None:
        self.given = network, setup, machine, budget, lag, fastest, give_up
        self.network, self.setup, self.machine = network, setup, machine
        self.give_up, self.fastest_rest = give_up, fastest_rest(network, machine)
        setup.check_tiers(machine)
        shared = setup.copy_streams == "shared"
        stores = (HOST_STREAM,) if setup.pinned.uses_store else ()
        reduces = (NETWORK_STREAM,) if network.ranks > 1 else ()
        self.streams = ("compute", *(("memory",) if shared else ("out", "in")), *reduces, *stores)
        self.device_streams = range(len(self.streams) - len(reduces) - len(stores))

        context = self.context = PlanContext(network, machine, budget)  # the modules are bound in their order
        recompute = setup.recompute.bind(context)
        context.decide("drop", setup.recompute.name, recompute.drops())
        context.rebuilt_from.update(recompute.sources())
        self.offload = setup.offload.bind(context)
        context.decide("offload", setup.offload.name, self.offload.offloads())
        self.liveness = setup.liveness.bind(context)
        self.prefetch = setup.prefetch.bind(context)
        cache, algorithms = setup.cache.bind(context), setup.algorithms.bind(context)
        in_pytorch = network.conventions.as_pytorch
        if in_pytorch:
            cache = CacheOfMaps(cache)

        self.order = Order(len(self.streams), Clock(len(self.streams), machine.ring.shares_link))
        self.memory: DeviceMemory = self.memory_class(
            setup.allocator, budget, self.order, machine, cache, in_pytorch, lag
        )
        self.pinned = pinned_memory(setup.pinned, context, self.order, self.memory)
        streams = Streams(*((1, 1) if shared else (1, 2)), self.device_streams.stop)
        self.mover: Mover = self.mover_class(
            context, self.memory, self.pinned, self.order, streams, recompute, cache, algorithms, fastest, futile
        )
        self.crossing = set(context.maps_across())
        self.rows: list[StepRow] = []

    def without(self, futile: Collection[tuple[Tensor, int]]) -> Planner:
        """A planner like this one before it planned, which does not make these prefetches."""
        return type(self)(*self.given, futile)

    def plan(self) -> Program:
        self._upload_batch()
        memory, mover, order, when = self.memory, self.mover, self.order, self.setup.prefetch.order
        for step, fastest in zip(self.network.steps, self.fastest_rest, strict=True):
            if order.clock.now[COMPUTE] + fastest > self.give_up:
                raise TooSlow(step, self.give_up)
            copies, backward_begins = order.copies, step.number == self.network.depth + 1
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
            if when == "late":
                self._prefetch(step)
            self._sample(step, workspace)
            mover.launch(step, workspace)
            for tensor in self.offload.leaves(step):
                mover.offload(tensor)
            if self.setup.join and order.copies > copies:
                order.join(self.device_streams)
            mover.release_workspace(workspace)
            self._release_dead(step)
            mover.release_rebuilt(step)
        return self._end()

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
        for tensor in (*self.mover.batch, *self.context.results):
            self.pinned.fix(tensor, valid=tensor in self.mover.batch)
        for tensor in self.mover.batch:
            if tensor.managed:
                self._allocate([tensor])
            self.mover.copy_in(tensor, "batch")

    def _end(self) -> Program:
        """Copy the results out, release everything, and join all streams, so that the program can be repeated."""
        for tensor in self.context.results:
            self.mover.copy_out(tensor, "result")
        for tensor in self.memory.managed():
            self.mover.release(tensor)
        self.memory.give_back_drained(everything=True)
        self.order.join()
        resident = self.memory.residents()
        instructions, cut_bytes = self.order.close(resident)
        kept = {tensor: Fate("keep", "none", "no module takes it") for tensor in self.context.maps_across()}
        return Program(
            network=self.network,
            setup=self.setup,
            machine=self.machine,
            budget=self.memory.budget,
            pool_bytes=self.memory.budget,
            instructions=instructions,
            streams=self.streams,
            resident={block.tensor: block.address for block in resident},
            pinned={t: self.pinned.address(t) for t in (*self.mover.batch, *self.context.results)},
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
