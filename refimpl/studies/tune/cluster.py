"""Data-parallel training on a cluster, simulated: one all-reduce of all gradients an iteration (R).

Nothing here runs on more than one machine, and no all-reduce is planned: this estimates, for many batches and
clusters, what `network.data_parallel` plans and simulates call by call.  A worker's iteration is the planned one; the
network is a ring with a rate and a latency.  Without overlap one all-reduce follows the last backward step.  With
overlap the gradients are reduced in buckets, in the order in which backward finishes them, while backward goes on; a
bucket's all-reduce begins when its last gradient is ready and the one before it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refimpl.accudnn.tuner import Gradient
from refimpl.machine import Ring, Timeline
from refimpl.network.data_parallel import buckets
from refimpl.network.network import BUCKET_BYTES
from refimpl.planner import Launch, Program


@dataclass(frozen=True)
class Cluster:
    """Workers with one GPU each, in a ring.

    Args:
        workers: how many.
        rate: bytes a second of one link.
        latency: seconds of one message.
        overlap: whether gradients are reduced while backward runs.
    """

    workers: int
    rate: float = Ring.rate
    latency: float = Ring.latency
    overlap: bool = True

    def reduce_seconds(self, nbytes: int) -> float:
        """Of an all-reduce."""
        return Ring(self.rate, self.latency).reduce_seconds(nbytes, self.workers)

    def iteration(self, seconds: float, gradients: Sequence[Gradient]) -> float:
        """Seconds of an iteration that takes `seconds` on one worker; the last updates are not waited for again."""
        if self.workers == 1:
            return seconds
        if not self.overlap:
            return seconds + self.reduce_seconds(sum(gradient.nbytes for gradient in gradients))
        end = 0.0
        for bucket in buckets(gradients, lambda gradient: gradient.nbytes, BUCKET_BYTES):
            end = max(end, bucket[-1].ready) + self.reduce_seconds(sum(gradient.nbytes for gradient in bucket))
        return max(seconds, end)


def gradients_of(program: Program, timeline: Timeline) -> list[Gradient]:
    """Every weight's gradient, in the order in which the program completes them."""
    gradients = {parameter.gradient for _, _, parameter in program.network.parameters()}
    ready = {}
    for span in timeline.on("compute"):
        if isinstance(span.instruction, Launch):
            ready.update(dict.fromkeys(gradients.intersection(span.instruction.call.writes), span.end))
    return sorted(Gradient(end, tensor.nbytes) for tensor, end in ready.items())
