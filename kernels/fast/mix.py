"""Values mixed by probabilities that are a map: of every query, the mean of all values that its row of P weights.

With P (queries × keys) and V (d × keys) of one head, and dY (d × queries):

    forward     Y = V·Pᵀ
    backward    dV = dY·P    dP = dYᵀ·V

P is (images, heads, queries, keys), as `kernels.fast.scores` makes it, V is (images, heads·d, …) with a token for each
key. `causal` says that P is 0 where the key comes after the query.  Then tiles of it that are 0 are not read, and dP is
0 there; within the other tiles dP has all its numbers, which the softmax's gradient multiplies by 0.

**Order of summation, launch, cost.** As in `kernels.fast.attention`, `tiled`: 2·heads·pairs·d operations forward and
4·heads·pairs·d backward an image, without the tiles that are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kernels.checks.arguments import KernelError, check, check_shape
from kernels.fast import elementwise
from kernels.fast.attention import AttentionShape, matrices_of, some_heads


def forward(p: Any, x: Any, y: Any, *, causal: bool = False, stream: Any = None) -> None:
    """Fill y, (images, heads·d, queries …); x: the values."""
    check("mix.forward", p=p, x=x, y=y)
    shape = mix_shape("mix.forward", p.shape, x.shape, causal)
    _check_mixed("mix.forward", "y", y, shape)
    d, queries, keys = shape.width, shape.queries, shape.keys
    for first, part in some_heads(shape, stream):
        squares, values = matrices_of(p, first, queries, keys), matrices_of(x, first, d, keys)
        part.onto_queries(values, squares, matrices_of(y, first, d, queries))


def backward(p: Any, x: Any, dy: Any, dp: Any, dx: Any, *, causal: bool = False, stream: Any = None) -> None:
    """Fill dp and dx."""
    check("mix.backward", p=p, x=x, dy=dy, dp=dp, dx=dx)
    shape = mix_shape("mix.backward", p.shape, x.shape, causal)
    _check_mixed("mix.backward", "dy", dy, shape)
    check_shape("mix.backward", "dp", dp, p.shape)
    check_shape("mix.backward", "dx", dx, x.shape)
    if len(shape.rows()) > 1:
        elementwise.fill(dp, 0.0, stream=stream)
    d, queries, keys = shape.width, shape.queries, shape.keys
    for first, part in some_heads(shape, stream):
        given, squares = matrices_of(dy, first, d, queries), matrices_of(p, first, queries, keys)
        part.onto_keys(given, squares, matrices_of(dx, first, d, keys), False)
        part.by_rows(given, matrices_of(x, first, d, keys), matrices_of(dp, first, queries, keys))


def mix_shape(where: str, p_shape: Sequence[int], x_shape: Sequence[int], causal: bool) -> AttentionShape:
    """Heads, channels and tokens of probabilities and values."""
    if len(p_shape) != 4 or len(x_shape) < 3 or x_shape[1] % p_shape[1] or x_shape[0] != p_shape[0]:
        raise KernelError(f"{where}: probabilities {tuple(p_shape)} and values {tuple(x_shape)} do not fit together")
    images, heads, queries, keys = map(int, p_shape)
    if keys != math.prod(x_shape[2:]):
        raise KernelError(f"{where}: probabilities of {keys} keys and {math.prod(x_shape[2:])} values")
    if causal and queries != keys:
        raise KernelError(f"{where}: causal needs as many queries as keys, not {queries} and {keys}")
    return AttentionShape(images, heads, 1, int(x_shape[1]) // heads, queries, keys, bool(causal), False)


def _check_mixed(where: str, name: str, y: Any, shape: AttentionShape) -> None:
    wanted = (shape.images, shape.kv_heads * shape.width, shape.queries)
    if (*y.shape[:2], math.prod(y.shape[2:])) != wanted:
        raise KernelError(f"{where}: {name} is {tuple(y.shape)}; give {wanted}, or its tokens on several axes")
