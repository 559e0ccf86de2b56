"""vDNN++'s pinned memory (§4): a buffer on demand, and maps full of zeros compressed while they wait on the host.

vDNN keeps one pinned buffer a map for the whole run.  Here a map takes a buffer when it leaves, of one arena that is
pinned once: taking pinned memory inside an iteration costs milliseconds a call, and makes everything wait.  Threads of
the host then compress the map into ordinary memory, and its buffer serves another; before it comes back it is
decompressed into a buffer again.  Only maps that cannot be negative are compressed: those behind a ReLU, and what
pooling and the like make of them.  They are full of zeros.

What a compressed map takes is told as the authors' public code counts it (mark S): eight workers have an eighth of the
map each, and each takes storage for its non-zeros in eighths of that, when it needs them: 64 slots a map; and a bit a
number says which ones are zero.  In a plan the share of non-zeros is assumed, in a run it is what it is.

Ours (R) are how early a map is decompressed, and a limit.  The map that left last is needed first, and decompressed as
soon as there is room in the pinned memory that forward took: in its old place, if that is free, so that large maps find
holes as they did in forward; else in the smallest hole.  Backward takes no more than forward did, unless a step waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from refimpl.memory.fits import FreeListPool
from refimpl.network import Network, Step, Tensor
from refimpl.planner import slots
from refimpl.planner.baseline import Uncompressed
from refimpl.planner.context import PlanContext
from refimpl.planner.instructions import PINNED_BYTES, pinned_size

WORKERS = SLOTS = 8
MOST = 1 << 50  #: bytes; what is asked for is counted, not limited
#: Layers that put out nothing negative where nothing that they read is negative.
KEEP_THE_SIGN = ("pool", "dropout", "lrn", "concat", "join", "fork")


def never_negative(network: Network) -> set[Tensor]:
    """Maps that cannot be negative once their last writer has run: ReLUs' outputs, and what keeps their sign."""
    found: set[Tensor] = set()
    for layer in network.layers:
        keeps = layer.kind in KEEP_THE_SIGN and found.issuperset(layer.inputs)
        if layer.kind in ("relu", "softmax") or layer.has_relu or keeps:
            found.update(layer.outputs)
    return found


def stored_bytes(numbers: int, density: float) -> int:
    """Bytes that a compressed map of so many numbers takes, a share `density` of which, spread evenly, is not zero."""
    worker = ceil(numbers / WORKERS)
    slot = ceil(worker / SLOTS)
    taken = min(ceil(density * worker / slot), SLOTS) if density > 0 else 0
    return WORKERS * taken * slot * 4 + 4 * ceil(numbers / 32)


@dataclass(frozen=True)
class OnDemand(slots.Pinned):
    """A buffer is taken when a map leaves, and given back when it has returned; `limit` bytes of them at most."""

    limit: int | None = None
    name: ClassVar[str] = "vdnnpp-on-demand"
    summary: ClassVar[str] = "a buffer is taken when a map leaves and given back when it returns"

    def bind(self, context: PlanContext) -> Buffers:
        return Buffers(self.limit)


class BestFitOrHome(FreeListPool):
    """Best fit, unless the very place that is asked for is free."""

    def __init__(self, size: int) -> None:
        super().__init__(size, PINNED_BYTES)
        self._home: int | None = None

    def allocate_at(self, home: int | None, nbytes: int) -> int | None:
        """The address of a new block: `home`, if that is free; None where no hole is large enough."""
        self._home = home
        return self.allocate(nbytes)

    def _take(self, nbytes: int, stays: bool) -> int | None:
        home = self._home
        if home is not None:
            for hole, room in self.holes():
                if hole <= home and home + nbytes <= hole + room:
                    self._holes.cut_left(hole, home - hole + nbytes)
                    if hole < home:
                        self._holes.give(hole, home - hole)
                    return home
        found = self._holes.smallest(nbytes)
        return None if found is None else self._holes.cut_left(found, nbytes)


class Buffers(Uncompressed):
    """Sub-allocated from the one pinned arena; a map that comes back prefers the place that it had."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._pool = BestFitOrHome(MOST if limit is None else limit)
        self._at: dict[Tensor, int] = {}
        self._home: dict[Tensor, int] = {}

    def place(self, tensor: Tensor) -> int | None:
        address = self._pool.allocate_at(self._home.get(tensor), pinned_size(tensor.nbytes))
        if address is not None:
            self._at[tensor] = self._home[tensor] = address
        return address

    def fetched(self, tensor: Tensor) -> bool:
        self._pool.free(self._at.pop(tensor))
        return True

    def emptied(self, tensor: Tensor) -> None:
        self._pool.free(self._at.pop(tensor))

    @property
    def nbytes(self) -> int:
        return self._pool.top


@dataclass(frozen=True)
class Compressed(slots.Pinned):
    """As on demand, and maps that cannot be negative are compressed once they have left.

    `densities` are the shares of non-zeros of what the network's CONV and POOL layers put out, in forward order; for
    other maps, and without them, `density` is assumed.  With a `limit` (bytes) a copy out waits for the oldest map to
    be compressed rather than exceed it.
    """

    density: float = 0.5
    densities: tuple[float, ...] = ()
    limit: int | None = None
    name: ClassVar[str] = "vdnnpp-compressed"
    summary: ClassVar[str] = "on demand, and maps behind a ReLU are compressed by threads of the host"
    compresses: ClassVar[bool] = True

    def bind(self, context: PlanContext) -> CompressedBuffers:
        return CompressedBuffers(self, context)

    def density_of(self, network: Network) -> dict[Tensor, float]:
        """Map → share of non-zeros, as far as they are given."""
        layers = [layer for layer in network.layers if layer.kind in ("conv", "pool")]
        return {layer.y: share for layer, share in zip(layers, self.densities, strict=False)}


class CompressedBuffers(Buffers):
    def __init__(self, module: Compressed, context: PlanContext) -> None:
        super().__init__(module.limit)
        self._context, self._otherwise = context, module.density
        self._never_negative = never_negative(context.network)
        self._density = module.density_of(context.network)
        self._compressed: list[Tensor] = []  #: whose buffers serve others, in the order in which they left

    def compressed_bytes(self, tensor: Tensor, step: Step) -> int | None:
        """A map that leaves before its ReLU has been over it may be negative still, as may a gradient in its place."""
        last_write = self._context.last_forward_write(tensor, self._context.network.depth + 1)
        if tensor not in self._never_negative or not last_write <= step.number <= self._context.network.depth:
            return None
        return stored_bytes(tensor.nbytes // 4, self._density.get(tensor, self._otherwise))

    def emptied(self, tensor: Tensor) -> None:
        super().emptied(tensor)
        self._compressed.append(tensor)

    def wanted(self, step: Step) -> Iterator[Tensor]:
        """The map that left last is needed first, as long as there is room for it."""
        while self._compressed:
            tensor = self._compressed[-1]
            needed = self._context.last_use(tensor) >= step.number
            if needed and pinned_size(tensor.nbytes) > self._room():
                return
            self._compressed.pop()
            if needed:
                yield tensor

    def _room(self) -> int:
        """Bytes of the largest hole in what has been taken of pinned memory so far."""
        top = self._pool.top
        return max((min(nbytes, top - address) for address, nbytes in self._pool.holes()), default=0)

    def place(self, tensor: Tensor) -> int | None:
        address = super().place(tensor)
        if address is not None and tensor in self._compressed:
            self._compressed.remove(tensor)  # it is asked for before its turn
        return address
