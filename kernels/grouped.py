"""Convolution with groups and dilation: as `conv`, with two more parameters.

The channels and the filters are cut into groups of equal size: filter k reads the w.shape[1] channels of its group,
which begin at `first`.  Neighbouring weights are `dilation` rows and columns apart:

    y[n, k, p, q] = Σ over c, r, s of w[k, c, r, s] · x[n, first + c, p·stride + r·dilation - pad, q·…]

Rungs:
    kernels.fast.conv.grouped    32-bit indices, and kernels of their own for a filter a channel
"""

import numpy as np
from numba import cuda

from kernels.index import unravel
from kernels.run import run, size


@cuda.jit
def grouped_forward(x, w, y, groups, stride, pad, dilation):
    """One thread an output: the sum over its filter's weights."""
    i = cuda.grid(1)
    if i < y.size:
        n, k, p, q = unravel(i, y.shape)
        first = k // (w.shape[0] // groups) * w.shape[1]
        total = np.float32(0)
        for c in range(w.shape[1]):
            for r in range(w.shape[2]):
                for s in range(w.shape[3]):
                    h = p * stride[0] + r * dilation[0] - pad[0]
                    v = q * stride[1] + s * dilation[1] - pad[1]
                    if 0 <= h < x.shape[2] and 0 <= v < x.shape[3]:
                        total += w[k, c, r, s] * x[n, first + c, h, v]
        y[n, k, p, q] = total


@cuda.jit
def grouped_backward_data(dy, w, dx, groups, stride, pad, dilation):
    """One thread an input: the sum over the outputs that read it, each times the weight between them."""
    i = cuda.grid(1)
    if i < dx.size:
        n, channel, h, v = unravel(i, dx.shape)
        filters = w.shape[0] // groups
        first, c = channel // w.shape[1] * filters, channel % w.shape[1]
        total = np.float32(0)
        for k in range(first, first + filters):
            for r in range(w.shape[2]):
                up = h + pad[0] - r * dilation[0]
                p = up // stride[0]
                if up % stride[0] == 0 and 0 <= p < dy.shape[2]:
                    for s in range(w.shape[3]):
                        left = v + pad[1] - s * dilation[1]
                        q = left // stride[1]
                        if left % stride[1] == 0 and 0 <= q < dy.shape[3]:
                            total += w[k, c, r, s] * dy[n, k, p, q]
        dx[n, channel, h, v] = total


@cuda.jit
def grouped_backward_filter(x, dy, dw, groups, stride, pad, dilation):
    """One thread a weight: the sum over all outputs, each times the input that the weight was multiplied by."""
    i = cuda.grid(1)
    if i < dw.size:
        k, c, r, s = unravel(i, dw.shape)
        channel = k // (dw.shape[0] // groups) * dw.shape[1] + c
        total = np.float32(0)
        for n in range(dy.shape[0]):
            for p in range(dy.shape[2]):
                for q in range(dy.shape[3]):
                    h = p * stride[0] + r * dilation[0] - pad[0]
                    v = q * stride[1] + s * dilation[1] - pad[1]
                    if 0 <= h < x.shape[2] and 0 <= v < x.shape[3]:
                        total += dy[n, k, p, q] * x[n, channel, h, v]
        dw[k, c, r, s] = total


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, w, y, stride, pad, dilation, stream=None):
    run(grouped_forward, size(y), x, w, y, x.shape[1] // w.shape[1], stride, pad, dilation, stream=stream)


def backward_data(dy, w, dx, stride, pad, dilation, stream=None):
    run(grouped_backward_data, size(dx), dy, w, dx, dx.shape[1] // w.shape[1], stride, pad, dilation, stream=stream)


def backward_filter(x, dy, dw, stride, pad, dilation, stream=None):
    run(grouped_backward_filter, size(dw), x, dy, dw, x.shape[1] // dw.shape[1], stride, pad, dilation, stream=stream)
