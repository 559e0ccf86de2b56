"""The kernels of the page on the emulated GPU: one that is right, one with a fault, and two of one name."""

from kernels.targets.shim import cuda


@cuda.jit
def double(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = 2 * x[i]


@cuda.jit
def one_too_many(x, y, n):
    i = cuda.grid(1)
    if i <= n:
        y[i] = 2 * x[i]


def filling(number):
    @cuda.jit
    def fill(y):
        y[cuda.grid(1)] = number

    return fill
