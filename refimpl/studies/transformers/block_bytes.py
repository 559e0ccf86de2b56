"""The bytes of one block of a transformer: each map that its backward reads, in units of the block's input.

With N sequences of T tokens of D channels the unit is N × D × T numbers of 4 bytes.  A block of GPT-2, BERT or ViT has
16 of them, whatever its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from refimpl.machine import Machine
from refimpl.network import Network, Tensor
from refimpl.slots.context import uses_of
from refimpl.studies.transformers.yardsticks import NetworkBlock, blocks


@dataclass(frozen=True)
class BlockMap:
    """A map of a block that forward makes and backward reads."""

    name: str
    made_by: str  #: the kind of its layer
    read_by: tuple[str, ...]  #: the kinds of layers whose backward reads it
    nbytes: int
    units: float  #: of the block's input


def middle_block(network: Network) -> NetworkBlock | None:
    found = blocks(network)
    return found[len(found) // 2] if found else None


def block_maps(network: Network) -> list[BlockMap]:
    """The middle block's input and its other maps, without its output, which is the next one's input."""
    block = middle_block(network)
    if block is None:
        return []
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


@dataclass(frozen=True)
class Probabilities:
    """What attention's probabilities would be if they were a map, of one layer: kept, copied, or computed again."""

    network: str
    batch: int
    units: float  #: of the layer's block's input
    nbytes: int
    copy_seconds: float  #: out and back in
    forward_seconds: float  #: of all of attention's forward, which is more than they take


def probabilities(network: Network, machine: Machine) -> Probabilities | None:
    """Of the middle block's attention; None: the block has no attention."""
    block = middle_block(network)
    layers = [one for one in block.layers if one.kind == "attention"] if block else []
    if not block or not layers:
        return None
    (call,) = layers[0].forward.calls
    queries, keys = (prod(x.shape[2:]) for x in (layers[0].y, layers[0].inputs[-1]))
    nbytes = 4 * network.batch * layers[0].options["heads"] * queries * keys
    unit = block.before.outputs[0].nbytes
    copies = sum(machine.copy_seconds(nbytes, way) for way in ("out", "in"))
    return Probabilities(network.name, network.batch, nbytes / unit, nbytes, copies, machine.seconds(call))


def units(network: Network) -> float:
    """Of all maps of the middle block together; 0 where there is no block."""
    return sum(one.units for one in block_maps(network))
