"""Fully connected layers: every output is a weighted sum of all inputs, y = x·wᵀ + b, and the gradients.

**Computed.** x is (batch, in), or (batch, ...) with the rest flattened; w is (out, in), b (out,), y (batch, out):

    forward           y = x·wᵀ + b          backward_data     dx = dy·w
    backward_filter   dw = dyᵀ·x            backward_bias     db = the sum of dy over the batch, in ascending order

**Launch.** The products are `gemm`'s.  `algorithm=None` takes `skinny` for up to 32 rows of the result, which is what
a small batch gives forward and backward_data, and the best rung otherwise.  Bias and its gradient have one thread an
output.

**Cost.** 2·batch·in·out floating-point operations each, and 4·in·out bytes of weights, which at a small batch are
nearly all that moves: the layer is as fast as w can be read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape, flat
from kernels.fast import gemm
from kernels.targets.launch import Floats, ceil_div, kernel, launch
from kernels.targets.shim import cuda

PASSES = ("forward", "backward_data", "backward_filter")
FEW_ROWS = 32  #: `skinny` is taken up to this number of rows of the result
ZERO = np.float32(0)


@kernel(block=256)
def fc_add_bias(b: Floats, y: Floats, outputs: int, size: int) -> None:
    """y[i, j] += b[j]."""
    i = cuda.grid(1)
    if i < size:
        y[np.uint32(i)] += b[np.uint32(i) % np.uint32(outputs)]


@kernel(block=64)
def fc_backward_bias(dy: Floats, db: Floats, outputs: int, batch: int) -> None:
    """db[j] = sum of dy[i, j] over i: neighbouring threads read neighbouring columns.

    The barriers keep the threads in one row, two rows at a time: a CPU then adds 16 columns with one instruction.
    """
    sums = cuda.shared.array(64, np.float32)
    t = np.int64(cuda.threadIdx.x)
    first = np.int64(cuda.blockIdx.x) * 64
    there = min(outputs - first, np.int64(64))
    sums[np.uint32(t)] = ZERO
    cuda.syncthreads()
    for i in range(0, batch - 1, 2):
        if t < there:
            upper = dy[np.uint32(i * outputs + first + t)]
            sums[np.uint32(t)] = (sums[np.uint32(t)] + upper) + dy[np.uint32((i + 1) * outputs + first + t)]
        cuda.syncthreads()
    if t < there:
        total = sums[np.uint32(t)]
        if batch % 2 == 1:
            total += dy[np.uint32((batch - 1) * outputs + first + t)]
        db[np.uint32(first + t)] = total


def algorithm_for(pass_: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> str:
    """The rung of `gemm` that `algorithm=None` stands for: it follows from the shape alone."""
    m, _, _ = _sizes("fc.algorithm_for", pass_, x_shape, w_shape)
    return "skinny" if m <= FEW_ROWS else gemm.BEST


def workspace_bytes(
    pass_: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...], algorithm: str | None = None
) -> int:
    """Bytes of workspace that a pass wants; without one it gives the same result, slower."""
    m, n, k = _sizes("fc.workspace_bytes", pass_, x_shape, w_shape)
    return gemm.workspace_bytes(m, n, k, algorithm or algorithm_for(pass_, x_shape, w_shape))


def forward(
    x: Any, w: Any, b: Any, y: Any, *, algorithm: str | None = None, workspace: Any = None, stream: Any = None
) -> None:
    """y = x·wᵀ + b; b may be None."""
    batch, inputs, outputs = _check("fc.forward", x, w, y, b=b)
    chosen = algorithm or algorithm_for("forward", x.shape, w.shape)
    gemm.strided(
        flat(x), flat(w), flat(y), m=batch, n=outputs, k=inputs, lda=inputs, ldb=inputs, ldc=outputs, trans_b=True,
        algorithm=chosen, workspace=workspace, stream=stream,
    )  # fmt: skip
    if b is not None:
        launch(fc_add_bias, ceil_div(batch * outputs, 256), b, y, outputs, batch * outputs, stream=stream)


def backward_data(
    dy: Any, w: Any, dx: Any, *, algorithm: str | None = None, workspace: Any = None, stream: Any = None
) -> None:
    """dx = dy·w; dx has x's shape."""
    batch, inputs, outputs = _check("fc.backward_data", dx, w, dy, x_name="dx", y_name="dy")
    chosen = algorithm or algorithm_for("backward_data", dx.shape, w.shape)
    gemm.strided(
        flat(dy), flat(w), flat(dx), m=batch, n=inputs, k=outputs, lda=outputs, ldb=inputs, ldc=inputs,
        algorithm=chosen, workspace=workspace, stream=stream,
    )  # fmt: skip


def backward_filter(
    x: Any, dy: Any, dw: Any, *, algorithm: str | None = None, workspace: Any = None, stream: Any = None
) -> None:
    """dw = dyᵀ·x, the gradient of the weights."""
    batch, inputs, outputs = _check("fc.backward_filter", x, dw, dy, w_name="dw", y_name="dy")
    chosen = algorithm or algorithm_for("backward_filter", x.shape, dw.shape)
    gemm.strided(
        flat(dy), flat(x), flat(dw), m=outputs, n=inputs, k=batch, lda=outputs, ldb=inputs, ldc=inputs, trans_a=True,
        algorithm=chosen, workspace=workspace, stream=stream,
    )  # fmt: skip


def backward_bias(dy: Any, db: Any, *, stream: Any = None) -> None:
    """db = the sum of dy over the batch."""
    where = "fc.backward_bias"
    check(where, dy=dy, db=db)
    if dy.ndim != 2:
        raise KernelError(f"{where}: dy has shape {tuple(dy.shape)}, expected (batch, out)")
    batch, outputs = dy.shape
    check_shape(where, "db", db, (outputs,))
    launch(fc_backward_bias, ceil_div(outputs, 64), dy, db, outputs, batch, stream=stream)


def _sizes(where: str, pass_: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """m, n and k of the pass's product."""
    if pass_ not in PASSES:
        raise KernelError(f"{where}: no pass {pass_!r}; there are {', '.join(PASSES)}")
    if len(x_shape) < 2 or len(w_shape) != 2 or math.prod(x_shape[1:]) != w_shape[1]:
        raise KernelError(f"{where}: x is {tuple(x_shape)} and w {tuple(w_shape)}, expected (batch, in) and (out, in)")
    batch, inputs, outputs = x_shape[0], w_shape[1], w_shape[0]
    return {
        "forward": (batch, outputs, inputs),
        "backward_data": (batch, inputs, outputs),
        "backward_filter": (outputs, inputs, batch),
    }[pass_]


def _check(
    where: str, x: Any, w: Any, y: Any, *, b: Any = None, x_name: str = "x", w_name: str = "w", y_name: str = "y"
) -> tuple[int, int, int]:
    """Checks arrays in the places of x, w and y; returns (batch, in, out)."""
    check(where, **{x_name: x, w_name: w, "b": b, y_name: y})
    if x.ndim < 2 or w.ndim != 2:
        shapes = f"{x_name} has shape {tuple(x.shape)} and {w_name} {tuple(w.shape)}"
        raise KernelError(f"{where}: {shapes}, expected (batch, in) and (out, in)")
    batch, inputs, outputs = x.shape[0], math.prod(x.shape[1:]), w.shape[0]
    check_shape(where, w_name, w, (outputs, inputs))
    check_shape(where, "b", b, (outputs,))
    check_shape(where, y_name, y, (batch, outputs))
    return batch, inputs, outputs
