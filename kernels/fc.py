"""A fully connected layer: y[n, o] = b[o] + Σ over i of x[n, i] · w[o, i].

Rungs:
    kernels.fast.fc      by the products below
    kernels.fast.gemm    a ladder of matrix products: tiles in shared memory, then in registers
"""

import numpy as np
from numba import cuda

from kernels.run import run, shaped, size


@cuda.jit
def fc_forward(x, w, y):
    """One thread an output: y[n, o] = Σ over i of x[n, i] · w[o, i]."""
    o, n = cuda.grid(2)
    if n < y.shape[0] and o < y.shape[1]:
        total = np.float32(0)
        for i in range(w.shape[1]):
            total += x[n, i] * w[o, i]
        y[n, o] = total


@cuda.jit
def fc_backward_data(dy, w, dx):
    """One thread an input: dx[n, i] = Σ over o of dy[n, o] · w[o, i]."""
    i, n = cuda.grid(2)
    if n < dx.shape[0] and i < dx.shape[1]:
        total = np.float32(0)
        for o in range(w.shape[0]):
            total += dy[n, o] * w[o, i]
        dx[n, i] = total


@cuda.jit
def fc_backward_filter(x, dy, dw):
    """One thread a weight: dw[o, i] = Σ over n of dy[n, o] · x[n, i]."""
    i, o = cuda.grid(2)
    if o < dw.shape[0] and i < dw.shape[1]:
        total = np.float32(0)
        for n in range(x.shape[0]):
            total += dy[n, o] * x[n, i]
        dw[o, i] = total


@cuda.jit
def fc_add_bias(b, y):
    """y[n, o] += b[o]."""
    o, n = cuda.grid(2)
    if n < y.shape[0] and o < y.shape[1]:
        y[n, o] += b[o]


@cuda.jit
def fc_backward_bias(dy, db):
    """One thread an output: db[o] = Σ over n of dy[n, o]."""
    o = cuda.grid(1)
    if o < db.size:
        total = np.float32(0)
        for n in range(dy.shape[0]):
            total += dy[n, o]
        db[o] = total


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, w, b, y, *, algorithm=None, workspace=None, stream=None):
    run(fc_forward, y.shape[::-1], shaped(x, (x.shape[0], -1)), w, y, stream=stream)
    if b is not None:
        run(fc_add_bias, y.shape[::-1], b, y, stream=stream)


def backward_data(dy, w, dx, *, algorithm=None, workspace=None, stream=None):
    rows = shaped(dx, (dx.shape[0], -1))
    run(fc_backward_data, rows.shape[::-1], dy, w, rows, stream=stream)


def backward_filter(x, dy, dw, *, algorithm=None, workspace=None, stream=None):
    run(fc_backward_filter, dw.shape[::-1], shaped(x, (x.shape[0], -1)), dy, dw, stream=stream)


def backward_bias(dy, db, *, stream=None):
    run(fc_backward_bias, size(db), dy, db, stream=stream)
