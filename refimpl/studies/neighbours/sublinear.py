"""Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174): √n segments.

A few maps are kept.  The layers between two of them are a segment, whose maps are dropped in forward; when backward
reaches the segment, it runs once more from its beginning.  Of n equal layers √n are kept, and √n at a time are there
again: O(√n) memory for one more forward.

| the paper | here |
| --- | --- |
| Algorithm 3, memory planning with a budget b | `kept_maps` |
| C(v), the candidates to split at | `passages`: layers through which alone all later ones see the earlier ones |
| the heuristic b = √(xy), and the search from b/√2 to √2 b around it | `Sublinear.bind` |
| m(v), how often a node is mirrored | once: the fate *drop*; a kept map has none |
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple

from refimpl.combined import Dropped, Fates
from refimpl.combined.carried_out import BoundDropped
from refimpl.network import Tensor
from refimpl.planner import Context, Setup
from refimpl.slots import questions as slots
from refimpl.slots.algorithms import FastestThatFits
from refimpl.slots.baseline import LayerWise
from refimpl.studies.transformers.yardsticks import passages

TRIED = 9  #: budgets between b/√2 and √2 b


class SegmentPlan(NamedTuple):
    """The maps that are kept, and what that costs.  In bytes."""

    kept: set[Tensor]
    between: int  #: x: of the kept maps
    inside: int  #: y: of the largest segment

    @property
    def nbytes(self) -> int:
        return self.between + self.inside


def kept_maps(context: Context, budget: float) -> SegmentPlan:
    """Algorithm 3: a segment ends at the first candidate where its maps exceed the budget, in bytes."""
    crossing = {tensor for tensor in context.maps_across() if tensor.kind == "map"}
    candidates, kept, segment = set(passages(context.network.layers)), set[Tensor](), 0
    between = inside = 0
    for layer in context.network.layers:
        made = [y for y in layer.forward.writes if y in crossing]  # none where the layer works in place
        segment += sum(y.nbytes for y in made)
        if layer in candidates and made and segment > budget:
            kept.update(made)
            between += sum(y.nbytes for y in made)
            inside, segment = max(inside, segment), 0
    return SegmentPlan(kept, between, max(inside, segment))


@dataclass(frozen=True)
class Sublinear(slots.Recompute):
    """Keeps the maps at the ends of segments; backward runs a segment once more, and keeps it until it is read."""

    segment: int = 0  #: bytes of a segment's maps, the paper's b; 0: as few bytes as the search finds
    name: ClassVar[str] = "chen-segments"
    summary: ClassVar[str] = "√n maps are kept; backward runs the segment between two of them once more"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> BoundDropped:
        kept = (kept_maps(context, self.segment) if self.segment else searched(context)).kept
        maps = [tensor for tensor in context.maps_across() if context.can_be_rebuilt(tensor)]
        return Dropped(Fates.of({tensor.name: "drop" for tensor in maps if tensor not in kept})).bind(context)


def searched(context: Context) -> SegmentPlan:
    """The plan of fewest bytes for budgets around √(xy), where x and y are those of a budget of 0."""
    each = kept_maps(context, 0)
    middle = sqrt(each.between * each.inside)
    exponents = (number / (TRIED - 1) - 0.5 for number in range(TRIED))
    return min((kept_maps(context, middle * 2**exponent) for exponent in exponents), key=lambda plan: plan.nbytes)


CHEN = Setup("chen-sqrt", recompute=Sublinear(), liveness=LayerWise(), algorithms=FastestThatFits())
