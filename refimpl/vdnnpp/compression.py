"""vDNN++'s compression (§4): maps full of zeros are compressed while they wait on the host.

A map gets a pinned buffer on demand (`pinned`).  Threads of the host compress it, and its buffer serves another map;
before it is copied in it is decompressed into a buffer again.  Only maps that cannot be negative are compressed: the
outputs of ReLUs, and what pooling and similar layers make of them.  Maps of either sign, as today's activations make
them, are not, nor are a sigmoid's (ours): few of their numbers are zero.

The bytes that a compressed map takes are counted as in the authors' public code (mark S): eight workers have an eighth
of the map each, and each takes storage for its non-zeros in eighths of that, 64 slots a map; one bit a number says
which numbers are zero.  A plan assumes the share of non-zeros; a run measures it.

Four things are ours (R).  A compressed map is in ordinary memory; the authors' code pins that memory too.  A map is
compressed if another takes its buffer; there, if the threads have time for it before backward begins.  There may be a
limit.  And the map that left last, which is needed first, is decompressed as soon as there is room in the pinned memory
that forward took: in its old place, if that is free, so that large maps find holes as they did in forward; else in the
smallest hole.  Backward takes no more than forward did, unless a step waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from refimpl.memory.tiers import pinned_size
from refimpl.network import Network, Step, Tensor
from refimpl.slots import questions as slots
from refimpl.slots.context import Context
from refimpl.vdnnpp.packing import SLOTS, WORKERS, ZERO_VALUE
from refimpl.vdnnpp.pinned import SharedBuffers


def never_negative(network: Network) -> set[Tensor]:
    """Maps that cannot be negative once their last writer has run: ReLUs' outputs, and what keeps their sign."""
    found: set[Tensor] = set()
    for layer in network.layers:
        keeps = layer.traits.sign == "kept" and bool(layer.inputs) and found.issuperset(layer.inputs)
        if layer.traits.sign == "never negative" or layer.has_relu or keeps:
            found.update(y for y in layer.outputs if y.dtype == "float32")
        else:  # a layer that works in place may make negative what was not
            found.difference_update(layer.outputs)
    return found


def stored_bytes(numbers: int, density: float) -> int:
    """Bytes that a compressed map takes.

    Args:
        numbers: of the map.
        density: the share of them that is not zero, spread evenly.
    """
    worker = ceil(numbers / WORKERS)
    slot = ceil(worker / SLOTS)
    taken = min(ceil(density * worker / slot), SLOTS) if density > 0 else 0
    return WORKERS * taken * slot * 4 + 4 * ceil(numbers / 32)


@dataclass(frozen=True)
class Compressed(slots.Pinned):
    """As on demand, and maps that cannot be negative are compressed once they have left.

    `densities` are the shares of non-zeros in the outputs of the network's CONV and POOL layers, in forward order; for
    other maps, and without them, `density` is assumed.  A buffer serves another map `lag` steps after its own has
    left: while one is compressed, others are copied.  With a `limit` (bytes) a copy out waits for the oldest map to be
    compressed rather than exceed it, and no sooner.
    """

    density: float = 0.5
    densities: tuple[float, ...] = ()
    limit: int | None = None
    lag: int = 3
    name: ClassVar[str] = "vdnnpp-compressed"
    summary: ClassVar[str] = "on demand, and maps after a ReLU are compressed by threads of the host"
    uses_store: ClassVar[bool] = True

    def bind(self, context: Context) -> CompressedBuffers:
        return CompressedBuffers(self, context)

    def density_of(self, network: Network) -> dict[Tensor, float]:
        """Map → share of non-zeros, as far as they are given."""
        layers = [layer for layer in network.layers if layer.kind in ("conv", "pool")]
        return {layer.y: share for layer, share in zip(layers, self.densities, strict=False)}


class CompressedBuffers(SharedBuffers):
    codec = ZERO_VALUE

    def __init__(self, module: Compressed, context: Context) -> None:
        super().__init__(context, module.limit)
        self._context, self._otherwise, self.lag = context, module.density, module.lag
        self._never_negative = never_negative(context.network)
        self._density = module.density_of(context.network)
        self._compressed: list[Tensor] = []  #: whose buffers serve others, in the order in which they left

    def bytes_in_store(self, tensor: Tensor, step: Step) -> int | None:
        """A map that leaves before its in-place ReLU may still be negative, as may a gradient in its place."""
        last_write = self._context.last_forward_write(tensor, self._context.network.depth + 1)
        if tensor not in self._never_negative or not last_write <= step.number <= self._context.network.depth:
            return None
        return stored_bytes(tensor.nbytes // 4, self._density.get(tensor, self._otherwise))

    def emptied(self, tensor: Tensor) -> None:
        self._pool.free(self._at.pop(tensor))
        self._compressed.append(tensor)

    def next_wanted(self, step: Step) -> Tensor | None:
        """The map that left last is needed first, as long as there is room for it."""
        while self._compressed:
            tensor = self._compressed[-1]
            needed = self._context.last_use(tensor) >= step.number
            if needed and pinned_size(tensor.nbytes) > self.room:
                return None
            self._compressed.pop()
            if needed:
                return tensor
        return None

    @property
    def room(self) -> int:
        """Bytes of the largest hole in what has been taken of pinned memory so far."""
        top = self._pool.top
        return max((min(nbytes, top - address) for address, nbytes in self._pool.holes()), default=0)

    def place(self, tensor: Tensor) -> slots.Place | None:
        place = super().place(tensor)
        if place is not None and tensor in self._compressed:
            self._compressed.remove(tensor)  # it is decompressed before its turn
        return place
