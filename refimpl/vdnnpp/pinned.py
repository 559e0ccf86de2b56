"""vDNN++'s pinned memory (§4): a buffer on demand, and maps full of zeros compressed while they wait on the host.

vDNN keeps one pinned buffer a map for the whole run.  Here a map takes a buffer when it leaves, of one arena that is
pinned once.  Threads of the host then pack the map into ordinary memory, and its buffer serves another; before it comes
back it is unpacked into a buffer again.  Only maps that cannot be negative are packed: those behind a ReLU, and what
pooling and the like make of them.  They are full of zeros.

What a packed map takes is told as the authors' code counts it: eight workers have an eighth of the map each, and each
takes storage for its non-zeros in eighths of that, when it needs them: 64 slots a map; and a bit a number says which
ones are zero.  In a plan the share of non-zeros is assumed, in a run it is what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from refimpl.memory import BestFit
from refimpl.network import Network, Step, Tensor
from refimpl.planner.baseline import Uncompressed
from refimpl.planner.program import pinned_size
from refimpl.planner.slots import Feature
from refimpl.planner.walk import Walk

WORKERS = SLOTS = 8
NOTHING: frozenset[Feature] = frozenset()
MOST = 1 << 50  #: bytes; what is asked for is counted, not limited


def never_negative(network: Network) -> set[Tensor]:
    """Maps that cannot be negative once their last writer has run: ReLUs' outputs, and what keeps their sign."""
    found: set[Tensor] = set()
    for layer in network.layers:
        keeps = layer.kind in ("pool", "dropout", "lrn", "concat", "join", "fork")
        if layer.kind in ("relu", "softmax") or layer.has_relu or (keeps and found.issuperset(layer.inputs)):
            found.update(layer.outputs)
    return found


def stored_bytes(numbers: int, density: float) -> int:
    """Bytes that a packed map of so many numbers takes, a share `density` of which, spread evenly, is not zero."""
    worker = ceil(numbers / WORKERS)
    slot = ceil(worker / SLOTS)
    taken = min(ceil(density * worker / slot), SLOTS) if density > 0 else 0
    return WORKERS * taken * slot * 4 + 4 * ceil(numbers / 32)


@dataclass(frozen=True)
class OnDemand:
    """A buffer is taken when a map leaves, and given back when it has returned."""

    name: ClassVar[str] = "vdnnpp-on-demand"
    summary: ClassVar[str] = "a buffer is taken when a map leaves and given back when it returns"
    compresses: ClassVar[bool] = False
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, walk: Walk) -> Buffers:
        return Buffers()


class Buffers(Uncompressed):
    def __init__(self) -> None:
        self._pool = BestFit().open(MOST)
        self._at: dict[Tensor, int] = {}

    def place(self, tensor: Tensor) -> int:
        address = self._pool.allocate(pinned_size(tensor.nbytes))
        assert address is not None
        self._at[tensor] = address
        return address

    def fetched(self, tensor: Tensor) -> bool:
        self._pool.free(self._at.pop(tensor))
        return True

    @property
    def nbytes(self) -> int:
        return self._pool.top


@dataclass(frozen=True)
class Compressed:
    """As on demand, and maps that cannot be negative are packed once they have left.

    `densities` are the shares of non-zeros of what the network's CONV and POOL layers put out, in forward order; for
    other maps, and without them, `density` is assumed.
    """

    density: float = 0.5
    densities: tuple[float, ...] = ()
    ahead: int = 1  #: maps that are unpacked before they are asked for
    name: ClassVar[str] = "vdnnpp-compressed"
    summary: ClassVar[str] = "on demand, and maps behind a ReLU are packed by threads of the host"
    compresses: ClassVar[bool] = True
    needs: ClassVar = NOTHING
    offers: ClassVar = NOTHING

    def bind(self, walk: Walk) -> PackedBuffers:
        return PackedBuffers(self, walk)

    def density_of(self, network: Network) -> dict[Tensor, float]:
        layers = [layer for layer in network.layers if layer.kind in ("conv", "pool")]
        return {layer.y: share for layer, share in zip(layers, self.densities, strict=False)}


class PackedBuffers(Buffers):
    def __init__(self, module: Compressed, walk: Walk) -> None:
        super().__init__()
        self._ahead, self._otherwise = module.ahead, module.density
        self._packable = never_negative(walk.network)
        self._density = module.density_of(walk.network)
        self._packed: list[Tensor] = []  #: whose buffers serve others, in the order in which they left
        self._unpacked: set[Tensor] = set()  #: asked for, and not fetched yet

    def compressed_bytes(self, tensor: Tensor) -> int | None:
        if tensor not in self._packable:
            return None
        return stored_bytes(tensor.nbytes // 4, self._density.get(tensor, self._otherwise))

    def emptied(self, tensor: Tensor) -> None:
        self._pool.free(self._at.pop(tensor))
        self._packed.append(tensor)

    def wanted(self, step: Step) -> Sequence[Tensor]:
        """The map that left last is needed first."""
        asked: list[Tensor] = []
        while self._packed and len(self._unpacked) < self._ahead:
            tensor = self._packed.pop()
            self._unpacked.add(tensor)
            asked.append(tensor)
        return asked

    def place(self, tensor: Tensor) -> int:
        if tensor in self._packed:
            self._packed.remove(tensor)  # it is asked for before its turn
        return super().place(tensor)

    def fetched(self, tensor: Tensor) -> bool:
        self._unpacked.discard(tensor)
        return super().fetched(tensor)
