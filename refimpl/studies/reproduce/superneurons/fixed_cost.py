"""A machine with a fixed cost for each call of a library, in which a runtime of the paper's time issues its kernels.

In the paper's figures cheap layers take far more time than their bytes over a GPU's bandwidth.  Here every kernel takes
longer by a fixed cost, as if the host issued a call and waited for it.  Only the evaluation plans with such a machine:
the cost is that of the authors' runtime, and no other paper's figures were timed with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from refimpl.machine import Choice, Machine
from refimpl.network import Call

#: Kernel → the calls of cuDNN or cuBLAS in its place, where these are not one (R).  A CONV and an FC have five:
#: forward, its bias, and the gradients of bias, weights and map.  Weights are updated after the layers.
LIBRARY_CALLS = {
    "conv.forward": 2, "conv.backward_filter": 2, "conv.backward_bias": 0,
    "fc.forward": 2, "fc.backward_filter": 2, "fc.backward_bias": 0,
    "batchnorm.update_running": 0, "softmax.cross_entropy": 0, "sgd.update": 0,
}  # fmt: skip


def library_calls(call: Call) -> int:
    """How many calls of a library the paper's runtime makes for a call of ours."""
    return LIBRARY_CALLS.get(call.function, 1)


@dataclass(frozen=True)
class FixedCost(Machine):
    """A machine whose calls of a library each take `call_seconds` more."""

    call_seconds: float = 0.0

    @classmethod
    def of(cls, machine: Machine, call_seconds: float) -> FixedCost:
        given = {field.name: getattr(machine, field.name) for field in fields(machine) if field.init}
        return cls(**given, call_seconds=call_seconds)

    def seconds(self, call: Call, choice: Choice | None = None) -> float:
        return super().seconds(call, choice) + self.call_seconds * library_calls(call)
