"""Questions that only the planner asks: of a codec, of a store, and of an allocator that searches for its pool.

A codec is how the host's threads write a map into the store, where it may take fewer bytes, and read it back.

A plan has to know where a stored map is, and so the most bytes that it can take (`room`); how many it really takes
depends on its values.  The planner, the proof and the back ends ask these questions and know no codec.  A module of the
slot `pinned` that uses the store names its own; vDNN++'s is `refimpl.vdnnpp.packing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from refimpl.network import Step, Tensor
from refimpl.slots.questions import BoundPinned

if TYPE_CHECKING:
    import numpy as np


class StoredCopy(Protocol):
    """One map's place in the store.  Maps are given as bytes."""

    density: float  #: of the map written last: the share of its numbers that are not zero

    def pack(self, given: np.ndarray) -> int:
        """Write a map; the bytes that it takes."""

    def unpack(self, given: np.ndarray) -> None:
        """Fill a map with what was written, to the bit."""


class Codec(ABC):
    """Its words, its bytes and its work."""

    packs: ClassVar[str]  #: the word for an instruction that writes a map into the store; with -ed and -ing it is one
    unpacks: ClassVar[str]  #: the word for one that reads it back
    packed: ClassVar[str]  #: what a map in the store is
    #: A script's two functions, named `packs` and `unpacks`, of a map's name and its buffer; they have a dictionary
    #: `store`.
    written_out: ClassVar[str]

    @abstractmethod
    def room(self, nbytes: int) -> int:
        """The most bytes of the store that a map of `nbytes` takes."""

    @abstractmethod
    def place(self, store: np.ndarray, nbytes: int) -> StoredCopy:
        """The place of a map of `nbytes` in the store, which is given as bytes from there on."""


class PoolSearch(ABC):
    """Base class, beside `Allocator`, of an allocator that plans more than once: it searches for its pool's layout."""

    @abstractmethod
    def search(self, attempt: Callable[..., Any], budget: int, fixed_order: bool) -> Any:
        """The program in the pool that was found; raises `DoesNotFit` where that would exceed `budget` bytes.

        Args:
            attempt: of (nbytes, lag, allocator, memory), all but the first optional, plans or raises `DoesNotFit`;
                with a `lag`, released bytes go back after that number of steps, though a copy of them may still run.
            budget: bytes.
            fixed_order: whether the iteration's allocations are the same in every pool that they fit.
        """

    @property
    def quick(self) -> Any:
        """The same search for a hint: it finds no other pool, but where nothing fits, it need not say what would."""
        return self


class BoundStore(BoundPinned, Protocol):
    """Also which maps go from pinned memory to the store, and when they come back.

    `place` is called before a map comes back, too.
    """

    codec: Codec  #: how a map is written there

    lag: int  #: without a limit, the number of steps from which a map has left until its buffer serves another

    def bytes_in_store(self, tensor: Tensor, step: Step) -> int | None:
        """Asked when a map leaves at `step`: the bytes that it is expected to take there; None: it stays raw."""

    @property
    def room(self) -> int:
        """Bytes of the largest hole in the pinned memory that has been taken so far."""

    def emptied(self, tensor: Tensor) -> None:
        """Told when a map is in the store, or its raw copy is of no use: its buffer can serve another."""

    def next_wanted(self, step: Step) -> Tensor | None:
        """Asked before every backward step, again and again until it answers None: a map to come back now.

        `place` is called for it before the next question.
        """
