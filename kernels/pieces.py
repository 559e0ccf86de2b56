"""The last product of a language model, its softmax, loss and gradients, by pieces of the tokens.

    x[k, t]    = b[k] + Σ over c of w[k, c] · h[n, c, t]      the logits of token t of window n
    losses[n]  and dx[k, t]                                   those of `pixel_softmax`
    dh[n, c, t] = Σ over k of w[k, c] · dx[k, t]
    dw[k, c]   = Σ over n and t of dx[k, t] · h[n, c, t]      db[k] = Σ over n and t of dx[k, t]

h is (windows, channels, tokens, 1), w (words, channels, 1, 1).  `piece`, (1, words, tokens of a piece, 1), has the
logits of one piece at a time, then their softmax, then their gradient; the next piece overwrites them.  Every sum is
in the order of `conv` and `pixel_softmax`: dw goes on where the piece before it has ended.

Rungs:
    kernels.fast.pieces    the products of `gemm`, the softmax of `pixel_softmax`; dw is a sum of the pieces' sums
"""

import math

import numpy as np
from numba import cuda

from kernels import pixel_softmax
from kernels.run import maps, run, shaped, size

ZERO, NAN = np.float32(0), np.float32(np.nan)


@cuda.jit
def pieces_logits(h, w, piece, n, first, count):
    """One thread a logit; the piece has `count` tokens from the first one of window n."""
    t, k = cuda.grid(2)
    if t < count and k < w.shape[0]:
        total = ZERO
        for c in range(w.shape[1]):
            total += w[k, c] * h[n, c, first + t]
        piece[k, t] = total


@cuda.jit
def pieces_add_bias(b, piece, count):
    """piece[k, t] += b[k]."""
    t, k = cuda.grid(2)
    if t < count and k < b.shape[0]:
        piece[k, t] += b[k]


@cuda.jit
def pieces_add_losses(piece, labels, losses, ignored, n, first, count):
    """One thread: what the piece adds to the sum of its window; a label that is no word makes it NaN."""
    if cuda.grid(1) == 0:
        total = ZERO if first == 0 else losses[n]
        for t in range(count):
            label = labels[n, first + t]
            if label != ignored:
                if 0 <= label < piece.shape[0]:
                    total -= math.log(piece[label, t])
                else:
                    total = NAN
        losses[n] = total


@cuda.jit
def pieces_mean(losses, counted):
    """One thread a window: the sum becomes its share of the mean."""
    n = cuda.grid(1)
    if n < losses.shape[0]:
        losses[n] = losses[n] * np.float32(losses.shape[0]) / counted[0]


@cuda.jit
def pieces_gradient(piece, labels, counted, ignored, weight, n, first, count):
    """One thread a value; the gradient overwrites the softmax."""
    t, k = cuda.grid(2)
    if t < count and k < piece.shape[0]:
        label = labels[n, first + t]
        right = np.float32(1 if k == label else 0)
        piece[k, t] = (piece[k, t] - right) * (ZERO if label == ignored else weight / counted[0])


@cuda.jit
def pieces_backward_data(piece, w, dh, n, first, count):
    """One thread a value of dh."""
    t, c = cuda.grid(2)
    if t < count and c < w.shape[1]:
        total = ZERO
        for k in range(w.shape[0]):
            total += w[k, c] * piece[k, t]
        dh[n, c, first + t] = total


@cuda.jit
def pieces_backward_filter(h, piece, dw, n, first, count):
    """One thread a weight: the sum goes on from that of the pieces before."""
    c, k = cuda.grid(2)
    if c < dw.shape[1] and k < dw.shape[0]:
        total = ZERO if n == 0 and first == 0 else dw[k, c]
        for t in range(count):
            total += piece[k, t] * h[n, c, first + t]
        dw[k, c] = total


@cuda.jit
def pieces_backward_bias(piece, db, n, first, count):
    """One thread a word: the sum goes on from that of the pieces before."""
    k = cuda.grid(1)
    if k < db.shape[0]:
        total = ZERO if n == 0 and first == 0 else db[k]
        for t in range(count):
            total += piece[k, t]
        db[k] = total


# --- Launching them --------------------------------------------------------------------------------------------------


def places(labels, piece):
    """Window, first token and number of tokens of every piece, in order."""
    windows, tokens = pixel_softmax.pixels(labels).shape
    most = maps(piece).shape[2]
    return [(n, t, min(most, tokens - t)) for n in range(windows) for t in range(0, tokens, most)]


def learn(
    x, w, b, labels, losses, counted, piece, dx, dw, db, *, ignore_index=-100, weight=1.0, stream=None
):  # fmt: skip
    """x is h and dx its gradient; b, dx, dw and db may be None."""
    h, matrix, rows = maps(x), shaped(w, w.shape[:2]), shaped(piece, (w.shape[0], -1))
    words, channels = matrix.shape
    wanted = pixel_softmax.pixels(labels)
    run(pixel_softmax.pixel_softmax_count, 1, wanted, counted, ignore_index, stream=stream)
    for place in places(labels, piece):
        count = place[2]
        run(pieces_logits, (count, words), h, matrix, rows, *place, stream=stream)
        if b is not None:
            run(pieces_add_bias, (count, words), b, rows, count, stream=stream)
        pixel_softmax.forward(piece, piece, stream=stream)  # of a short piece the tokens beyond it, too
        run(pieces_add_losses, 1, rows, wanted, losses, ignore_index, *place, stream=stream)
        given = rows, wanted, counted, ignore_index, float(weight)
        run(pieces_gradient, (count, words), *given, *place, stream=stream)
        if dx is not None:
            run(pieces_backward_data, (count, channels), rows, matrix, maps(dx), *place, stream=stream)
        if dw is not None:
            run(pieces_backward_filter, (channels, words), h, rows, shaped(dw, dw.shape[:2]), *place, stream=stream)
        if db is not None:
            run(pieces_backward_bias, size(db), rows, db, *place, stream=stream)
    run(pieces_mean, size(losses), losses, counted, stream=stream)
