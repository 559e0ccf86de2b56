"""The Gaussian error linear unit: y = x Φ(x), Φ(x) = (1 + erf(x / √2)) / 2, and its gradient dx = dy (Φ(x) + x φ(x)).

With approximate="tanh" Φ(x) is (1 + tanh u) / 2, u = √(2/π) (x + 0.044715 x³), as the first networks had it (Hendrycks
and Gimpel, "Gaussian Error Linear Units", 2016).

Both may work in place (y is x, dx is dy).  The gradient needs x, so a network keeps its input.

Launch: as in `kernels.fast.activation`.  An element takes about 30 operations forward and 45 backward.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError
from kernels.fast.activation import backward_kernel, forward_kernel, run_backward, run_forward
from kernels.fast.functions import erf, exp, tanh
from kernels.targets.launch import device

HALF, ONE = np.float32(0.5), np.float32(1)
ROOT_HALF = np.float32(math.sqrt(0.5))
DENSITY = np.float32(1 / math.sqrt(2 * math.pi))
SLOPE, CUBIC = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)
CUBIC_SLOPE = np.float32(3 * 0.044715)


@device
def exact(x: float) -> float:
    return HALF * x * (ONE + erf(x * ROOT_HALF))


@device
def exact_slope(x: float) -> float:
    """φ(x) = exp(-x² / 2) / √(2π)."""
    return HALF * (ONE + erf(x * ROOT_HALF)) + x * DENSITY * exp(-HALF * x * x)


@device
def by_tanh(x: float) -> float:
    return HALF * x * (ONE + tanh(SLOPE * (x + CUBIC * x * x * x)))


@device
def slope_by_tanh(x: float) -> float:
    t = tanh(SLOPE * (x + CUBIC * x * x * x))
    return HALF * (ONE + t) + HALF * x * (ONE - t) * (ONE + t) * SLOPE * (ONE + CUBIC_SLOPE * x * x)


#: `approximate` → kernel.
FORWARD = {
    "none": forward_kernel("gelu_forward", exact, __name__, "y = gelu(x)"),
    "tanh": forward_kernel("gelu_tanh_forward", by_tanh, __name__, "y = gelu(x) by tanh"),
}
BACKWARD = {
    "none": backward_kernel("gelu_backward", exact_slope, __name__, "dx = dx gelu'(x)"),
    "tanh": backward_kernel("gelu_tanh_backward", slope_by_tanh, __name__, "dx = dx gelu'(x) by tanh"),
}


def forward(x: Any, y: Any, *, approximate: str = "none", stream: Any = None) -> None:
    """y = gelu(x), or its tanh formula; y may be x."""
    run_forward("gelu.forward", of_formula(FORWARD, "gelu.forward", approximate), x, y, stream)


def backward(x: Any, dy: Any, dx: Any, *, approximate: str = "none", stream: Any = None) -> None:
    """dx = dy gelu'(x); dx may be dy, and otherwise is a copy of it first."""
    run_backward("gelu.backward", of_formula(BACKWARD, "gelu.backward", approximate), "x", x, dy, dx, stream)


def of_formula(run: Any, where: str, approximate: str) -> Any:
    """The kernel of a formula that there is."""
    if approximate not in run:
        raise KernelError(f"{where}: approximate is {approximate!r}; give one of {', '.join(run)}")
    return run[approximate]
