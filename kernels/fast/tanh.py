"""The hyperbolic tangent: y = tanh(x), and its gradient dx = dy (1 - y²).

Both may work in place, and the gradient needs y, not x: a network then keeps one tensor where it had two.

Launch: as in `kernels.fast.activation`.  An element takes about 15 operations forward and 3 backward.
"""

from __future__ import annotations

from typing import Any

from kernels.fast.activation import backward_kernel, forward_kernel, in_place_kernel, run_backward, run_forward
from kernels.fast.functions import ONE, tanh
from kernels.targets.launch import device


@device
def slope(y: float) -> float:
    """1 - y², whose digits stay where y is nearly 1."""
    return (ONE - y) * (ONE + y)


FORWARD = forward_kernel("tanh_forward", tanh, __name__, "y = tanh(x)")
IN_PLACE = in_place_kernel("tanh_in_place", tanh, __name__, "y = tanh(y)")
BACKWARD = backward_kernel("tanh_backward", slope, __name__, "dx = dx (1 - y²)")


def forward(x: Any, y: Any, *, stream: Any = None) -> None:
    """y = tanh(x); y may be x."""
    run_forward("tanh.forward", FORWARD, x, y, stream, IN_PLACE)


def backward(y: Any, dy: Any, dx: Any, *, stream: Any = None) -> None:
    """dx = dy (1 - y²); dx may be dy, and otherwise is a copy of it first."""
    run_backward("tanh.backward", BACKWARD, "y", y, dy, dx, stream)
