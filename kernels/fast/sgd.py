"""Stochastic gradient descent with momentum and weight decay, PyTorch's rule:

    v = momentum · v + (dw + decay · w)
    w = w - rate · v

The momentum buffer v starts as zeros; PyTorch copies the first gradient into it instead, which is the same.

Launch: as in `kernels.fast.elementwise`, 256 threads a block, four elements a thread.  n weights take 6 n
floating-point operations and move 20 n bytes: w, dw and v are read, w and v written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.checks.arguments import check, check_shape
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, device, kernel, launch
from kernels.targets.shim import cuda


@device
def new_velocity(w: float, dw: float, v: float, momentum: float, decay: float) -> float:
    return momentum * v + (dw + decay * w)


@kernel(block=BLOCK)
def sgd_update(w: Floats, dw: Floats, v: Floats, n: int, rate: float, momentum: float, decay: float) -> None:
    """One step of the weights and of their momentum, four elements a thread."""
    weight = cuda.local.array(PER_THREAD, np.float32)
    velocity = cuda.local.array(PER_THREAD, np.float32)
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            weight[j] = w[e]
            velocity[j] = new_velocity(w[e], dw[e], v[e], momentum, decay)
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            v[e] = velocity[j]
            w[e] = weight[j] - rate * velocity[j]
    else:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            if i + j * BLOCK < n:
                v[e] = new_velocity(w[e], dw[e], v[e], momentum, decay)
                w[e] -= rate * v[e]


def update(
    w: Any,
    dw: Any,
    momentum_buffer: Any,
    *,
    rate: float,
    momentum: float = 0.0,
    decay: float = 0.0,
    stream: Any = None,
) -> None:
    """One step: w and momentum_buffer (zeros before the first step) are changed in place."""
    check("sgd.update", w=w, dw=dw, momentum_buffer=momentum_buffer)
    check_shape("sgd.update", "dw", dw, w.shape)
    check_shape("sgd.update", "momentum_buffer", momentum_buffer, w.shape)
    launch(sgd_update, tiles(size(w)), w, dw, momentum_buffer, size(w), rate, momentum, decay, stream=stream)
