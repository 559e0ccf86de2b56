"""The sigmoid: y = 1 / (1 + exp(-x)), and its gradient dx = dy y (1 - y).

Both may work in place, and the gradient needs y, not x: a network then keeps one tensor where it had two.

Launch: as in `kernels.fast.activation`.  An element takes about 18 operations forward and 3 backward.
"""

from __future__ import annotations

from typing import Any

from kernels.fast.activation import backward_kernel, forward_kernel, in_place_kernel, run_backward, run_forward
from kernels.fast.functions import ONE, sigmoid
from kernels.targets.launch import device


@device
def slope(y: float) -> float:
    return y * (ONE - y)


FORWARD = forward_kernel("sigmoid_forward", sigmoid, __name__, "y = 1 / (1 + exp(-x))")
IN_PLACE = in_place_kernel("sigmoid_in_place", sigmoid, __name__, "y = 1 / (1 + exp(-y))")
BACKWARD = backward_kernel("sigmoid_backward", slope, __name__, "dx = dx y (1 - y)")


def forward(x: Any, y: Any, *, stream: Any = None) -> None:
    """y = 1 / (1 + exp(-x)); y may be x."""
    run_forward("sigmoid.forward", FORWARD, x, y, stream, IN_PLACE)


def backward(y: Any, dy: Any, dx: Any, *, stream: Any = None) -> None:
    """dx = dy y (1 - y); dx may be dy, and otherwise is a copy of it first."""
    run_backward("sigmoid.backward", BACKWARD, "y", y, dy, dx, stream)
