"""Calls and steps: what one iteration of training executes, in order.

A *call* is one call of a kernel family's function, with everything it reads, writes and updates in place.  A *step* is
one layer's forward or backward: an ordered list of calls.  Steps are numbered 1..N forward and N+1..2N backward; a
number is a position in the route, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from refimpl.network.tensor import Tensor

if TYPE_CHECKING:
    from refimpl.network.layer import Layer

Direction = Literal["forward", "backward"]

#: The functions whose algorithm, and hence workspace, a plan chooses.
CHOOSABLE = ("conv.forward", "conv.backward_data", "conv.backward_filter")


class Setting:
    """An argument of a call that whoever trains supplies, a number: the seed, the iteration, the learning rate, …"""

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
    tensors than the function takes: what the published systems' library reads is held here too where the network's
    conventions say so.  `writes` are filled whatever was in them, `updates` are read and changed in place.  A call with
    `once` changes state that outlives the iteration (running statistics): a rebuild leaves it out.
    """

    __slots__ = ("arguments", "flops", "function", "once", "operands", "reads", "updates", "writes")

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
        #: Every tensor of the call, once: what it reads, updates, writes.
        self.operands = tuple(dict.fromkeys((*self.reads, *self.updates, *self.writes)))

    @property
    def family(self) -> str:
        """The kernel family: conv, pool, fc, …"""
        return self.function.partition(".")[0]

    @property
    def nbytes(self) -> int:
        """Bytes that have to be read and written at least; what is updated counts twice."""
        moved = (*self.reads, *self.writes, *self.updates, *self.updates)
        return sum(tensor.nbytes for tensor in moved)

    @property
    def choosable(self) -> bool:
        """Whether a plan chooses this call's algorithm and workspace."""
        return self.function in CHOOSABLE

    @property
    def convolution(self) -> tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[int, int]]:
        """Of a choosable call: pass, shape of x, shape of w, stride, padding, as `kernels.conv` wants them."""
        given = self.arguments
        x, w = given.get("x") or given["dx"], given.get("w") or given["dw"]
        return self.function.removeprefix("conv."), x.shape, w.shape, given["stride"], given["pad"]

    def __repr__(self) -> str:
        given, filled = (", ".join(map(repr, tensors)) for tensors in ((*self.reads, *self.updates), self.writes))
        return f"{self.function}({given} → {filled})"


class Step:
    """One layer's forward or backward.  `reads`, `writes` and `updates` name managed tensors only, each once.

    `reads` have to be there before; `writes` come into being in this step (a sum's addend is written and read in one
    step); `updates` are there before and are changed.
    """

    __slots__ = ("calls", "direction", "layer", "number", "reads", "updates", "uses", "writes")

    def __init__(self, number: int, layer: Layer, direction: Direction, calls: Iterable[Call]) -> None:
        self.number, self.layer, self.direction, self.calls = number, layer, direction, tuple(calls)
        reads: dict[Tensor, None] = {}
        writes: dict[Tensor, None] = {}
        updates: dict[Tensor, None] = {}
        for call in self.calls:
            for tensor in call.reads:
                if tensor.managed and tensor not in writes:
                    reads[tensor] = None
            for tensor in call.updates:
                if tensor.managed and tensor not in writes:
                    updates[tensor] = None
            for tensor in call.writes:
                if tensor.managed:
                    writes[tensor] = None
        self.reads = tuple(tensor for tensor in reads if tensor not in updates)
        self.updates, self.writes = tuple(updates), tuple(writes)
        self.uses = (*self.reads, *self.updates, *self.writes)

    @property
    def forward(self) -> bool:
        return self.direction == "forward"

    @property
    def flops(self) -> int:
        return sum(call.flops for call in self.calls)

    def __repr__(self) -> str:
        return f"step {self.number} ({self.layer.name} {self.direction})"
