"""Products: y = x · g, where the gate g has x's shape, or one number a map.

dx = dy · g,   dg = dy · x, or the sum of this over the map

Rungs:
    kernels.fast.mul    the gradient of a gate of one number a map has a block a map
"""

import numpy as np
from numba import cuda

from kernels.run import flat, run, shaped, size


@cuda.jit
def mul_forward(x, gate, y):
    """One thread a value."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] * gate[i]


@cuda.jit
def mul_backward(x, gate, dy, dx, dgate):
    """One thread a value; dx may be dy."""
    i = cuda.grid(1)
    if i < x.size:
        dgate[i] = dy[i] * x[i]
        dx[i] = dy[i] * gate[i]


@cuda.jit
def mul_gate_forward(x, gate, y):
    """One thread a value; m is the number of the map."""
    i, m = cuda.grid(2)
    if m < x.shape[0] and i < x.shape[1]:
        y[m, i] = x[m, i] * gate[m]


@cuda.jit
def mul_gate_backward(x, gate, dy, dx, dgate):
    """One thread a map; dx may be dy."""
    m = cuda.grid(1)
    if m < x.shape[0]:
        total = np.float32(0)
        for i in range(x.shape[1]):
            total += dy[m, i] * x[m, i]
            dx[m, i] = dy[m, i] * gate[m]
        dgate[m] = total


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, gate, y, *, stream=None):
    if size(gate) == size(x):
        return run(mul_forward, size(x), flat(x), flat(gate), flat(y), stream=stream)
    x, y = shaped(x, (size(gate), -1)), shaped(y, (size(gate), -1))
    run(mul_gate_forward, x.shape[::-1], x, flat(gate), y, stream=stream)


def backward(x, gate, dy, dx, dgate, *, stream=None):
    if size(gate) == size(x):
        return run(mul_backward, size(x), flat(x), flat(gate), flat(dy), flat(dx), flat(dgate), stream=stream)
    x, dy, dx = (shaped(array, (size(gate), -1)) for array in (x, dy, dx))
    run(mul_gate_backward, x.shape[0], x, flat(gate), dy, dx, flat(dgate), stream=stream)
