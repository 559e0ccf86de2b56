"""The hard Swish: y = x h(x) with the hard sigmoid h, and its gradient dx = dy (x / 3 + 1/2), but 0 where x < -3 and
dy where x > 3 (Howard and others, "Searching for MobileNetV3", 2019).

Both may work in place (y is x, dx is dy).  The gradient needs x: two numbers have the same y.

Launch: as in `kernels.fast.activation`.  An element takes 5 operations forward and 5 backward.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.fast.activation import backward_kernel, forward_kernel, run_backward, run_forward
from kernels.fast.functions import ONE, ZERO
from kernels.targets.launch import device

END, HALF, SIXTH, THIRD = np.float32(3), np.float32(0.5), np.float32(1 / 6), np.float32(1 / 3)


@device
def hard_sigmoid(x: float) -> float:
    return ZERO if x <= -END else ONE if x >= END else x * SIXTH + HALF


@device
def hard_swish(x: float) -> float:
    return x * hard_sigmoid(x)


@device
def slope(x: float) -> float:
    return ZERO if x < -END else ONE if x > END else x * THIRD + HALF


FORWARD = forward_kernel("hardswish_forward", hard_swish, __name__, "y = x (x / 6 + 1/2), the factor between 0 and 1")
BACKWARD = backward_kernel("hardswish_backward", slope, __name__, "dx = dx hardswish'(x)")


def forward(x: Any, y: Any, *, stream: Any = None) -> None:
    """y = x (x / 6 + 1/2), the second factor between 0 and 1; y may be x."""
    run_forward("hardswish.forward", FORWARD, x, y, stream)


def backward(x: Any, dy: Any, dx: Any, *, stream: Any = None) -> None:
    """dx = dy hardswish'(x); dx may be dy, and otherwise is a copy of it first."""
    run_backward("hardswish.backward", BACKWARD, "x", x, dy, dx, stream)
