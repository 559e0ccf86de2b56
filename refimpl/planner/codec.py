"""A codec: how the host's threads write a map into the store, where it may take fewer bytes, and read it back.

A plan has to know where a stored map is, and so the most bytes that it can take (`room`); how many it really takes
depends on its values.  The planner, the proof and the back ends ask these questions and know no codec.  A module of the
slot `pinned` that uses the store names its own; vDNN++'s is `refimpl.vdnnpp.packing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

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
