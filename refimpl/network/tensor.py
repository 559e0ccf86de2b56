"""A tensor: a named piece of memory of one kind.

*Managed* tensors are allocated and freed within an iteration, and a plan says when: the maps (the layers' outputs),
their gradients, workspaces, and the input batch and the gradients of weights where the network says so.  *Resident*
tensors live as long as training: weights, their gradients and momentum, statistics, labels, losses, and small arrays
that a layer's forward keeps for its backward, or that never change.
"""

from __future__ import annotations

from math import prod
from typing import Literal

Kind = Literal[
    "input", "map", "gradient map", "workspace",  # managed, as a rule
    "weight", "weight gradient", "momentum", "statistic", "kept", "constant", "labels", "loss", "scratch",  # resident
]  # fmt: skip

ITEM_BYTES = 4  #: float32, and int32 for labels
#: What PyTorch keeps may have another type.
SIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int64": 8, "float64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip


class Tensor:
    """A name, a shape and a kind.  It has no values: the executor has those, in its `buffers`."""

    __slots__ = ("dtype", "kind", "managed", "name", "nbytes", "shape")

    def __init__(
        self, name: str, shape: tuple[int, ...], kind: Kind, managed: bool = False, dtype: str = "float32"
    ) -> None:
        self.name, self.shape, self.kind, self.managed, self.dtype = name, shape, kind, managed, dtype
        self.nbytes = SIZES.get(dtype, ITEM_BYTES) * prod(shape)  #: bytes, not rounded

    def __repr__(self) -> str:
        return self.name
