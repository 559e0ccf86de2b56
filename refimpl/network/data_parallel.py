"""Data-parallel training: how the steps of one rank differ from those of a network that trains alone.

Every rank has the whole network and its own images.  The gradients of the ranks are averaged by an all-reduce, which is
a call like any other, `comm.mean`: it updates gradients, so whatever orders, proves, simulates and lists calls does so
with it too.  Gradients are collected in *buckets*, in the order in which backward finishes them, and the step that
fills a bucket reduces it, while later steps go on computing.  An update right after its all-reduce would make backward
wait for the network, so all updates come last.  They do not depend on each other: no bit changes by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from refimpl.network.call import Call
from refimpl.network.layer import NetworkError, Step
from refimpl.network.learning import UPDATES
from refimpl.network.tensor import Tensor

Item = TypeVar("Item")


def buckets(items: Iterable[Item], nbytes: Callable[[Item], int], full: int | None) -> Iterator[list[Item]]:
    """The items, in order, put together until they make up `full` bytes; None: all of them together."""
    bucket: list[Item] = []
    held = 0
    for item in items:
        bucket.append(item)
        held += nbytes(item)
        if full is not None and held >= full:
            yield bucket
            bucket, held = [], 0
    if bucket:
        yield bucket


def data_parallel_calls(steps: Sequence[Step], ranks: int, bucket_bytes: int | None) -> list[list[Call]]:
    """The calls of each step, as one of `ranks` ranks makes them.

    Args:
        steps: of the network that trains alone.
        ranks: how many train together, at least 2.
        bucket_bytes: of gradients that an all-reduce waits for; None: one all-reduce after the last backward step.

    Returns:
        One list for each step.
    """
    listed = [[call for call in step.calls if not applies(call)] for step in steps]
    applied = [call for step in steps for call in step.calls if applies(call)]
    ready = {t: at for at, calls in enumerate(listed) for call in calls for t in (*call.writes, *call.updates)}
    updates = sorted(
        ((ready[call.arguments["dw"]], call) for call in applied if call.function in UPDATES), key=lambda one: one[0]
    )
    for _, call in updates:
        if call.arguments["dw"].managed:
            raise NetworkError(
                f"{call.arguments['dw']} is freed after its layer's backward step; data-parallel training reduces it "
                "later: give a network without :vdnnpp and :gradients"
            )
    last = max(at for at, calls in enumerate(listed) if calls)
    for bucket in buckets(updates, lambda update: update[1].arguments["dw"].nbytes, bucket_bytes):
        gradients: list[Tensor] = [call.arguments["dw"] for _, call in bucket]
        filled = bucket_bytes is not None and sum(tensor.nbytes for tensor in gradients) >= bucket_bytes
        mean = Call("comm.mean", {"gradients": tuple(gradients), "ranks": ranks}, updates=gradients)
        listed[bucket[-1][0] if filled else last].append(mean)
    listed[last] += applied
    return listed


def applies(call: Call) -> bool:
    """Whether a call belongs to what follows when all gradients are averaged: clipping, and the updates."""
    return call.function in UPDATES or call.family == "clip"
