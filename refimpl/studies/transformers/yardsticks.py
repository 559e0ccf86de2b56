"""What people do without the papers, as a setup: every block's input is kept, and backward runs the block again.

PyTorch's `torch.utils.checkpoint` around every block of a transformer does this (Chen, Xu, Zhang, Guestrin, "Training
Deep Nets with Sublinear Memory Cost", 2016).  A block is the layers whose names begin alike, up to the first dot.

Selective recomputation (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022)
keeps everything but attention's probabilities, and makes these again.  Here an attention layer has no such maps, so the
baseline, which keeps every map, is that yardstick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl import superneurons
from refimpl.combined.fates import Fates, Word
from refimpl.combined.modules import BoundDropped
from refimpl.network import Layer, Tensor
from refimpl.planner import PlanContext, Setup, slots


@dataclass(frozen=True)
class Blocks(slots.Recompute):
    """Drops every map that only the layers of its own block use, and rebuilds all of a block at one go."""

    name: ClassVar[str] = "blocks"
    summary: ClassVar[str] = "a block's input is kept, and what is inside runs again, as torch.utils.checkpoint does"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: PlanContext) -> BoundDropped:
        inside: dict[str, Word] = {x.name: "drop" for x in context.maps_across() if is_inside(x, context)}
        return BoundDropped(Fates.of(inside), context)


def is_inside(x: Tensor, context: PlanContext) -> bool:
    """Whether all forward steps that use a map are of one block."""
    blocks = {block(step.layer) for step in context.uses[x] if step.forward}
    return x.kind == "map" and len(blocks) == 1 and "" not in blocks


def block(layer: Layer) -> str:
    """The block's name; empty for a layer that is in none."""
    first, dot, _ = layer.name.partition(".")
    return first if dot else ""


#: PyTorch without a memory policy: a map is freed after its last use.
KEPT = Setup("everything kept", liveness=superneurons.Analysis())
CHECKPOINTED = Setup("every block again", recompute=Blocks(), liveness=superneurons.Analysis())
