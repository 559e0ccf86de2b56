"""The all-reduce of data-parallel training: beside MPI's own, and its share of an iteration with and without overlap.

    mpiexec -bind-to core -n 2 refimpl bench --all-reduce tiny-vgg

Both all-reduces, and both iterations, are measured in turns, and the median of each counts: what else the machine does
disturbs all alike.  Ours is in place, and its gradients are not one array; MPI's own is of one, as it is called most
simply.  That one may sum in any order, so it gives other bits from 3 ranks on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from refimpl.backend import Communicator, Trainer
from refimpl.machine import Timeline, wire_bytes
from refimpl.machine.here import processor
from refimpl.machine.timing import Run, by, least_in_turns
from refimpl.names.machines import named as machine_named
from refimpl.names.networks import build
from refimpl.names.presets import baseline
from refimpl.parallel.communicators import Mpi
from refimpl.planner import plan
from refimpl.text import duration, size

SECOND = 1_000_000_000  #: bytes that two ranks of one machine reduce in about a second

Rows = tuple[list[str], list[list[str]]]  #: head and rows


@dataclass(frozen=True)
class Reducing:
    """Measured on rank 0.  Seconds, bytes."""

    name: str  #: network, ranks, processor
    reduced: list[int]  #: gradients of each all-reduce with overlap
    gradients: int  #: how many there are
    ranks: int
    ours: float  #: all of them, nothing beside
    mpi: float  #: the same by MPI.Allreduce
    iterations: dict[str, Timeline]  #: how gradients are reduced → the median iteration

    def table(self) -> Rows:
        sent = size(wire_bytes(sum(self.reduced), self.ranks))
        what = f"{self.gradients} gradients, {size(sum(self.reduced))}, {sent} on the wire"
        rows = [
            ["all-reduce, in rank order", duration(self.ours), what],
            ["MPI.Allreduce", duration(self.mpi), f"the same bytes; ours takes {self.ours / self.mpi:.2f} × as long"],
        ]
        for how, timeline in self.iterations.items():
            busy, hidden = timeline.busy("network"), timeline.hidden("network")
            waited = (busy - hidden) / timeline.seconds
            remark = f"reducing {duration(busy)}, {duration(hidden)} of it beside kernels; {waited:.1%} waited for"
            rows.append([f"iteration, reduced {how}", duration(timeline.seconds), remark.replace("%", " %")])
        return ["what", "median", ""], rows


def run(communicator: Mpi, name: str, batch: int, turns: int) -> Reducing:
    """Measure; every rank calls this.

    Args:
        communicator: of the ranks.
        name: the network's.
        batch: images of each rank.
        turns: of iterations; small all-reduces take more, until as much has been sent as would take a second.
    """
    network, ranks = build(name, batch), communicator.size
    made = {"beside backward": network.data_parallel(ranks), "after backward": network.data_parallel(ranks, None)}
    overlapped = made["beside backward"]
    buckets = [call.updates for step in overlapped.steps for call in step.calls if call.collective]
    ours = [communicator.mean([np.zeros(one.shape, np.float32) for one in bucket]) for bucket in buckets]
    mpi = [communicator.plain_sum(np.zeros(nbytes // 4, np.float32)) for nbytes in overlapped.reduced]
    runs: dict[str, Run] = {"ours": lambda: [call() for call in ours], "mpi": lambda: [call() for call in mpi]}
    reductions = max(turns, min(500, SECOND // sum(overlapped.reduced)))
    seconds = least_in_turns(runs, partial(seconds_of, communicator), reductions, counts=median)
    machine = machine_named("here").with_catalogue("own")
    with communicator.preparing():
        trainers = {
            how: Trainer(plan(one, baseline(), machine, machine.memory_bytes), communicator=communicator)
            for how, one in made.items()
        }
    timelines: dict[str, list[Timeline]] = {how: [] for how in made}
    for _ in range(turns):
        for how, trainer in trainers.items():
            all_here(communicator)
            timelines[how].append(trainer.timeline())
    for trainer in trainers.values():
        trainer.close()
    title = f"{network.name}, batch {batch} on each of {ranks} ranks, {processor()}; medians"
    iterations = {how: sorted(found, key=lambda one: one.seconds)[turns // 2] for how, found in timelines.items()}
    return Reducing(
        title, overlapped.reduced, sum(map(len, buckets)), ranks,
        seconds["ours"], seconds["mpi"], iterations,
    )  # fmt: skip


def all_here(communicator: Communicator) -> None:
    """Wait for all ranks; Ctrl-C on one of them ends all."""
    if "True" in communicator.agree(str(communicator.interrupted)):
        raise KeyboardInterrupt


def seconds_of(communicator: Communicator, run: Run, times: int) -> float:
    """Seconds from the moment at which all ranks are there."""
    all_here(communicator)
    return by()(run, times)
