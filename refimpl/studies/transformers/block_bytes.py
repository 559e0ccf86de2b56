"""The bytes of one block of a transformer: each map that its backward reads, in units of the block's input.

With N sequences of T tokens of D channels the unit is N × D × T numbers of 4 bytes.  A block of GPT-2, BERT or ViT has
16 of them, whatever its size.
"""

from __future__ import annotations

from dataclasses import dataclass

from refimpl.network import Network, Tensor
from refimpl.planner.context import uses_of
from refimpl.studies.transformers.yardsticks import NetworkBlock, blocks


@dataclass(frozen=True)
class BlockMap:
    """A map of a block that forward makes and backward reads."""

    name: str
    made_by: str  #: the kind of its layer
    read_by: tuple[str, ...]  #: the kinds of layers whose backward reads it
    nbytes: int
    units: float  #: of the block's input


def block_maps(network: Network, block: NetworkBlock | None = None) -> list[BlockMap]:
    """A block's input and its other maps, without its output, which is the next one's input.

    Args:
        network: a transformer, or another network with blocks.
        block: one of them (None: the middle one).
    """
    if block is None:
        found = blocks(network)
        if not found:
            return []
        block = found[len(found) // 2]
    unit = block.before.outputs[0].nbytes
    output, uses = set(block.layers[-1].outputs), uses_of(network)
    made: dict[Tensor, str] = {}
    for layer in (block.before, *block.layers):
        for y in layer.outputs:
            if y not in output:
                made.setdefault(y, layer.kind)  # a layer in place has the map of the one before it
    maps: list[BlockMap] = []
    for y, kind in made.items():
        readers = dict.fromkeys(step.layer for step in uses[y] if not step.forward)
        inside = [layer.kind for layer in readers if layer in block.layers]
        if inside:
            maps.append(BlockMap(y.name, kind, tuple(dict.fromkeys(inside)), y.nbytes, y.nbytes / unit))
    return maps


def units(network: Network) -> float:
    """Of all maps of the middle block together; 0 where there is no block."""
    return sum(one.units for one in block_maps(network))
