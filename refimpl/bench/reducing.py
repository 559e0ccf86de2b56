"""The all-reduce of data-parallel training: beside MPI's own, and its share of an iteration with and without overlap.

    mpiexec -n 2 refimpl bench --all-reduce tiny-vgg

Both all-reduces, and both iterations, are measured in turns, and the least time of each counts: what else the machine
does disturbs all alike.  MPI's own may sum in any order, so it gives other bits from 3 ranks on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from refimpl.backend import Mpi, Trainer
from refimpl.machine import Timeline, wire_bytes
from refimpl.machine.here import processor
from refimpl.machine.named import machine as machine_named
from refimpl.network.zoo import build
from refimpl.planner import plan
from refimpl.registry.presets import baseline
from refimpl.text import duration, size

Rows = tuple[list[str], list[list[str]]]  #: head and rows


@dataclass(frozen=True)
class Reducing:
    """Measured on rank 0.  Seconds, bytes."""

    name: str  #: network, ranks, processor
    reduced: list[int]  #: gradients of each all-reduce with overlap
    ranks: int
    ours: float  #: all of them, nothing beside
    mpi: float  #: the same by MPI.Allreduce
    iterations: dict[str, Timeline]  #: how gradients are reduced → the fastest iteration

    def table(self) -> Rows:
        ratio = f"{self.ours / self.mpi:.2f} × MPI.Allreduce"
        sent = size(wire_bytes(sum(self.reduced), self.ranks))
        rows = [
            [
                "all-reduce, in rank order",
                duration(self.ours),
                f"{size(sum(self.reduced))}, {sent} on the wire; {ratio}",
            ],
            ["MPI.Allreduce", duration(self.mpi), "the same bytes"],
        ]
        for how, timeline in self.iterations.items():
            busy, hidden = timeline.busy("network"), timeline.hidden("network")
            waited = (busy - hidden) / timeline.seconds
            remark = f"reducing {duration(busy)}, {duration(hidden)} of it beside kernels; {waited:.1%} waited for"
            rows.append([f"iteration, reduced {how}", duration(timeline.seconds), remark.replace("%", " %")])
        return ["what", "least", ""], rows


def run(communicator: Mpi, name: str, batch: int, turns: int) -> Reducing:
    """Measure; every rank calls this.

    Args:
        communicator: of the ranks.
        name: the network's.
        batch: images of each rank.
        turns: of which the least time counts.
    """
    network, ranks = build(name, batch), communicator.size
    overlapped = network.data_parallel(ranks)
    buckets = [np.ones(nbytes // 4, np.float32) for nbytes in overlapped.reduced]
    ours = [communicator.mean([bucket]) for bucket in buckets]
    mpi = [communicator.plain_sum(bucket) for bucket in buckets]
    least = {"ours": float("inf"), "mpi": float("inf")}
    for _ in range(turns):
        for which, calls in (("ours", ours), ("mpi", mpi)):
            least[which] = min(least[which], seconds_of(communicator, calls))
    iterations: dict[str, Timeline] = {}
    machine = machine_named("here").with_catalogue("own")
    made = {"beside backward": overlapped, "after backward": network.data_parallel(ranks, None)}
    trainers = {
        how: Trainer(plan(one, baseline(), machine, machine.memory_bytes), communicator=communicator)
        for how, one in made.items()
    }
    for _ in range(turns):
        for how, trainer in trainers.items():
            communicator.agree()
            timeline = trainer.timeline()
            if how not in iterations or timeline.seconds < iterations[how].seconds:
                iterations[how] = timeline
    for trainer in trainers.values():
        trainer.close()
    title = f"{network.name}, batch {batch} on each of {ranks} ranks, {processor()}; the least of {turns} turns"
    return Reducing(title, overlapped.reduced, ranks, least["ours"], least["mpi"], iterations)


def seconds_of(communicator: Mpi, calls: list[Callable[[], None]]) -> float:
    """From the moment at which all ranks are there."""
    communicator.agree()
    start = perf_counter()
    for call in calls:
        call()
    return perf_counter() - start
