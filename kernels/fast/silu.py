"""SiLU, also called Swish: y = x s(x) with the sigmoid s, and its gradient dx = dy s(x) (1 + x (1 - s(x))).

Both may work in place (y is x, dx is dy).  The gradient needs x: two numbers have the same y.

Launch: as in `kernels.fast.activation`.  An element takes about 20 operations forward and 23 backward.
"""

from __future__ import annotations

from typing import Any

from kernels.fast.activation import backward_kernel, forward_kernel, run_backward, run_forward
from kernels.fast.functions import ONE, sigmoid
from kernels.targets.launch import device


@device
def gated(x: float) -> float:
    return x * sigmoid(x)


@device
def slope(x: float) -> float:
    s = sigmoid(x)
    return s * (ONE + x * (ONE - s))


FORWARD = forward_kernel("silu_forward", gated, __name__, "y = x / (1 + exp(-x))")
BACKWARD = backward_kernel("silu_backward", slope, __name__, "dx = dx silu'(x)")


def forward(x: Any, y: Any, *, stream: Any = None) -> None:
    """y = x / (1 + exp(-x)); y may be x."""
    run_forward("silu.forward", FORWARD, x, y, stream)


def backward(x: Any, dy: Any, dx: Any, *, stream: Any = None) -> None:
    """dx = dy silu'(x); dx may be dy, and otherwise is a copy of it first."""
    run_backward("silu.backward", BACKWARD, "x", x, dy, dx, stream)
