"""Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019).

PyTorch's rule and names, t = iteration + 1:

    w          = w - rate · decay · w
    exp_avg    = beta1 · exp_avg + (1 - beta1) · dw
    exp_avg_sq = beta2 · exp_avg_sq + (1 - beta2) · dw²
    w          = w - rate / (1 - beta1ᵗ) · exp_avg / (√exp_avg_sq / √(1 - beta2ᵗ) + epsilon)

Both averages start as zeros, and the powers correct for that.  What is the same for all weights is computed on the
host, in double precision.

Launch: as in `kernels.fast.elementwise`, 256 threads a block, four elements a thread.  n weights take 12 n
floating-point operations and move 28 n bytes: w, dw and both averages are read, and all but dw written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import check, check_shape
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, device, kernel, launch
from kernels.targets.shim import cuda


@device
def moved(average: float, number: float, share: float) -> float:
    return average + share * (number - average)


@kernel(block=BLOCK)
def adamw_update(
    w: Floats,
    dw: Floats,
    exp_avg: Floats,
    exp_avg_sq: Floats,
    n: int,
    kept: float,
    step: float,
    share1: float,
    share2: float,
    correction: float,
    epsilon: float,
) -> None:
    """One step of the weights and of both averages, four elements a thread.

    `kept` is the share of a weight that its decay leaves, `step` the rate corrected, `correction` the root's, `share1`
    and `share2` are 1 - beta1 and 1 - beta2: in single precision 1 - 0.999 would be wrong in its fifth digit.
    """
    weight = cuda.local.array(PER_THREAD, np.float32)
    mean = cuda.local.array(PER_THREAD, np.float32)
    square = cuda.local.array(PER_THREAD, np.float32)
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            weight[j] = w[e]
            mean[j] = moved(exp_avg[e], dw[e], share1)
            square[j] = moved(exp_avg_sq[e], dw[e] * dw[e], share2)
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            exp_avg[e] = mean[j]
            exp_avg_sq[e] = square[j]
            w[e] = kept * weight[j] - step * (mean[j] / (math.sqrt(square[j]) * correction + epsilon))
    else:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            if i + j * BLOCK < n:
                exp_avg[e] = moved(exp_avg[e], dw[e], share1)
                exp_avg_sq[e] = moved(exp_avg_sq[e], dw[e] * dw[e], share2)
                w[e] = kept * w[e] - step * (exp_avg[e] / (math.sqrt(exp_avg_sq[e]) * correction + epsilon))


def update(
    w: Any,
    dw: Any,
    exp_avg: Any,
    exp_avg_sq: Any,
    *,
    iteration: int,
    rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    decay: float = 0.0,
    stream: Any = None,
) -> None:
    """Step `iteration`, counted from 0: w and both averages (zeros before the first step) are changed in place."""
    check("adamw.update", w=w, dw=dw, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)
    for name, array in (("dw", dw), ("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)):
        check_shape("adamw.update", name, array, w.shape)
    step = rate / (1 - beta1 ** (iteration + 1))
    correction = 1 / math.sqrt(1 - beta2 ** (iteration + 1))
    numbers = 1 - rate * decay, step, 1 - beta1, 1 - beta2, correction, epsilon
    launch(adamw_update, tiles(size(w)), w, dw, exp_avg, exp_avg_sq, size(w), *numbers, stream=stream)
