"""A call: one call of a kernel family's function, with everything it reads, writes and updates in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from refimpl.network.kinds import TRAITS
from refimpl.network.tensor import Tensor

#: The functions whose algorithm, and hence workspace, a plan chooses.
CHOOSABLE = tuple(dict.fromkeys(function for traits in TRAITS.values() for function in traits.choosable))

PYTORCH = "aten"  #: the family of the calls that PyTorch makes and no kernel of ours

NOT_IN_KEY = ("layer",)  #: arguments that change what is computed and not how long it takes

#: A call's function, and its arguments by name: shapes instead of tensors.
CallKey = tuple[str, tuple[tuple[str, Any], ...]]


class Setting:
    """A number that the trainer supplies to a call: the seed, the iteration, the learning rate, …"""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


SEED, ITERATION = Setting("seed"), Setting("iteration")
RATE, MOMENTUM, DECAY = Setting("rate"), Setting("momentum"), Setting("decay")
BETA1, BETA2, EPSILON = Setting("beta1"), Setting("beta2"), Setting("epsilon")


class Call:
    """One call of `kernels.<function>`, as in "conv.backward_data".

    `arguments` are that function's by name: tensors, tuples of tensors, settings, plain values.  `reads` may name more
    tensors than the function takes: where the network's conventions say so, it has the tensors that the published
    systems' library reads.  `writes` are overwritten, `updates` are read and changed in place.  A call with
    `once` changes state that outlives the iteration (running statistics): a rebuild leaves it out.  `scratch` are bytes
    that it takes while it runs, whatever the plan: of PyTorch's operators.  A machine's model times it as the calls
    `timed_as`, if there are any.
    """

    __slots__ = (
        "_key", "arguments", "collective", "flops", "function", "once", "operands", "reads", "scratch", "timed_as",
        "updates", "writes",
    )  # fmt: skip

    def __init__(
        self,
        function: str,
        arguments: Mapping[str, Any],
        reads: Iterable[Tensor] = (),
        writes: Iterable[Tensor] = (),
        updates: Iterable[Tensor] = (),
        flops: int = 0,
        once: bool = False,
        scratch: int = 0,
        timed_as: Iterable[Call] = (),
    ) -> None:
        self.function, self.arguments = function, arguments
        self.reads, self.writes, self.updates = tuple(reads), tuple(writes), tuple(updates)
        self.flops, self.once, self.scratch, self.timed_as = flops, once, scratch, tuple(timed_as)
        self.collective = function == "comm.mean"  #: all ranks make it together, over the network that joins them
        #: Every tensor of the call, once: what it reads, updates, writes.
        self.operands = tuple(dict.fromkeys((*self.reads, *self.updates, *self.writes)))
        self._key: CallKey | None = None

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

    def __repr__(self) -> str:
        given, filled = (", ".join(map(repr, tensors)) for tensors in ((*self.reads, *self.updates), self.writes))
        return f"{self.function}({given} → {filled})"

    # -- for a machine's model of time: a first reader stops here ------------------------------------------------------

    @property
    def is_pytorchs(self) -> bool:
        """Whether PyTorch alone can make it: a machine knows its operations and bytes, and no kernel."""
        return self.family == PYTORCH

    @property
    def work(self) -> Literal["forward", "backward", "products"]:
        """The kind of arithmetic of a call that has no algorithms here: PyTorch's convolutions are ones, too."""
        convolves = self.is_pytorchs and self.function.startswith(f"{PYTORCH}.conv")
        return "products" if not convolves else "backward" if self.function.endswith("backward") else "forward"

    @property
    def key(self) -> CallKey:
        """The same for all calls that take equally long: no layer's name is in it.

        A tensor is its shape; one that is given twice is "=NAME" the second time.  Settings are left out.
        """
        if self._key is None:
            seen: dict[Tensor, str] = {}

            def described(name: str, value: Any) -> Any:
                if isinstance(value, Tensor):
                    first = seen.setdefault(value, name)
                    return value.shape if first == name else f"={first}"
                if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
                    return tuple(described(f"{name}{i}", part) for i, part in enumerate(value))
                return value

            plain = [(name, value) for name, value in self.arguments.items() if not isinstance(value, Setting)]
            self._key = self.function, tuple((n, described(n, value)) for n, value in plain if n not in NOT_IN_KEY)
        return self._key
