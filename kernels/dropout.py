"""Dropout: an element is set to zero with a probability, or else scaled; its random word follows from its index.

Philox4x32-10 (Salmon and others, SC 2011) makes four random words of a counter and a key: element i takes word
i // 256 % 4 of counter i // 1024 · 256 + i % 256, so that a thread with four elements 256 apart calls it once.

Rungs:
    kernels.fast.dropout    four elements a thread, of one call of Philox
"""

import numpy as np
from numba import cuda

from kernels.run import flat, run, size

ZERO = np.float32(0)
MULTIPLIER_0, MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_0, WEYL_1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)  # added to the key after a round
WORD = np.uint64(32)  #: bits


@cuda.jit(device=True)
def philox(c0, c1, c2, c3, k0, k1):
    """Four random words (uint32) from a counter of four words and a key of two."""
    for _ in range(10):
        first, second = MULTIPLIER_0 * np.uint64(c0), MULTIPLIER_1 * np.uint64(c2)
        c0, c1 = np.uint32(np.uint32(second >> WORD) ^ c1 ^ k0), np.uint32(second)
        c2, c3 = np.uint32(np.uint32(first >> WORD) ^ c3 ^ k1), np.uint32(first)
        k0, k1 = np.uint32(k0 + WEYL_0), np.uint32(k1 + WEYL_1)
    return c0, c1, c2, c3


@cuda.jit
def dropout_apply(x, y, threshold, scale, seed, layer, iteration):
    """One thread an element: it stays if its word is at least the threshold.  Seed and iteration are two words each."""
    i = cuda.grid(1)
    if i < x.size:
        counter = i // 1024 * 256 + i % 256
        w0, w1, w2, w3 = philox(
            np.uint32(counter), np.uint32(layer), np.uint32(iteration[0]), np.uint32(iteration[1]),
            np.uint32(seed[0]), np.uint32(seed[1]),
        )  # fmt: skip
        turn = i // 256 % 4
        word = w0 if turn == 0 else w1 if turn == 1 else w2 if turn == 2 else w3
        y[i] = x[i] * scale if word >= threshold else ZERO


# --- Launching them --------------------------------------------------------------------------------------------------


def forward(x, y, *, probability, seed, layer, iteration, stream=None):
    numbers = int(probability * 2**32), 1 / (1 - probability), divmod(seed, 2**32)[::-1], layer
    run(dropout_apply, size(x), flat(x), flat(y), *numbers, divmod(iteration, 2**32)[::-1], stream=stream)


def backward(dy, dx, *, probability, seed, layer, iteration, stream=None):
    forward(dy, dx, probability=probability, seed=seed, layer=layer, iteration=iteration, stream=stream)
