"""Attention's probabilities as a map: of every query, the softmax of its products with all keys, head by head.

With d channels a head, Q and K (d × tokens) of one head:

    forward              S = Qᵀ·K / √d
    softmax              P = softmax of every row of S, in place
    softmax_backward     dS = P ∘ (dP - row sums of P ∘ dP), in place on dP
    backward             dQ = K·dSᵀ / √d    dK = Q·dS / √d

A map x is (images, 2·heads·d, …), head by head its query and its key; all axes after the channels are the tokens.  P is
(images, heads, tokens, tokens).  `causal`: token i sees tokens 0 … i alone, and the other probabilities are 0.

`kernels.fast.attention` computes the same and `kernels.fast.mix` together, with P as workspace: it has the kernels, the
order of summation and the bits.  Here P outlives the step, so that a memory policy has to do something with it.

**Launch, cost.** As in `kernels.fast.attention`, `tiled`: 2·heads·pairs·d operations forward and 4·heads·pairs·d
backward an image, without what `causal` masks whole.  The rows of P are read and written twice, forward and backward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast import elementwise
from kernels.fast.attention import AttentionShape, Matrices, matrices_of, some_heads


def forward(x: Any, y: Any, *, heads: int, causal: bool = False, stream: Any = None) -> None:
    """Fill y with S; of a causal one, tiles that are masked whole are 0."""
    check("scores.forward", x=x, y=y)
    shape = scores_shape("scores.forward", x.shape, heads, causal)
    check_shape("scores.forward", "y", y, squares(shape))
    if len(shape.rows()) > 1:
        elementwise.fill(y, 0.0, stream=stream)
    for first, part in some_heads(shape, stream):
        query, key = _read(shape, x, first)
        part.by_rows(query, key, _squares(shape, y, first), shape.width**-0.5)


def softmax(y: Any, *, causal: bool = False, stream: Any = None) -> None:
    """The rows of S become those of P, in place."""
    check("scores.softmax", y=y)
    shape = _of_squares("scores.softmax", y.shape, causal)
    for first, part in some_heads(shape, stream):
        part.softmax(_squares(shape, y, first))


def softmax_backward(y: Any, dy: Any, *, causal: bool = False, stream: Any = None) -> None:
    """The rows of dP, in dy, become those of dS; what is masked whole is neither read nor written."""
    check("scores.softmax_backward", y=y, dy=dy)
    shape = _of_squares("scores.softmax_backward", y.shape, causal)
    check_shape("scores.softmax_backward", "dy", dy, y.shape)
    for first, part in some_heads(shape, stream):
        part.softmax_backward(_squares(shape, y, first), _squares(shape, dy, first))


def backward(x: Any, dy: Any, dx: Any, *, heads: int, causal: bool = False, stream: Any = None) -> None:
    """Fill dx from dS, in dy."""
    check("scores.backward", x=x, dy=dy, dx=dx)
    shape = scores_shape("scores.backward", x.shape, heads, causal)
    check_shape("scores.backward", "dy", dy, squares(shape))
    check_shape("scores.backward", "dx", dx, x.shape)
    scale = shape.width**-0.5
    for first, part in some_heads(shape, stream):
        (query, key), (dquery, dkey), ds = _read(shape, x, first), _read(shape, dx, first), _squares(shape, dy, first)
        part.onto_queries(key, ds, dquery, scale)
        part.onto_keys(query, ds, dkey, False, scale)


def scores_shape(where: str, x_shape: Sequence[int], heads: int, causal: bool) -> AttentionShape:
    """Heads, channels and tokens of a map of queries and keys."""
    width, left = divmod(x_shape[1], 2 * heads) if heads > 0 and len(x_shape) > 2 else (0, 0)
    if left or not width:
        raise KernelError(f"{where}: {tuple(x_shape)} is no map of the queries and keys of {heads} heads")
    tokens = math.prod(x_shape[2:])
    return AttentionShape(int(x_shape[0]), heads, 1, int(width), tokens, tokens, bool(causal), False)


def squares(shape: AttentionShape) -> tuple[int, int, int, int]:
    """The shape of P."""
    return shape.images, shape.kv_heads, shape.queries, shape.keys


def _of_squares(where: str, y_shape: Sequence[int], causal: bool) -> AttentionShape:
    if len(y_shape) != 4 or y_shape[2] != y_shape[3]:
        raise KernelError(f"{where}: y is {tuple(y_shape)}; give (images, heads, tokens, tokens)")
    images, heads, queries, keys = map(int, y_shape)
    return AttentionShape(images, heads, 1, 1, queries, keys, bool(causal), False)


def _squares(shape: AttentionShape, y: Any, first: int) -> Matrices:
    """P of every head from head `first` on."""
    return matrices_of(y, first, shape.queries, shape.keys)


def _read(shape: AttentionShape, x: Any, first: int) -> tuple[Matrices, Matrices]:
    """Query and key of every head from head `first` on."""
    each = shape.width * shape.queries
    both = matrices_of(x, first, 2 * shape.width, shape.queries)
    return both, both.at(each)
