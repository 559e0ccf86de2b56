"""The leaky rectifier: y = x where x > 0, else a small multiple of it, and its gradient, which is scaled alike.

Both may work in place, and the gradient needs y, whose sign is x's: a network then keeps one tensor where it had two.

Launch: the kernels of `kernels.fast.relu`, with another function.  An element takes 2 operations either way.
"""

from __future__ import annotations

from typing import Any

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.elementwise import size, tiles
from kernels.fast.relu import ZERO, backward_kernel, forward_kernel
from kernels.targets.launch import device, launch


@device
def leaky(control: float, value: float, negative_slope: float) -> float:
    """value where control is above zero, else that much of it."""
    return value if control > ZERO else negative_slope * value


FORWARD = forward_kernel(
    "leaky_relu_forward", leaky, (__name__, "y = x where x is positive, else a part of it; four elements a thread.")
)
BACKWARD = backward_kernel(
    "leaky_relu_backward", leaky, (__name__, "dx = dy where y is positive, else a part of it; four elements a thread.")
)


def forward(x: Any, y: Any, *, negative_slope: float, stream: Any = None) -> None:
    """y = x where x > 0, else negative_slope x; y may be x."""
    check("leaky_relu.forward", x=x, y=y)
    check_shape("leaky_relu.forward", "y", y, x.shape)
    check_slope("leaky_relu.forward", negative_slope)
    launch(FORWARD, tiles(size(x)), x, y, size(x), negative_slope, stream=stream)


def backward(y: Any, dy: Any, dx: Any, *, negative_slope: float, stream: Any = None) -> None:
    """dx = dy where y > 0, else negative_slope dy; dx may be dy."""
    check("leaky_relu.backward", y=y, dy=dy, dx=dx)
    check_shape("leaky_relu.backward", "dy", dy, y.shape)
    check_shape("leaky_relu.backward", "dx", dx, y.shape)
    check_slope("leaky_relu.backward", negative_slope)
    launch(BACKWARD, tiles(size(y)), y, dy, dx, size(y), negative_slope, stream=stream)


def check_slope(where: str, negative_slope: float) -> None:
    """The sign of y must tell that of x."""
    if not negative_slope > 0:
        raise KernelError(f"{where}: negative_slope is {negative_slope}; give a number above 0")
