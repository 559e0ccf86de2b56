"""Dropout: each element is set to zero with a probability p, or else multiplied by 1 / (1 - p); the gradient likewise.

No mask is stored.  It follows from a seed, the layer's number, the iteration and the element's index alone, through
the counter-based generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
SC 2011): a keyed mixing of a counter into four random words.  So backward makes the mask of forward again, and a
layer that is recomputed drops the same elements.

    key      the seed's low and high 32 bits
    counter  (group, layer, the iteration's low and high 32 bits)
    element  i belongs to group i // 1024 · 256 + i % 256 and takes its word i // 256 % 4; it stays if word >= p · 2**32

Launch: as in `kernels.fast.elementwise`, 256 threads a block, four elements a thread, 256 apart: just those of one
group, so that a thread needs one call of Philox.  n elements take n floating-point operations, about 30 n integer ones,
and move 8 n bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast.elementwise import BLOCK, PER_THREAD, TILE, size, tiles
from kernels.targets.launch import Floats, device, kernel, launch
from kernels.targets.shim import cuda

ZERO = np.float32(0)
ROUNDS = 10
MULTIPLIER_0 = np.uint64(0xD2511F53)
MULTIPLIER_1 = np.uint64(0xCD9E8D57)
WEYL_0 = np.uint32(0x9E3779B9)  # added to the key after every round: the golden ratio
WEYL_1 = np.uint32(0xBB67AE85)  # and the square root of 3, less 1
HALF = np.uint64(32)


@device
def philox(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Four random words (uint32) from a counter of four words and a key of two."""
    for _ in range(ROUNDS):
        # Both products have all 64 bits: the high halves are what mixes.
        first = MULTIPLIER_0 * np.uint64(c0)
        second = MULTIPLIER_1 * np.uint64(c2)
        c0 = np.uint32(np.uint32(second >> HALF) ^ c1 ^ k0)
        c1 = np.uint32(second)
        c2 = np.uint32(np.uint32(first >> HALF) ^ c3 ^ k1)
        c3 = np.uint32(first)
        k0 = np.uint32(k0 + WEYL_0)
        k1 = np.uint32(k1 + WEYL_1)
    return c0, c1, c2, c3


@kernel(block=BLOCK)
def dropout_apply(
    x: Floats,
    y: Floats,
    n: int,
    threshold: int,
    scale: float,
    seed_low: int,
    seed_high: int,
    layer: int,
    iteration_low: int,
    iteration_high: int,
) -> None:
    """Four elements a thread, masked by the four words of one Philox call."""
    value = cuda.local.array(PER_THREAD, np.float32)
    word = cuda.local.array(PER_THREAD, np.uint32)
    tile = cuda.blockIdx.x * TILE
    i = tile + cuda.threadIdx.x
    word[0], word[1], word[2], word[3] = philox(
        np.uint32(cuda.grid(1)),
        np.uint32(layer),
        np.uint32(iteration_low),
        np.uint32(iteration_high),
        np.uint32(seed_low),
        np.uint32(seed_high),
    )
    if tile + TILE <= n:
        for j in range(PER_THREAD):
            value[j] = x[np.uint32(i + j * BLOCK)]
        for j in range(PER_THREAD):
            y[np.uint32(i + j * BLOCK)] = value[j] * scale if word[j] >= np.uint32(threshold) else ZERO
    else:
        for j in range(PER_THREAD):
            e = np.uint32(i + j * BLOCK)
            if i + j * BLOCK < n:
                y[e] = x[e] * scale if word[j] >= np.uint32(threshold) else ZERO


def forward(x: Any, y: Any, *, probability: float, seed: int, layer: int, iteration: int, stream: Any = None) -> None:
    """y = x with elements dropped and the others scaled; y may be x."""
    check("dropout.forward", x=x, y=y)
    check_shape("dropout.forward", "y", y, x.shape)
    _apply("dropout.forward", x, y, probability, seed, layer, iteration, stream)


def backward(
    dy: Any, dx: Any, *, probability: float, seed: int, layer: int, iteration: int, stream: Any = None
) -> None:
    """dx = dy with the elements dropped and scaled that forward dropped and scaled; dx may be dy."""
    check("dropout.backward", dy=dy, dx=dx)
    check_shape("dropout.backward", "dx", dx, dy.shape)
    _apply("dropout.backward", dy, dx, probability, seed, layer, iteration, stream)


def checked_draw(where: str, probability: float, seed: int, layer: int, iteration: int) -> tuple[float, ...]:
    """What a kernel needs to draw: threshold, scale, and the words of the seed, the layer and the iteration."""
    if not 0 <= probability < 1:
        raise KernelError(f"{where}: probability is {probability}; it must be at least 0 and below 1")
    for name, number, bits in (("seed", seed, 64), ("layer", layer, 32), ("iteration", iteration, 64)):
        if not 0 <= number < 2**bits:
            raise KernelError(f"{where}: {name} is {number}; it must be at least 0 and below 2**{bits}")
    threshold, scale = int(probability * 2**32), 1 / (1 - probability)
    return threshold, scale, seed % 2**32, seed // 2**32, layer, iteration % 2**32, iteration // 2**32


def _apply(where: str, x: Any, y: Any, probability: float, seed: int, layer: int, iteration: int, stream: Any) -> None:
    draw = checked_draw(where, probability, seed, layer, iteration)
    launch(dropout_apply, tiles(size(x)), x, y, size(x), *draw, stream=stream)
