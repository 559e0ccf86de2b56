"""ReLU by sign: forward keeps a bit an element, whether its gradient passes; backward needs that and dy alone.

    y = max(x, 0), at most a limit if there is one;   bit: 1 where y is above zero and below the limit, or not a number
    dx = dy where the bit is 1, else 0

32 bits are a whole number, the first the lowest: signs[k] has those of elements 32k to 32k + 31.
"""

import numpy as np
from numba import cuda

from kernels.index import smaller
from kernels.run import flat, run, size

ZERO = np.float32(0)
BITS = 32  #: of a whole number


@cuda.jit
def relu_sign_forward(x, y, signs, limit):
    """One thread a whole number: 32 elements of y, and their bits.  With a limit of 0 there is no limit."""
    k = cuda.grid(1)
    if k < signs.size:
        packed = 0
        for i in range(BITS * k, smaller(BITS * k + BITS, x.size)):
            value = ZERO if x[i] <= ZERO else limit if limit > ZERO and x[i] >= limit else x[i]
            y[i] = value
            if not (value <= ZERO or (limit > ZERO and value >= limit)):
                packed |= 1 << (i % BITS)
        signs[k] = packed - (packed >> (BITS - 1) << BITS)  # the highest bit makes it negative


@cuda.jit
def relu_sign_backward(signs, dy, dx):
    """One thread an element; dx may be dy."""
    i = cuda.grid(1)
    if i < dx.size:
        dx[i] = dy[i] if signs[i // BITS] >> (i % BITS) & 1 else ZERO


# --- Launching them --------------------------------------------------------------------------------------------------


def signs_shape(x_size):
    """The shape of the signs of a map of `x_size` elements."""
    return (-(-x_size // BITS),)


def forward(x, y, signs, *, at_most=None, stream=None):
    run(relu_sign_forward, size(signs), flat(x), flat(y), signs, float(at_most or 0), stream=stream)


def backward(signs, dy, dx, *, stream=None):
    run(relu_sign_backward, size(dx), signs, flat(dy), flat(dx), stream=stream)
