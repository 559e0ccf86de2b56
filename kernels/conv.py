"""Convolution: y[n, k, p, q] = Σ over c, r, s of w[k, c, r, s] · x[n, c, p·stride + r - pad, q·stride + s - pad].

x has n images of c channels, w has k filters of r × s weights a channel, y has p × q outputs a filter.  Positions
outside of the image count as zero.  `grouped` has groups and dilation.

Rungs:
    kernels.fast.conv.implicit_gemm    a matrix product, whose columns are read where they are
    kernels.fast.conv.im2col           a matrix product, of columns that are written out
    kernels.fast.conv.winograd         3 × 3 filters with 16 multiplications for 36
    kernels.fast.cpu.vector_direct     for a processor: channels side by side, a vector of filters at a time
"""

from importlib import import_module

import numpy as np
from numba import cuda

from kernels.index import unravel
from kernels.run import run, size


@cuda.jit
def conv_forward(x, w, y, stride, pad):
    """One thread an output: the sum over its filter's weights."""
    i = cuda.grid(1)
    if i < y.size:
        n, k, p, q = unravel(i, y.shape)
        total = np.float32(0)
        for c in range(w.shape[1]):
            for r in range(w.shape[2]):
                for s in range(w.shape[3]):
                    h = p * stride[0] + r - pad[0]
                    v = q * stride[1] + s - pad[1]
                    if 0 <= h < x.shape[2] and 0 <= v < x.shape[3]:
                        total += w[k, c, r, s] * x[n, c, h, v]
        y[n, k, p, q] = total


@cuda.jit
def conv_backward_data(dy, w, dx, stride, pad):
    """One thread an input: the sum over the outputs that read it, each times the weight between them."""
    i = cuda.grid(1)
    if i < dx.size:
        n, c, h, v = unravel(i, dx.shape)
        total = np.float32(0)
        for k in range(w.shape[0]):
            for r in range(w.shape[2]):
                up = h + pad[0] - r
                p = up // stride[0]
                if up % stride[0] == 0 and 0 <= p < dy.shape[2]:
                    for s in range(w.shape[3]):
                        left = v + pad[1] - s
                        q = left // stride[1]
                        if left % stride[1] == 0 and 0 <= q < dy.shape[3]:
                            total += w[k, c, r, s] * dy[n, k, p, q]
        dx[n, c, h, v] = total


@cuda.jit
def conv_backward_filter(x, dy, dw, stride, pad):
    """One thread a weight: the sum over all outputs, each times the input that the weight was multiplied by."""
    i = cuda.grid(1)
    if i < dw.size:
        k, c, r, s = unravel(i, dw.shape)
        total = np.float32(0)
        for n in range(dy.shape[0]):
            for p in range(dy.shape[2]):
                for q in range(dy.shape[3]):
                    h = p * stride[0] + r - pad[0]
                    v = q * stride[1] + s - pad[1]
                    if 0 <= h < x.shape[2] and 0 <= v < x.shape[3]:
                        total += dy[n, k, p, q] * x[n, c, h, v]
        dw[k, c, r, s] = total


@cuda.jit
def conv_add_bias(b, y):
    """y[n, k, p, q] += b[k], one thread an output."""
    i = cuda.grid(1)
    if i < y.size:
        n, k, p, q = unravel(i, y.shape)
        y[n, k, p, q] += b[k]


@cuda.jit
def conv_backward_bias(dy, db):
    """db[k] = the sum of dy[n, k, p, q] over n, p and q, one thread a filter."""
    k = cuda.grid(1)
    if k < db.size:
        total = np.float32(0)
        for n in range(dy.shape[0]):
            for p in range(dy.shape[2]):
                for q in range(dy.shape[3]):
                    total += dy[n, k, p, q]
        db[k] = total


# --- Launching them --------------------------------------------------------------------------------------------------
# Padding may be (top, left, bottom, right): the last two are in y's size already.  `algorithm` and `workspace` are for
# the fast rungs.


def forward(x, w, b, y, stride=(1, 1), pad=(0, 0), dilation=(1, 1), algorithm=None, workspace=None, stream=None):
    if x.shape[1] == w.shape[1] and dilation == (1, 1):
        run(conv_forward, size(y), x, w, y, stride, pad[:2], stream=stream)
    else:
        import_module("kernels.grouped").forward(x, w, y, stride, pad[:2], dilation, stream)
    if b is not None:
        add_bias(b, y, stream)


def backward_data(dy, w, dx, stride=(1, 1), pad=(0, 0), dilation=(1, 1), algorithm=None, workspace=None, stream=None):
    if dx.shape[1] == w.shape[1] and dilation == (1, 1):
        run(conv_backward_data, size(dx), dy, w, dx, stride, pad[:2], stream=stream)
    else:
        import_module("kernels.grouped").backward_data(dy, w, dx, stride, pad[:2], dilation, stream)


def backward_filter(x, dy, dw, stride=(1, 1), pad=(0, 0), dilation=(1, 1), algorithm=None, workspace=None, stream=None):
    if x.shape[1] == dw.shape[1] and dilation == (1, 1):
        run(conv_backward_filter, size(dw), x, dy, dw, stride, pad[:2], stream=stream)
    else:
        import_module("kernels.grouped").backward_filter(x, dy, dw, stride, pad[:2], dilation, stream)


def add_bias(b, y, stream=None):
    run(conv_add_bias, size(y), b, y, stream=stream)


def backward_bias(dy, db, stream=None):
    run(conv_backward_bias, size(db), dy, db, stream=stream)
