"""The interface of allocators: an `Allocator` is the module in a setup's slot `allocator`, a `Pool` has its state.

A pool hands out the bytes 0 to `size` of an arena: it moves no memory and knows no device.  The base class keeps all
books that do not depend on where a block is placed: rounding, the live blocks, the highest address, the counters.  A
subclass adds four things: where a block is taken, how it is given back, the holes and the largest of them.

An allocation that does not fit returns None; the executor, or the planner, then waits, evicts or fails.  To free an
address that is not a live block's raises `PoolError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, cast

from refimpl.text import RefimplError

GRANULARITY = 512  #: bytes; of cnmem, NVIDIA's pool that vDNN used (`fits`), and the default of every allocator
UNLIMITED = 1 << 60  #: bytes; more than anything needs


class PoolError(RefimplError):
    """Misuse of a pool: an address that is not a live block's, a negative number of bytes."""

    exit_status = None


@dataclass(frozen=True)
class Statistics:
    """A pool at one moment.  Bytes are rounded bytes, as the pool holds them."""

    size: int  #: bytes in all
    held: int  #: bytes in live blocks
    peak: int  #: the most bytes held so far
    free_bytes: int
    largest_hole: int  #: bytes that could be had in one piece
    blocks: int  #: live ones
    holes: int
    allocations: int  #: that succeeded, so far
    frees: int
    failures: int  #: allocations that did not fit, so far

    @property
    def fragmentation(self) -> float:
        """The share of the free bytes that the largest hole is not: 0 is one hole (or none), near 1 is dust."""
        return 1 - self.largest_hole / self.free_bytes if self.free_bytes else 0.0


class Pool(ABC):
    """An arena of `size` bytes, rounded down to whole granules, of which blocks are taken and given back."""

    def __init__(self, size: int, granularity: int) -> None:
        if size < 0:
            raise PoolError(f"a pool cannot have {size} bytes")
        self.granularity = granularity  #: bytes; addresses and held bytes are multiples of it
        self.size = size // granularity * granularity  #: bytes
        self.held = 0  #: bytes in live blocks, rounded
        self.peak = 0  #: the most bytes held so far
        self.top = 0  #: the highest end of any block so far, bytes: the arena that a replay needs
        self._live: dict[int, int] = {}  # address → bytes
        self._allocations = self._frees = self._failures = 0

    def rounded(self, nbytes: int) -> int:
        """The bytes that a block for `nbytes` holds: whole granules, at least one."""
        if nbytes < 0:
            raise PoolError(f"cannot allocate {nbytes} bytes")
        return -(-nbytes // self.granularity) * self.granularity or self.granularity

    def allocate(self, nbytes: int, stays: bool = False, to_the_end: bool = False) -> int | None:
        """The address of a new block for `nbytes`, or None where it does not fit, and then nothing has changed.

        Two hints: `stays`, the block outlives the forward pass, which most allocators ignore; `to_the_end`, it is
        there until the iteration ends, so that it should not be between blocks that are freed before.
        """
        nbytes = self.rounded(nbytes)
        address = self._take_right(nbytes) if to_the_end else self._take(nbytes, stays)
        if address is None:
            self._failures += 1
            return None
        self._allocations += 1
        self._live[address] = nbytes
        self.held += nbytes
        self.peak = max(self.peak, self.held)
        self.top = max(self.top, address + nbytes)
        return address

    def free(self, address: int) -> int:
        """Give a block back; the bytes it held."""
        nbytes = self.block_bytes(address)
        del self._live[address]
        self._frees += 1
        self.held -= nbytes
        self._give(address, nbytes)
        return nbytes

    def block_bytes(self, address: int) -> int:
        """The bytes that the live block at `address` holds."""
        try:
            return self._live[address]
        except KeyError:
            raise PoolError(f"no live block begins at address {address}: freed twice, or never allocated") from None

    @property
    def free_bytes(self) -> int:
        """Bytes in no block, in one piece or not."""
        return self.size - self.held

    def blocks(self) -> list[tuple[int, int]]:
        """The live blocks, (address, bytes), by address."""
        return sorted(self._live.items())

    def statistics(self) -> Statistics:
        """All figures of the pool at this moment."""
        return Statistics(
            size=self.size,
            held=self.held,
            peak=self.peak,
            free_bytes=self.free_bytes,
            largest_hole=self.largest_hole,
            blocks=len(self._live),
            holes=len(self.holes()),
            allocations=self._allocations,
            frees=self._frees,
            failures=self._failures,
        )

    @property
    @abstractmethod
    def largest_hole(self) -> int:
        """Bytes that could be had in one piece now (0 when full).  Cheap: it is asked at every convolution."""

    def hole_for(self, stays: bool) -> int:
        """Bytes of the largest hole that such a block could have had."""
        return self.largest_hole

    @abstractmethod
    def holes(self) -> list[tuple[int, int]]:
        """The holes, (address, bytes), by address; no two touch."""

    @abstractmethod
    def _take(self, nbytes: int, stays: bool) -> int | None:
        """Take whole granules out of a hole: the address.  None where no hole is large enough, and nothing changes."""

    def _take_right(self, nbytes: int) -> int | None:
        """The same, off the right end of the right-most hole that is large enough, if the allocator can."""
        return self._take(nbytes, False)

    @abstractmethod
    def _give(self, address: int, nbytes: int) -> None:
        """Make a hole of a block that was taken, joined with the holes that it touches."""


@dataclass(frozen=True)
class Allocator(ABC):
    """The module of the slot `allocator`: where a block is placed.  It is frozen; `open` makes a pool with a state."""

    granularity: int = GRANULARITY  #: bytes that addresses and blocks are multiples of

    name: ClassVar[str]
    summary: ClassVar[str]  #: one line
    driver_calls: ClassVar[bool] = False  #: each allocation and each free is a call of the driver, and takes its time

    def __post_init__(self) -> None:
        if self.granularity < 1:
            raise PoolError(f"{self.name}: a granularity of {self.granularity} bytes; it must be at least 1")

    @abstractmethod
    def open(self, size: int) -> Pool:
        """An empty pool of `size` bytes, rounded down to whole granules."""

    def opened(self, size: int) -> Pool:
        """What `open` returns; the addresses of an allocator that is not the project's are checked."""
        if type(self).__module__.startswith("refimpl."):
            return self.open(size)
        from refimpl.slots.answers import CheckedPool

        return cast(Pool, CheckedPool(self, size))
