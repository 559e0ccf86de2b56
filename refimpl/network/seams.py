"""Seams: backward steps cut in parts, so that one map is released before the next one is made.

The backward step of a convolution reads x and dy for the gradient of its weights, then dy and the weights for dx.  As
one step it holds three maps, x, dy and dx.  Cut between the two calls it holds two at a time: x goes before dx comes.
No call is added and none is changed, so no bit of training is either.  MONeT (Shah et al., ICLR 2021) plans the two
as steps of their own; the four papers, and PyTorch's autograd, have one.

| layer | parts of its backward step |
| --- | --- |
| conv, conv_transpose, fc | x, dy → dw / dy, w → dx |
| the same with a fused ReLU | y, dy / x, dy → dw / dy, w → dx |
| scores | probabilities, dy / x, dy → dx |
| most others | one: a single call reads and makes all maps, or no map comes after one has gone |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import lru_cache

from refimpl.network.call import Call
from refimpl.network.layer import NetworkError
from refimpl.network.network import Network
from refimpl.network.tensor import Tensor


@lru_cache(maxsize=8)
def with_seams(network: Network) -> Network:
    """The same layers, tensors and calls in more steps: each backward step is cut where that spares memory.

    `layer.backward` is still the whole step.  Raises `NetworkError` for a network as PyTorch's autograd runs it.
    """
    if network.conventions.as_pytorch:
        raise NetworkError(
            f"{network.name} is planned as PyTorch's autograd runs it, where one node computes dx and dw: it has no "
            "seams; leave out seams=yes"
        )
    if network.whole:
        return network
    other = copy(network)
    other.whole, other.steps = network, network.steps[: network.depth]
    for step in network.steps[network.depth :]:
        parts = cut(weights_first(step.calls))
        for part, calls in enumerate(parts, 1):
            other.add_step(step.layer, calls, step.direction, part, len(parts))
    return other


def weights_first(calls: Iterable[Call]) -> list[Call]:
    """The calls; one that fills gradients of weights comes before those that make maps, unless it depends on them."""
    ordered: list[Call] = []
    for call in calls:
        place = len(ordered)
        if fills_weights(call):
            while place and not fills_weights(ordered[place - 1]) and independent(ordered[place - 1], call):
                place -= 1
        ordered.insert(place, call)
    return ordered


def fills_weights(call: Call) -> bool:
    """Whether it fills, or adds to, gradients of weights, and nothing else."""
    return all(tensor.kind == "weight gradient" for tensor in (*call.writes, *call.updates))


def independent(one: Call, other: Call) -> bool:
    """Whether two calls may change places: neither changes what the other touches."""
    changed = [{*call.writes, *call.updates} for call in (one, other)]
    return changed[0].isdisjoint(other.operands) and changed[1].isdisjoint(one.operands)


def cut(calls: Sequence[Call]) -> list[Sequence[Call]]:
    """The parts of a step, in order: cut between two calls where a managed tensor can go and another one comes."""
    for place in range(1, len(calls)):
        before, after = calls[:place], calls[place:]
        used, later = ({x for call in some for x in call.operands if x.managed} for some in (before, after))
        if used - later and comes(after) - used:
            return [before, *cut(after)]
    return [calls]


def comes(calls: Iterable[Call]) -> set[Tensor]:
    """The managed tensors that need room for these calls: those that they make, and the maps that they read."""
    made = {x for call in calls for x in call.writes}
    read = {x for call in calls for x in call.reads if x.kind in ("map", "input")}
    return {x for x in made | read if x.managed}
