"""A call: one call of a kernel family's function, with everything it reads, writes and updates in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from refimpl.network.kinds import TRAITS
from refimpl.network.tensor import Tensor

#: The functions whose algorithm, and hence workspace, a plan chooses.
CHOOSABLE = tuple(function for traits in TRAITS.values() for function in traits.choosable)

#: What `Call.convolution` gives.
Convolution = tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[int, ...], tuple[int, int]]


class Setting:
    """A number that the trainer supplies to a call: the seed, the iteration, the learning rate, …"""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


SEED, ITERATION = Setting("seed"), Setting("iteration")
RATE, MOMENTUM, DECAY = Setting("rate"), Setting("momentum"), Setting("decay")


class Call:
    """One call of `kernels.<function>`, as in "conv.backward_data".

    `arguments` are that function's by name: tensors, tuples of tensors, settings, plain values.  `reads` may name more
    tensors than the function takes: where the network's conventions say so, it has the tensors that the published
    systems' library reads.  `writes` are overwritten, `updates` are read and changed in place.  A call with
    `once` changes state that outlives the iteration (running statistics): a rebuild leaves it out.
    """

    __slots__ = ("arguments", "collective", "flops", "function", "once", "operands", "reads", "updates", "writes")

    def __init__(
        self,
        function: str,
        arguments: Mapping[str, Any],
        reads: Iterable[Tensor] = (),
        writes: Iterable[Tensor] = (),
        updates: Iterable[Tensor] = (),
        flops: int = 0,
        once: bool = False,
    ) -> None:
        self.function, self.arguments = function, arguments
        self.reads, self.writes, self.updates = tuple(reads), tuple(writes), tuple(updates)
        self.flops, self.once = flops, once
        self.collective = function == "comm.mean"  #: all ranks make it together, over the network that joins them
        #: Every tensor of the call, once: what it reads, updates, writes.
        self.operands = tuple(dict.fromkeys((*self.reads, *self.updates, *self.writes)))

    @property
    def family(self) -> str:
        """The kernel family: conv, pool, fc, …"""
        return self.function.partition(".")[0]

    @property
    def nbytes(self) -> int:
        """The least number of bytes to read and write; an updated tensor counts twice."""
        moved = (*self.reads, *self.writes, *self.updates, *self.updates)
        return sum(tensor.nbytes for tensor in moved)

    @property
    def choosable(self) -> bool:
        """Whether a plan chooses this call's algorithm and workspace."""
        return self.function in CHOOSABLE

    @property
    def name(self) -> str:
        """The name of a choosable call, which no other one in its network has: its function, and what it writes."""
        return f"{self.function} {self.writes[0].name}"

    @property
    def convolution(self) -> Convolution:
        """Of a choosable call: pass, shapes of x and w, stride, padding, dilation, as `kernels.conv` wants them."""
        given = self.arguments
        x, w = given.get("x") or given["dx"], given.get("w") or given["dw"]
        walk = given["stride"], given["pad"], given.get("dilation", (1, 1))
        return self.function.removeprefix("conv."), x.shape, w.shape, *walk

    def __repr__(self) -> str:
        given, filled = (", ".join(map(repr, tensors)) for tensors in ((*self.reads, *self.updates), self.writes))
        return f"{self.function}({given} → {filled})"
