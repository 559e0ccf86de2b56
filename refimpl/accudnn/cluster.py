"""Data-parallel training on a cluster, simulated: one all-reduce of all gradients an iteration (R).

Nothing here runs on more than one machine.  A worker's iteration is the planned one; the network is a ring with a
rate and a latency.  Without overlap one all-reduce follows the last backward step.  With overlap the gradients are
reduced in buckets, in the order in which backward finishes them, while backward goes on; a bucket's all-reduce begins
when its last gradient is ready and the one before it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from refimpl.machine import Timeline
from refimpl.planner import Launch, Program

BUCKET_BYTES = 25_000_000  #: of gradients; the one that exceeds it closes the bucket
RATE = 1.25e9  #: bytes a second: 10 Gbit
LATENCY = 20e-6  #: seconds of one message


class Gradient(NamedTuple):
    """A weight's gradient in one iteration."""

    ready: float  #: seconds from the iteration's beginning until it is complete
    nbytes: int


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
    rate: float = RATE
    latency: float = LATENCY
    overlap: bool = True

    def reduce_seconds(self, nbytes: int) -> float:
        """A ring's all-reduce: every worker sends 2(n-1) messages of an n-th of the bytes."""
        messages = 2 * (self.workers - 1)
        return messages / self.workers * nbytes / self.rate + messages * self.latency

    def iteration(self, seconds: float, gradients: Sequence[Gradient]) -> float:
        """Seconds of an iteration that takes `seconds` on one worker; the last updates are not waited for again."""
        if self.workers == 1:
            return seconds
        if not self.overlap:
            return seconds + self.reduce_seconds(sum(gradient.nbytes for gradient in gradients))
        end = 0.0
        for bucket in buckets(gradients):
            end = max(end, bucket.ready) + self.reduce_seconds(bucket.nbytes)
        return max(seconds, end)


def buckets(gradients: Sequence[Gradient], nbytes: int = BUCKET_BYTES) -> Iterator[Gradient]:
    """The gradients, in the order in which they are ready, put together until they make up `nbytes`."""
    filled = 0
    for gradient in gradients:
        filled += gradient.nbytes
        if filled >= nbytes:
            yield Gradient(gradient.ready, filled)
            filled = 0
    if filled:
        yield Gradient(gradients[-1].ready, filled)


def gradients_of(program: Program, timeline: Timeline) -> list[Gradient]:
    """Every weight's gradient, in the order in which the program completes them."""
    gradients = {parameter.gradient for _, _, parameter in program.network.parameters()}
    ready = {}
    for span in timeline.on("compute"):
        if isinstance(span.instruction, Launch):
            ready.update(dict.fromkeys(gradients.intersection(span.instruction.call.writes), span.end))
    return sorted(Gradient(end, tensor.nbytes) for tensor, end in ready.items())
