"""The last product of a language model, its softmax, loss and gradients by pieces of the tokens: see `kernels.pieces`.

products            `gemm`, on the piece's columns of h and dh; dw is added to by each piece (beta = 1)
softmax, gradient   those of `pixel_softmax`, on the piece
count, losses       one block of 256 threads, whose numbers meet in a tree; a piece's losses are added to its window's

A piece of a window's last tokens is shorter: its rows are then closer together.  A piece is written three times and
read six times, 36 bytes a logit.  No workspace is needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels import pieces as plain
from kernels.checks.arguments import check, check_shape, flat, shaped
from kernels.fast import gemm, pixel_softmax
from kernels.fast.conv import bias
from kernels.run import run
from kernels.targets.launch import Floats, Ints, ceil_div, kernel, launch
from kernels.targets.shim import cuda

THREADS = 256
ZERO, ONE = np.float32(0), np.float32(1)


@kernel(block=THREADS)
def pieces_count_by_block(labels: Ints, counted: Floats, size: int, ignored: int) -> None:
    """One block: the number of tokens that count."""
    counts = cuda.shared.array(THREADS, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    count = ZERO
    at = np.int64(t)
    while at < size:
        if np.int64(labels[np.uint32(at)]) != ignored:
            count += ONE
        at += THREADS
    counts[t] = count
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            counts[t] += counts[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        counted[0] = counts[0]


@kernel(block=THREADS)
def pieces_add_losses_by_block(
    shares: Floats, labels: Ints, losses: Floats, words: int, count: int, window: int, first: int, ignored: int
) -> None:
    """One block: the sum of the piece's losses; the first piece of a window starts its window's sum."""
    sums = cuda.shared.array(THREADS, np.float32)
    t = np.uint32(cuda.threadIdx.x)
    sum_ = ZERO
    at = np.int64(t)
    while at < count:
        label = np.int64(labels[np.uint32(at)])
        if label != ignored:
            if label >= 0 and label < words:
                sum_ -= math.log(shares[np.uint32(label * count + at)])
            else:
                sum_ = ZERO / ZERO  # NaN
        at += THREADS
    sums[t] = sum_
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            sums[t] += sums[np.uint32(t + half)]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        if first == 0:
            losses[np.uint32(window)] = sums[0]
        else:
            losses[np.uint32(window)] += sums[0]


@kernel(block=THREADS)
def pieces_mean_by_share(losses: Floats, counted: Floats, windows: int) -> None:
    """One thread a window: the sum becomes its share of the mean, rounded as in `pixel_softmax`."""
    n = cuda.grid(1)
    if n < windows:
        losses[np.uint32(n)] *= np.float32(windows) / counted[0]


def learn(
    x: Any, w: Any, b: Any, labels: Any, losses: Any, counted: Any, piece: Any, dx: Any, dw: Any, db: Any, *,
    ignore_index: int = -100, weight: float = 1.0, stream: Any = None,
) -> None:  # fmt: skip
    """Fill losses, counted, and of dx, dw and db those that are not None; `piece` has room for some tokens' logits."""
    where = "pieces.learn"
    check(where, x=x, w=w, b=b, losses=losses, counted=counted, piece=piece, dx=dx, dw=dw, db=db)
    check(where, dtype=np.int32, labels=labels)
    words, channels = w.shape[:2]
    windows, tokens = x.shape[0], math.prod(x.shape[2:])
    for name, array, shape in (
        ("x", x, (windows, channels, *x.shape[2:])), ("labels", labels, (windows, *x.shape[2:])), ("b", b, (words,)),
        ("losses", losses, (windows,)), ("counted", counted, (1,)), ("dx", dx, x.shape), ("dw", dw, w.shape),
        ("db", db, (words,)), ("piece", piece, (1, words, *piece.shape[2:])),
    ):  # fmt: skip
        check_shape(where, name, array, shape)
    h, matrix, wanted, room = flat(x), flat(w), flat(labels), flat(piece)
    here: dict[str, Any] = {"stream": stream}
    launch(pieces_count_by_block, 1, wanted, counted, windows * tokens, ignore_index, **here)
    for n, first, count in plain.places(labels, piece):
        start = n * channels * tokens + first
        rows = room[: words * count]
        logits, said = shaped(rows, (1, words, count, 1)), wanted[n * tokens + first : n * tokens + first + count]
        columns = h[start : (n + 1) * channels * tokens]
        gemm.strided(matrix, columns, rows, m=words, n=count, k=channels, lda=channels, ldb=tokens, ldc=count, **here)
        if b is not None:
            bias.add_bias(b, logits, stream)
        pixel_softmax.forward(logits, logits, **here)
        sizes = words, count, n, first, ignore_index
        launch(pieces_add_losses_by_block, 1, rows, said, losses, *sizes, **here)
        labelled = shaped(said, (1, count, 1))
        pixel_softmax.backward(logits, labelled, counted, logits, ignore_index=ignore_index, weight=weight, **here)
        if dx is not None:
            gemm.strided(
                matrix, rows, flat(dx)[start : (n + 1) * channels * tokens], trans_a=True,
                m=channels, n=count, k=words, lda=channels, ldb=count, ldc=tokens, **here,
            )  # fmt: skip
        if dw is not None:
            gemm.strided(
                rows, columns, flat(dw), trans_b=True, beta=float(n + first > 0),
                m=words, n=channels, k=count, lda=count, ldb=tokens, ldc=channels, **here,
            )  # fmt: skip
        if db is not None:
            run(plain.pieces_backward_bias, words, shaped(rows, (words, count)), db, n, first, count, **here)
    launch(pieces_mean_by_share, ceil_div(windows, THREADS), losses, counted, windows, **here)
