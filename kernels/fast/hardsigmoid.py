"""The hard sigmoid: y = x / 6 + 1/2, at least 0 and at most 1, and its gradient dx = dy / 6 where 0 < y < 1, else 0.

Both may work in place, and the gradient needs y, not x: a network then keeps one tensor where it had two.

Launch: as in `kernels.fast.activation`.  An element takes 4 operations forward and 3 backward.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.fast.activation import backward_kernel, forward_kernel, in_place_kernel, run_backward, run_forward
from kernels.fast.functions import ONE, ZERO
from kernels.targets.launch import device

END, SIXTH, HALF = np.float32(3), np.float32(1 / 6), np.float32(0.5)


@device
def hard_sigmoid(x: float) -> float:
    return ZERO if x <= -END else ONE if x >= END else x * SIXTH + HALF


@device
def slope(y: float) -> float:
    return ZERO if y <= ZERO or y >= ONE else SIXTH


FORWARD = forward_kernel("hardsigmoid_forward", hard_sigmoid, __name__, "y = x / 6 + 1/2 between 0 and 1")
IN_PLACE = in_place_kernel("hardsigmoid_in_place", hard_sigmoid, __name__, "y = y / 6 + 1/2 between 0 and 1")
BACKWARD = backward_kernel("hardsigmoid_backward", slope, __name__, "dx = dx / 6 where 0 < y < 1, else 0,")


def forward(x: Any, y: Any, *, stream: Any = None) -> None:
    """y = x / 6 + 1/2 between 0 and 1; y may be x."""
    run_forward("hardsigmoid.forward", FORWARD, x, y, stream, IN_PLACE)


def backward(y: Any, dy: Any, dx: Any, *, stream: Any = None) -> None:
    """dx = dy / 6 where 0 < y < 1, else 0; dx may be dy, and otherwise is a copy of it first."""
    run_backward("hardsigmoid.backward", BACKWARD, "y", y, dy, dx, stream)
