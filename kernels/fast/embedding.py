"""Embedding: a token's row of a learnt table, as the channels of its place, and the gradient of the table.

    forward     y[n, c, t] = w[tokens[n, t], c]
    backward    dw[v, c] = the sum of dy[n, c, t] over all places (n, t) whose token is v; 0 without any

tokens are int32; w has a row of C numbers a token, (V, C), or (V, C, 1, 1): the filters of a 1×1 convolution, which may
share them.  A token that is no row gives NaN, and no gradient; one of padding has a row and no gradient.

Forward: a block takes 32 tokens and 32 channels through shared memory, since rows of w go along the channels and rows
of y along the tokens: it reads and writes 128 bytes at a time.  Backward, without atomics: one block sorts the places
by token, four bits at a time and each time keeping the order of equals (a radix sort); then of each token's places,
which are neighbours now, the first one's blocks add up the gradients of all, in ascending order, one thread a channel.
So the order of every sum follows from the tokens alone.

No operations forward, one a number of dy backward.  Bytes: forward 8 a number of y; backward 4 a number of dy, and 4 a
number of the table (12 where it has a gradient already, which is added to).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.checks.arguments import KernelError, as_ints, check, flat
from kernels.fast import elementwise
from kernels.fast.elementwise import size
from kernels.targets.launch import Floats, Ints, ceil_div, kernel, launch
from kernels.targets.shim import cuda

THREADS = 256
TILE, PADDED = 32, 33  #: tokens and channels of a block, forward; and the rows of its tile, in four-byte banks
LANES = 64  #: channels of a block, backward
DIGIT = 16  #: numbers that four bits can have
COUNTS = DIGIT * THREADS
ZERO = np.float32(0)


@kernel(block=THREADS)
def embedding_forward(
    tokens: Ints, w: Floats, y: Floats, words: int, channels: int, area: int, tiles: int
) -> None:  # fmt: skip
    """Block (i, j): 32 tokens of image i // tiles, and the 32 channels from 32 j on."""
    tile = cuda.shared.array((TILE, PADDED), np.float32)
    t = np.int64(cuda.threadIdx.x)
    image = np.int64(cuda.blockIdx.x) // tiles
    first = (np.int64(cuda.blockIdx.x) - image * tiles) * TILE
    start = np.int64(cuda.blockIdx.y) * TILE
    lane = t % TILE
    for row in range(t // TILE, TILE, THREADS // TILE):
        if first + row < area and start + lane < channels:
            word = np.int64(tokens[np.uint32(image * area + first + row)])
            if word >= 0 and word < words:
                tile[np.uint32(row), np.uint32(lane)] = w[np.uint32(word * channels + start + lane)]
            else:
                tile[np.uint32(row), np.uint32(lane)] = ZERO / ZERO  # NaN
    cuda.syncthreads()
    for row in range(t // TILE, TILE, THREADS // TILE):
        if first + lane < area and start + row < channels:
            e = np.uint32((image * channels + start + row) * area + first + lane)
            y[e] = tile[np.uint32(lane), np.uint32(row)]


@kernel(block=THREADS)
def embedding_sort(tokens: Ints, order: Ints, places: int, words: int, passes: int) -> None:
    """One block: the places in the order of their tokens, in one of the two halves of `order`.

    Thread t takes the t-th part of the places.  A number that is no token comes after all tokens.
    """
    counts = cuda.shared.array(COUNTS, np.int32)
    sums = cuda.shared.array(THREADS, np.int32)
    t = np.int64(cuda.threadIdx.x)
    part = (places + THREADS - 1) // THREADS
    begin, end = min(t * part, places), min((t + 1) * part, places)
    for p in range(passes):
        source = (p + 1) % 2 * places
        target = p % 2 * places
        shift = 4 * p
        for digit in range(DIGIT):
            counts[np.uint32(digit * THREADS + t)] = 0
        for i in range(begin, end):
            place = i if p == 0 else np.int64(order[np.uint32(source + i)])
            word = np.int64(tokens[np.uint32(place)])
            word = words if word < 0 or word > words else word
            counts[np.uint32((word >> shift) % DIGIT * THREADS + t)] += 1
        cuda.syncthreads()
        total = 0
        for k in range(DIGIT):
            total += counts[np.uint32(DIGIT * t + k)]
        sums[np.uint32(t)] = total
        cuda.syncthreads()
        if t == 0:
            before = 0
            for k in range(THREADS):
                here = sums[np.uint32(k)]
                sums[np.uint32(k)] = before
                before += here
        cuda.syncthreads()
        before = sums[np.uint32(t)]
        for k in range(DIGIT):
            here = counts[np.uint32(DIGIT * t + k)]
            counts[np.uint32(DIGIT * t + k)] = before
            before += here
        cuda.syncthreads()
        for i in range(begin, end):
            place = i if p == 0 else np.int64(order[np.uint32(source + i)])
            word = np.int64(tokens[np.uint32(place)])
            word = words if word < 0 or word > words else word
            at = np.uint32((word >> shift) % DIGIT * THREADS + t)
            order[np.uint32(target + counts[at])] = place
            counts[at] += 1
        cuda.syncthreads()


@kernel(block=LANES)
def embedding_backward(
    tokens: Ints, order: Ints, dy: Floats, dw: Floats, places: int, words: int, channels: int, area: int,
    padding: int, added: int,
) -> None:  # fmt: skip
    """Block (i, j): 64 channels of the i-th place's token, if that is its first place in `order`; else nothing."""
    here = np.int64(cuda.blockIdx.x)
    c = np.int64(cuda.blockIdx.y) * LANES + cuda.threadIdx.x
    place = np.int64(order[np.uint32(here)])
    word = np.int64(tokens[np.uint32(place)])
    alone = word >= 0 and word < words and word != padding
    if here > 0:
        alone = alone and np.int64(tokens[np.uint32(order[np.uint32(here - 1)])]) != word
    if alone and c < channels:
        total = dw[np.uint32(word * channels + c)] if added else ZERO
        found = word
        while found == word:
            image = place // area
            total += dy[np.uint32((image * channels + c) * area + place - image * area)]
            here += 1
            found = np.int64(-1)
            if here < places:
                place = np.int64(order[np.uint32(here)])
                found = np.int64(tokens[np.uint32(place)])
        dw[np.uint32(word * channels + c)] = total


def workspace_bytes(tokens_shape: tuple[int, ...]) -> int:
    """Of `backward`: two whole numbers a place."""
    return 8 * math.prod(tokens_shape)


def forward(tokens: Any, w: Any, y: Any, *, stream: Any = None) -> None:
    """Fill y, (N, C, T, …), by the tokens, (N, T, …)."""
    words, channels, area = _sizes("embedding.forward", tokens, "w", w, "y", y)
    tiles = ceil_div(area, TILE)
    grid = tokens.shape[0] * tiles, ceil_div(channels, TILE)
    launch(embedding_forward, grid, tokens, w, y, words, channels, area, tiles, stream=stream)


def backward(
    tokens: Any, dy: Any, dw: Any, *, added: bool = False, padding: int | None = None, workspace: Any,
    stream: Any = None,
) -> None:  # fmt: skip
    """Fill dw, or with `added` add to it; the row of `padding` gets no gradient."""
    where = "embedding.backward"
    words, channels, area = _sizes(where, tokens, "dw", dw, "dy", dy)
    check(where, workspace=workspace)
    needed, places = workspace_bytes(tokens.shape), size(tokens)
    if 4 * size(workspace) < needed:
        raise KernelError(f"{where}: workspace has {4 * size(workspace)} bytes; give {needed}")
    if not added:
        elementwise.fill(dw, 0.0, stream=stream)
    order, passes = as_ints(flat(workspace)[: needed // 4]), ceil_div(words.bit_length(), 4)
    launch(embedding_sort, 1, tokens, order, places, words, passes, stream=stream)
    found = order[(passes - 1) % 2 * places :][:places]
    grid = places, ceil_div(channels, LANES)
    if padding is not None and not 0 <= padding < words:
        raise KernelError(f"{where}: padding is {padding}; give one of the {words} rows of dw")
    sizes = places, words, channels, area, -1 if padding is None else padding, int(added)
    launch(embedding_backward, grid, tokens, found, dy, dw, *sizes, stream=stream)


def _sizes(where: str, tokens: Any, table_name: str, w: Any, name: str, y: Any) -> tuple[int, int, int]:
    """Rows of the table, channels, and places of an image."""
    check(where, dtype=np.int32, tokens=tokens)
    check(where, **{table_name: w, name: y})
    if len(w.shape) < 2 or math.prod(w.shape[2:]) != 1:
        raise KernelError(f"{where}: {table_name} has shape {tuple(w.shape)}; give (tokens, channels)")
    images, area = tokens.shape[0], math.prod(tokens.shape[1:])
    if y.shape[:2] != (images, w.shape[1]) or math.prod(y.shape[2:]) != area:
        raise KernelError(
            f"{where}: {name} has shape {tuple(y.shape)}; tokens {tuple(tokens.shape)} and {table_name} "
            f"{tuple(w.shape)} make {(images, w.shape[1], area)}"
        )
    return int(w.shape[0]), int(w.shape[1]), area
