"""What the smooth activations share: y = f(x) and dx = dy f'(x), element by element, from a function for each.

A module of kernels names itself and says what its kernel does, as in `forward_kernel("tanh_forward", tanh, __name__,
"y = tanh(x)")`.

What works in place has a kernel with an array less.  One with two, which may be the same one, a compiler cannot prove
free of conflicts: in place it computes element by element, and takes 5 to 8 times as long on a CPU.  So the gradient's
kernel works in place alone, as networks use it, and an activation whose gradient needs y alone has two forward kernels.

Launch: as in `kernels.fast.elementwise`, 256 threads a block, four elements a thread.  Forward moves 8 n bytes,
backward 12 n.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.checks.arguments import FlatView, check, check_shape, flat
from kernels.fast import elementwise
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, Kernel, kernel, launch
from kernels.targets.shim import cuda


def forward_kernel(name: str, value_of: Any, module: str, about: str) -> Kernel:
    """y = value_of(x), which may be x."""

    @kernel(block=BLOCK, name=name, about=(module, f"{about}, four elements a thread."))
    def activation_forward(x: Floats, y: Floats, n: int) -> None:
        """As `about` says."""
        value = cuda.local.array(PER_THREAD, np.float32)
        tile = cuda.blockIdx.x * TILE
        i = tile + cuda.threadIdx.x
        if tile + TILE <= n:
            for j in range(PER_THREAD):
                value[j] = x[np.uint32(i + j * BLOCK)]
            for j in range(PER_THREAD):
                y[np.uint32(i + j * BLOCK)] = value_of(value[j])
        else:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                if i + j * BLOCK < n:
                    y[e] = value_of(x[e])

    return activation_forward


def in_place_kernel(name: str, value_of: Any, module: str, about: str) -> Kernel:
    """y = value_of(y)."""

    @kernel(block=BLOCK, name=name, about=(module, f"{about} in place, four elements a thread."))
    def activation_in_place(y: Floats, n: int) -> None:
        """As `about` says."""
        value = cuda.local.array(PER_THREAD, np.float32)
        tile = cuda.blockIdx.x * TILE
        i = tile + cuda.threadIdx.x
        if tile + TILE <= n:
            for j in range(PER_THREAD):
                value[j] = y[np.uint32(i + j * BLOCK)]
            for j in range(PER_THREAD):
                y[np.uint32(i + j * BLOCK)] = value_of(value[j])
        else:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                if i + j * BLOCK < n:
                    y[e] = value_of(y[e])

    return activation_in_place


def backward_kernel(name: str, slope_of: Any, module: str, about: str) -> Kernel:
    """dx = dx slope_of(z) in place, where z is x or y."""

    @kernel(block=BLOCK, name=name, about=(module, f"{about} in place, four elements a thread."))
    def activation_backward(z: Floats, dx: Floats, n: int) -> None:
        """As `about` says."""
        at = cuda.local.array(PER_THREAD, np.float32)
        value = cuda.local.array(PER_THREAD, np.float32)
        tile = cuda.blockIdx.x * TILE
        i = tile + cuda.threadIdx.x
        if tile + TILE <= n:
            for j in range(PER_THREAD):
                at[j] = z[np.uint32(i + j * BLOCK)]
                value[j] = dx[np.uint32(i + j * BLOCK)]
            for j in range(PER_THREAD):
                dx[np.uint32(i + j * BLOCK)] = value[j] * slope_of(at[j])
        else:
            for j in range(PER_THREAD):
                e = np.uint32(i + j * BLOCK)
                if i + j * BLOCK < n:
                    dx[e] *= slope_of(z[e])

    return activation_backward


def run_forward(where: str, run: Kernel, x: Any, y: Any, stream: Any, in_place: Kernel | None = None) -> None:
    """Launch y = f(x).

    Args:
        where: the public function, for errors.
        run: what `forward_kernel` made.
        x: an array.
        y: another of its shape, or x.
        stream: as everywhere.
        in_place: what `in_place_kernel` made, where networks need it.
    """
    check(where, x=x, y=y)
    check_shape(where, "y", y, x.shape)
    if in_place is not None and start(x) == start(y):
        launch(in_place, tiles(size(y)), y, size(y), stream=stream)
    else:
        launch(run, tiles(size(x)), x, y, size(x), stream=stream)


def run_backward(where: str, run: Kernel, name: str, z: Any, dy: Any, dx: Any, stream: Any) -> None:
    """Launch dx = dy f'(z), after a copy of dy if dx is another array.

    Args:
        where: the public function, for errors.
        run: what `backward_kernel` made.
        name: "x" or "y", which `z` is.
        z: what the slope is computed from.
        dy: the gradient of the output.
        dx: that of the input, or dy.
        stream: as everywhere.
    """
    check(where, **{name: z}, dy=dy, dx=dx)
    check_shape(where, "dy", dy, z.shape)
    check_shape(where, "dx", dx, z.shape)
    if start(dx) != start(dy):
        elementwise.copy(dy, dx, stream=stream)
    launch(run, tiles(size(z)), z, dx, size(z), stream=stream)


def start(array: Any) -> int:
    """Where an array begins in memory."""
    view = flat(array)
    return view.pointer if isinstance(view, FlatView) else int(view.__array_interface__["data"][0])
