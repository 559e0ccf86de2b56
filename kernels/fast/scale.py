"""Every channel times a number that is learnt: y[n, c] = x[n, c] w[c], layer scale (Touvron and others, 2021).

    forward     y = x w
    backward    dx = dy w, in place, and dw[c] = the sum of dy x over images and positions

Launch: the kernels of `kernels.fast.mul` for one number a map, whose sums go to a workspace of 4 bytes a map; then one
thread a channel adds those of all images, in ascending order.  Backward takes 3 operations a number and moves 12 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast import elementwise
from kernels.fast.activation import start
from kernels.fast.elementwise import size
from kernels.fast.mul import gated, gradients, maps_and_area
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

ZERO = np.float32(0)


@kernel(block=256)
def scale_sum(sums: Floats, dw: Floats, images: int, channels: int) -> None:
    """dw[c] = the sum of sums[:, c], one thread a channel."""
    channel = np.uint32(cuda.grid(1))
    if channel < channels:
        total = ZERO
        for image in range(images):
            total += sums[np.uint32(channel + image * channels)]
        dw[channel] = total


def workspace_bytes(shape: tuple[int, ...]) -> int:
    """Of backward, for x of this shape."""
    return 4 * shape[0] * shape[1]


def forward(x: Any, w: Any, y: Any, *, stream: Any = None) -> None:
    """y[n, c] = x[n, c] w[c]."""
    check("scale.forward", x=x, w=w, y=y)
    check_shape("scale.forward", "y", y, x.shape)
    check_shape("scale.forward", "w", w, x.shape[1:2])
    gated(x, w, y, size(w), stream)


def backward(x: Any, w: Any, dy: Any, dx: Any, dw: Any, *, workspace: Any, stream: Any = None) -> None:
    """dx = dy w, and dw = dy x summed over images and positions; dx may be dy."""
    check("scale.backward", x=x, w=w, dy=dy, dx=dx, dw=dw, workspace=workspace)
    check_shape("scale.backward", "dy", dy, x.shape)
    check_shape("scale.backward", "dx", dx, x.shape)
    check_shape("scale.backward", "w", w, x.shape[1:2])
    check_shape("scale.backward", "dw", dw, x.shape[1:2])
    maps, _ = maps_and_area(x)
    if size(workspace) < maps:
        raise KernelError(f"scale.backward: the workspace has {size(workspace)} numbers; it needs {maps}")
    if start(dx) != start(dy):
        elementwise.copy(dy, dx, stream=stream)
    gradients(x, w, dx, workspace, size(w), stream)
    launch(scale_sum, ceil_div(size(w), 256), workspace, dw, x.shape[0], size(w), stream=stream)
