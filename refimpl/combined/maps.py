"""Figures of a network's maps before anything is planned: how long each is away, and the cost of rebuilding it."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from refimpl.machine.seconds import fastest_seconds
from refimpl.network import Tensor
from refimpl.planner import Context

SHARE = 5000  #: a map with less than 1/SHARE of the bytes of all maps stays


class Maps:
    """The maps of a network that have a fate, those large enough to have one searched for.

    Seconds are those of a machine's fastest algorithms.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.network, self.machine = context, context.network, context.machine
        every = context.maps_across()
        least = sum(tensor.nbytes for tensor in every) // SHARE
        self._crossing = set(every)
        self.large = [tensor for tensor in every if tensor.nbytes >= least]
        self.named = {tensor.name: tensor for tensor in self.large}
        self.seconds = fastest_seconds(self.network, self.machine)
        #: Map → the last forward and the first backward step that use it: between them it is idle.
        self.idle = {x: (context.last_forward_use(x), context.first_backward_use(x)) for x in self.large}

    @cached_property
    def price(self) -> dict[Tensor, float]:
        """Map → the seconds that rebuilding it alone takes, for each of its bytes; infinite where nothing can."""
        return {tensor: self._rebuild_seconds(tensor) / tensor.nbytes for tensor in self.large}

    def _rebuild_seconds(self, tensor: Tensor) -> float:
        """All other maps are there; what no backward step reads is not, and is rebuilt on the way."""
        if not self.context.can_be_rebuilt(tensor):
            return float("inf")
        again, waiting, met = dict[int, float](), [tensor], {tensor}
        while waiting:
            made = waiting.pop()
            for step in self.context.uses[made]:
                if step.forward and made in (*step.writes, *step.updates):
                    again[step.number] = self.seconds[step.number - 1]
                    new = [x for x in step.reads if x not in self._crossing and x not in met]
                    met.update(new)
                    waiting += new
        return sum(again.values())

    @cached_property
    def twins(self) -> dict[Tensor, tuple[Tensor, ...]]:
        """Map → all maps like it, itself included: as many bytes, made by the same kind of layer."""
        alike: defaultdict[tuple[str, int], list[Tensor]] = defaultdict(list)
        for tensor in self.large:
            producer = self.context.producer(tensor)
            alike[producer.layer.kind if producer else "", tensor.nbytes].append(tensor)
        return {tensor: tuple(same) for same in alike.values() for tensor in same}

    @property
    def floor(self) -> float:
        """Seconds that no policy can beat: every call by its fastest algorithm, once, after the batch has arrived."""
        return sum(self.seconds) + self.machine.copy_seconds(sum(x.nbytes for x in self.network.inputs), "in")
