"""Element by element: fill, copy, y += alpha · x, and the sum of two.

Rungs:
    kernels.fast.elementwise    four elements a thread
"""

from numba import cuda

from kernels.run import flat, run, size


@cuda.jit
def elementwise_fill(value, x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = value


@cuda.jit
def elementwise_copy(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


@cuda.jit
def elementwise_axpy(alpha, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += alpha * x[i]


@cuda.jit
def elementwise_add(a, b, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = a[i] + b[i]


# --- Launching them --------------------------------------------------------------------------------------------------


def fill(x, value, *, stream=None):
    run(elementwise_fill, size(x), float(value), flat(x), stream=stream)


def copy(x, y, *, stream=None):
    run(elementwise_copy, size(x), flat(x), flat(y), stream=stream)


def axpy(alpha, x, y, *, stream=None):
    run(elementwise_axpy, size(x), float(alpha), flat(x), flat(y), stream=stream)
