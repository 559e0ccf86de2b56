"""vDNN++'s pinned memory (§4): a buffer on demand, in an arena that is pinned once.

vDNN keeps one pinned buffer a map for the whole run.  Here a map gets a buffer when it is copied out, and gives it back
when it has been copied in.  The buffers are parts of one arena: to allocate pinned memory inside an iteration costs
milliseconds a call, and stalls all streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from refimpl.memory.fits import FitPool
from refimpl.memory.free_list import FreeList
from refimpl.memory.tiers import HOST, PINNED_BYTES, pinned_size
from refimpl.network import Tensor
from refimpl.slots import questions as slots
from refimpl.slots.context import Context


@dataclass(frozen=True)
class OnDemand(slots.Pinned):
    """A buffer is taken when a map is copied out, given back when it is copied in; at most `limit` bytes of them."""

    limit: int | None = None
    name: ClassVar[str] = "vdnnpp-on-demand"
    summary: ClassVar[str] = "a buffer is taken when a map leaves and given back when it returns"

    def bind(self, context: Context) -> SharedBuffers:
        return SharedBuffers(context, self.limit)


class SharedBuffers:
    """Sub-allocated from the pinned arena; a map that is decompressed gets its old place back, if that is free."""

    def __init__(self, context: Context, limit: int | None) -> None:
        room = context.tiers[HOST]
        self.limits = {HOST: room if limit is None else min(limit, room)}
        self._pool = BestFitOrHome(self.limits[HOST])
        self._at: dict[Tensor, int] = {}
        self._home: dict[Tensor, int] = {}

    def place(self, tensor: Tensor) -> slots.Place | None:
        address = self._pool.allocate_at(self._home.get(tensor), pinned_size(tensor.nbytes))
        if address is None:
            return None
        self._at[tensor] = self._home[tensor] = address
        return slots.Place(address)

    def fetched(self, tensor: Tensor) -> bool:
        self._pool.free(self._at.pop(tensor))
        return True


class BestFitOrHome(FitPool):
    """Best fit, unless the very place that is requested is free."""

    def __init__(self, size: int) -> None:
        super().__init__(size, PINNED_BYTES, FreeList.smallest)
        self._home: int | None = None

    def allocate_at(self, home: int | None, nbytes: int) -> int | None:
        """The address of a new block: `home`, if that is free; None where no hole is large enough."""
        self._home = home
        return self.allocate(nbytes)

    def _take(self, nbytes: int, stays: bool) -> int | None:
        home = self._home
        if home is not None and any(at <= home and home + nbytes <= at + room for at, room in self.holes()):
            self._holes.cut(home, nbytes)
            return home
        return super()._take(nbytes, stays)
