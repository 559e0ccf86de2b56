"""DTR: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021, arXiv 2006.09616).

The device is a cache of tensors.  An allocation that fails evicts the tensor with the least

    h = cost / (size × staleness)

Nothing is copied: what a later step needs is computed once more, from what is there, and if its inputs are gone, they
are first.  Evictions and recomputations may happen in the middle of each other.

| the paper | here |
| --- | --- |
| c₀(t): seconds of the operator that makes t | `CheapestGoes.seconds`, by the machine's model |
| e*(t), the evicted neighbourhood: what is gone above and below t, linked through what is gone | `neighbourhood` |
| s(t), staleness: the time since t was last used | the clock is the cost of all that has run |
| rematerialization, recursively | `on_demand`: the planner asks again for an input that is gone by then |
| locks: the operands of the running operator | the `locked` that `victim` is given |

What differs: DTR decides while it trains, and evicts gradients as well.  Here a planner asks the same questions before
the first iteration; a backward step runs once, as its optimiser's calls do, so gradients and the batch stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from refimpl.machine.seconds import fastest_seconds
from refimpl.network import Tensor
from refimpl.planner import Context, Setup
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import FastestThatFits
from refimpl.slots.baseline import LayerWise
from refimpl.studies.neighbours.on_demand import Rematerialized


@dataclass(frozen=True)
class LeastCost(slots.Cache):
    """Evicts the forward tensor with the least cost / (size × staleness)."""

    neighbours: bool = True  #: whether the cost counts the evicted neighbourhood in; no: the paper's local heuristic
    name: ClassVar[str] = "dtr-least-cost"
    summary: ClassVar[str] = "what is cheap to compute once more, large and long unused is evicted first"
    needs: ClassVar = frozenset({"release", "rebuild"})
    offers: ClassVar = frozenset({"eviction"})

    def bind(self, context: Context) -> CheapestGoes:
        return CheapestGoes(context, self.neighbours)


class CheapestGoes:
    def __init__(self, context: Context, neighbours: bool = True) -> None:
        self._neighbours = neighbours
        self.seconds: dict[Tensor, float] = {}  #: to compute a tensor once more, in-place steps included
        self.links: tuple[defaultdict[Tensor, list[Tensor]], ...] = defaultdict(list), defaultdict(list)
        inputs, readers = self.links
        forward = context.network.steps[: context.network.depth]
        for step, seconds in zip(forward, fastest_seconds(context.network, context.machine), strict=False):
            made = [y for y in (*step.writes, *step.updates) if y not in context.results]
            for y in made:
                self.seconds[y] = self.seconds.get(y, 0.0) + seconds / len(made)
                for x in step.reads:
                    inputs[y].append(x)
                    readers[x].append(y)
        self._used: dict[Tensor, float] = {}  # on the device → the clock at its last use
        self._gone: dict[Tensor, None] = {}
        self._clock = 0.0  # seconds of everything that has run: no simulated clock has a say in a plan

    def enter(self, tensor: Tensor) -> None:
        if tensor in self.seconds:
            self._clock += self.seconds[tensor]
            self._gone.pop(tensor, None)
            self._used[tensor] = self._clock

    def leave(self, tensor: Tensor) -> None:
        if self._used.pop(tensor, None) is not None:
            self._gone[tensor] = None

    def touch(self, tensor: Tensor) -> None:
        if tensor in self._used:
            self._used[tensor] = self._clock

    def victim(self, locked: Collection[Tensor], now: int) -> Tensor | None:
        return min((tensor for tensor in self._used if tensor not in locked), key=self.heuristic, default=None)

    def heuristic(self, tensor: Tensor) -> float:
        """Seconds to compute the tensor once more, over its bytes and the seconds since its last use."""
        again = self.neighbourhood(tensor) if self._neighbours else ()
        cost = sum(self.seconds[one] for one in (tensor, *again))
        stale = self._clock - self._used[tensor]
        return cost / (tensor.nbytes * stale) if stale else inf

    def neighbourhood(self, tensor: Tensor) -> dict[Tensor, None]:
        """e*: what is gone, and linked with the tensor by inputs alone, or by readers alone, that are gone."""
        found: dict[Tensor, None] = {}
        for following in self.links:
            waiting = [tensor]
            while waiting:
                near = [x for x in following[waiting.pop()] if x in self._gone and x not in found]
                found.update(dict.fromkeys(near))
                waiting += near
        return found


DTR = Setup(
    "dtr", recompute=Rematerialized(), liveness=LayerWise(), cache=LeastCost(), algorithms=FastestThatFits()
)  # fmt: skip
