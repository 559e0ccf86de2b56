"""What users of transformers do about memory today: modules of the slot recompute, as yardsticks for the policies.

| yardstick | kept | recomputed |
| --- | --- | --- |
| everything kept | every map that backward reads | nothing |
| attention again | every map but what attention makes | attention |
| per block | each block's input (`torch.utils.checkpoint` around each block) | the rest of the block |

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), recompute attention's T × T
maps alone, which they call selective.  A layer of the kind attention has no such maps: its probabilities are
workspace, and its backward recomputes them.  So "everything kept" is what their selective recomputation keeps, and
"attention again" goes one map further.

A block is found by the structure, and not by a name: a residual branch leaves where all later layers see the earlier
ones through one layer alone, and it ends where that is so again.  The branches with attention begin the blocks, and
the last one ends at a sum, so that a normalisation written out, x / f(x), is outside.  In a network without attention
each branch is a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from refimpl.combined import Dropped, Fates
from refimpl.combined.carried_out import BoundDropped
from refimpl.network import Layer, Network, Tensor
from refimpl.network.kinds import LayerKind
from refimpl.planner import Context
from refimpl.slots import questions as slots


@dataclass(frozen=True)
class NetworkBlock:
    """Layers between two that everything passes through."""

    before: Layer  #: its output is the block's input
    layers: tuple[Layer, ...]  #: in forward order; the output of the last one is what follows sees of them

    @property
    def attends(self) -> bool:
        return any(layer.kind in ("attention", "mix") for layer in self.layers)

    @property
    def branches(self) -> bool:
        return len(self.layers) > 1


def passages(layers: Sequence[Layer]) -> list[Layer]:
    """The layers through which alone all later ones see the earlier ones, in forward order."""
    place = {layer: number for number, layer in enumerate(layers)}
    found: list[Layer] = []
    read_until = 0  # the last place at which an earlier layer is read
    for number, layer in enumerate(layers):
        if read_until <= number:
            found.append(layer)
        read_until = max([read_until, *(place[reader] for reader in layer.consumers)])
    return found


def blocks(network: Network) -> list[NetworkBlock]:
    """The blocks of a network, in forward order; none where no residual branch leaves."""
    layers, through = network.layers, passages(network.layers)
    place = {layer: number for number, layer in enumerate(layers)}
    between = [NetworkBlock(one, tuple(layers[place[one] + 1 : place[other] + 1])) for one, other in pairwise(through)]
    residual = [one for one in between if one.branches]
    if not residual:
        return []
    attend = any(one.attends for one in residual)
    starts = [place[one.before] for one in residual if one.attends or not attend]
    last = [one for one in residual if not attend or one.layers[-1].kind == "join"] or residual
    ends = [*starts[1:], place[last[-1].layers[-1]]]
    spans = zip(starts, ends, strict=True)
    return [NetworkBlock(layers[start], tuple(layers[start + 1 : end + 1])) for start, end in spans]


def inside(block: NetworkBlock) -> list[Tensor]:
    """A block's own maps, without its input and its output."""
    ends = {*block.before.outputs, *block.layers[-1].outputs}
    return [y for layer in block.layers for y in dict.fromkeys(layer.outputs) if y not in ends]


@dataclass(frozen=True)
class PerBlock(slots.Recompute):
    """Keeps each block's input; backward runs the block again, as far as it reads, and keeps that until it is read.

    As `torch.utils.checkpoint` does around each block, with `use_reentrant=False`: it stops early, too.  The input is
    kept where backward does not read it, too: of a module that widens it to float32 PyTorch saves the wide copy alone.
    """

    name: ClassVar[str] = "per-block"
    summary: ClassVar[str] = "each block's input is kept, and the rest of the block recomputed"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> BoundDropped:
        found = blocks(context.network)
        have_fates = {x for x in context.maps_across() if context.can_be_rebuilt(x)}
        dropped = [x.name for block in found for x in inside(block) if x in have_fates]
        return _FromInputs(Fates.of(dict.fromkeys(dropped, "drop")), context, found)


class _FromInputs(BoundDropped):
    """Rebuilds from the blocks' inputs."""

    def __init__(self, fates: Fates, context: Context, found: Sequence[NetworkBlock]) -> None:
        super().__init__(fates, context)
        self._saved |= {x for block in found for x in block.before.outputs if x.kind in ("map", "input")}


PER_BLOCK = PerBlock()


@dataclass(frozen=True)
class OfKinds(slots.Recompute):
    """Drops what layers of some kinds make, and runs each of them again where backward reads that."""

    kinds: tuple[LayerKind, ...] = ("attention", "mix")
    name: ClassVar[str] = "of-kinds"
    summary: ClassVar[str] = "what attention makes is dropped and recomputed"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"rebuild"})

    def bind(self, context: Context) -> BoundDropped:
        have_fates = {x for x in context.maps_across() if context.can_be_rebuilt(x)}
        chosen = [layer for layer in context.network.layers if layer.kind in self.kinds]
        dropped = [y.name for layer in chosen for y in layer.outputs if y in have_fates]
        return Dropped(Fates.of(dict.fromkeys(dropped, "drop"))).bind(context)


ATTENTION_AGAIN = OfKinds()

KEPT = "baseline liveness=layer-wise algorithms=fastest-that-fits"
#: Yardstick → its setup, as `refimpl compare --with` takes it.
YARDSTICKS = {
    "everything kept": KEPT,
    "attention again": f"{KEPT} recompute={__name__}:ATTENTION_AGAIN",
    "per block": f"{KEPT} recompute={__name__}:PER_BLOCK",
}
