"""The rectifier: y = max(x, 0), and its gradient dx = dy where y > 0, else 0.

With `at_most` it is clipped from above too, y = min(max(x, 0), at_most), and the gradient is dy where 0 < y < at_most;
ReLU6 has at_most=6.

Both may work in place (y is x, dx is dy), and the gradient needs y, not x: a network then keeps one tensor where it had
two.  Not-a-number stays not-a-number, and lets the gradient through, as in PyTorch.

Launch: as in `kernels.fast.elementwise`, 256 threads a block, four elements a thread.  n elements take n operations
(comparisons) either way, 2 n if clipped; forward moves 8 n bytes, backward 12 n.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, Kernel, device, kernel, launch
from kernels.targets.shim import cuda

ZERO = np.float32(0)


@device
def gate(control: float, value: float, limit: float) -> float:
    """value where control is above zero (or not a number), else 0."""
    return ZERO if control <= ZERO else value


@device
def clipped_gate(control: float, value: float, limit: float) -> float:
    """value where control is above zero and below the limit (or not a number), else 0."""
    return ZERO if control <= ZERO or control >= limit else value


@device
def clip(control: float, value: float, limit: float) -> float:
    """value, at least 0 and at most the limit."""
    return limit if value >= limit else gate(value, value, limit)


def forward_kernel(name: str, bounded: Any, about: tuple[str, str] | None = None) -> Kernel:
    """y = bounded(x), four elements a thread; `about`: of another module's kernel, as `declare.kernel` has it."""

    @kernel(block=BLOCK, name=name, about=about)
    def relu_forward(x: Floats, y: Floats, n: int, limit: float) -> None:
        """y = max(x, 0), or no more than the limit; four elements a thread."""
        value = cuda.local.array(PER_THREAD, np.float32)
        tile = cuda.blockIdx.x * TILE
        i = tile + cuda.threadIdx.x
        if tile + TILE <= n:
            for j in range(PER_THREAD):
                value[j] = x[np.uint32(i + j * BLOCK)]
            for j in range(PER_THREAD):
                y[np.uint32(i + j * BLOCK)] = bounded(value[j], value[j], limit)
        else:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                if i + j * BLOCK < n:
                    y[e] = bounded(x[e], x[e], limit)

    return relu_forward


def backward_kernel(name: str, passed: Any, about: tuple[str, str] | None = None) -> Kernel:
    """dx = passed(y, dy), four elements a thread."""

    @kernel(block=BLOCK, name=name, about=about)
    def relu_backward(y: Floats, dy: Floats, dx: Floats, n: int, limit: float) -> None:
        """dx = dy where y is positive, and below the limit if there is one, else 0; four elements a thread."""
        value = cuda.local.array(PER_THREAD, np.float32)
        tile = cuda.blockIdx.x * TILE
        i = tile + cuda.threadIdx.x
        if tile + TILE <= n:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                value[j] = passed(y[e], dy[e], limit)
            for j in range(PER_THREAD):
                dx[np.uint32(i + j * BLOCK)] = value[j]
        else:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                if i + j * BLOCK < n:
                    dx[e] = passed(y[e], dy[e], limit)

    return relu_backward


#: Without a limit and with one: at 256 threads an element-wise kernel has no instruction to spare.
FORWARD = {False: forward_kernel("relu_forward", gate), True: forward_kernel("relu_clipped_forward", clip)}
BACKWARD = {False: backward_kernel("relu_backward", gate), True: backward_kernel("relu_clipped_backward", clipped_gate)}


def forward(x: Any, y: Any, *, at_most: float | None = None, stream: Any = None) -> None:
    """y = max(x, 0), or no more than at_most; y may be x."""
    check("relu.forward", x=x, y=y)
    check_shape("relu.forward", "y", y, x.shape)
    run, limit = FORWARD[at_most is not None], checked_limit("relu.forward", at_most)
    launch(run, tiles(size(x)), x, y, size(x), limit, stream=stream)


def backward(y: Any, dy: Any, dx: Any, *, at_most: float | None = None, stream: Any = None) -> None:
    """dx = dy where y > 0, and below at_most if that is given, else 0; dx may be dy."""
    check("relu.backward", y=y, dy=dy, dx=dx)
    check_shape("relu.backward", "dy", dy, y.shape)
    check_shape("relu.backward", "dx", dx, y.shape)
    run, limit = BACKWARD[at_most is not None], checked_limit("relu.backward", at_most)
    launch(run, tiles(size(y)), y, dy, dx, size(y), limit, stream=stream)


def checked_limit(where: str, at_most: float | None) -> float:
    """The limit as the kernels take it."""
    if at_most is not None and not at_most > 0:
        raise KernelError(f"{where}: at_most is {at_most}; give a number above 0")
    return at_most or 0.0
