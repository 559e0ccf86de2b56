"""Stochastic depth: all of an image's maps are set to zero with a probability, or else scaled.

Image n is dropped if the first word of dropout's generator for counter (n, layer, iteration) is below the threshold.
"""

import numpy as np
from numba import cuda

from kernels.dropout import philox
from kernels.run import run, shaped

ZERO = np.float32(0)


@cuda.jit
def drop_path_apply(x, y, threshold, scale, seed, layer, iteration):
    """One thread a value.  Seed and iteration are two words each."""
    i, n = cuda.grid(2)
    if n < x.shape[0] and i < x.shape[1]:
        word, _, _, _ = philox(
            np.uint32(n), np.uint32(layer), np.uint32(iteration[0]), np.uint32(iteration[1]),
            np.uint32(seed[0]), np.uint32(seed[1]),
        )  # fmt: skip
        y[n, i] = x[n, i] * (scale if word >= threshold else ZERO)


# --- Launching it ----------------------------------------------------------------------------------------------------


def forward(x, y, *, probability, seed, layer, iteration, stream=None):
    x, y = shaped(x, (x.shape[0], -1)), shaped(y, (y.shape[0], -1))
    numbers = int(probability * 2**32), 1 / (1 - probability), divmod(seed, 2**32)[::-1], layer
    run(drop_path_apply, x.shape[::-1], x, y, *numbers, divmod(iteration, 2**32)[::-1], stream=stream)


def backward(dy, dx, *, probability, seed, layer, iteration, stream=None):
    forward(dy, dx, probability=probability, seed=seed, layer=layer, iteration=iteration, stream=stream)
