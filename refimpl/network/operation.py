"""A layer as PyTorch runs it: the storages that one operator of a module makes, and what autograd keeps of them.

A layer of ours is described by its kind and options, and its record says what its backward reads.  A layer with an
`Operation` is described by what was seen when PyTorch ran it once without computing anything: the storages that it
reads and makes, those that autograd saved for backward, and its floating-point operations.  Its kind then only says how
the papers' rules treat it, and no kernel of ours runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Storage:
    """The bytes that a tensor has for itself; several tensors may be views of them."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class OperationInput:
    """A storage that an operation reads: a producer's, in the order of the layer's producers."""

    part: int  #: the number of the storage among the producer's
    learns: bool  #: whether a gradient goes back to it
    saved: bool  #: whether backward reads it
    part_bytes: int | None = None  #: of what it reads, where that is a part of the storage


@dataclass(frozen=True)
class Learnt:
    """A parameter or a buffer that an operation reads."""

    source: str  #: its name in the module's state_dict
    storage: Storage
    kind: Literal["parameter", "frozen", "buffer"]


@dataclass(frozen=True)
class Operation:
    """What one operator of a module does with memory."""

    operator: str  #: as in "conv2d"
    makes: tuple[Storage, ...] = ()  #: what others read, then what only its backward reads
    saved: tuple[bool, ...] = ()  #: of each of these: whether its backward reads it
    reads: tuple[OperationInput, ...] = ()  #: one a producer
    state: tuple[Learnt, ...] = ()
    overwrites: int | None = None  #: the number of the source that it changes in place, which is then its output
    hands_on: bool = False  #: whether its gradient is that of its output, in the same storage
    learns: bool = True  #: whether a gradient goes through it
    held: tuple[int, ...] = ()  #: of each output: how many more layers run while variables of the module hold it
    forward_flops: int = 0
    backward_flops: int = 0
    made_bytes: int = 0  #: of what it makes, when it was seen
    forward_levels: tuple[int, ...] = ()  #: bytes that it takes while it runs, each time before it frees some
    backward_levels: tuple[int, ...] = ()  #: the same of its backward, the gradients that it fills among them

    @property
    def forward_scratch(self) -> int:
        """Bytes that it takes while it runs, beside what it makes, at the most."""
        return max((0, *(level - self.made_bytes for level in self.forward_levels)))

    @property
    def backward_bytes(self) -> int:
        """Bytes that its backward takes at the most."""
        return max((0, *self.backward_levels))
